package policy

import (
	"errors"
	"fmt"
	"path"
)

// Rule selects pods by namespace, name and labels. An empty field matches anything.
type Rule struct {
	Namespace string            // glob, such as "batch-*"
	Name      string            // glob
	Labels    map[string]string // each must exist, with a value that matches the glob
}

// Match reports whether the rule matches a pod.
func (r Rule) Match(namespace, name string, labels map[string]string) bool {
	if !glob(r.Namespace, namespace) || !glob(r.Name, name) {
		return false
	}
	for key, pattern := range r.Labels {
		if value, ok := labels[key]; !ok || !(pattern == value || pattern != "" && glob(pattern, value)) {
			return false
		}
	}
	return true
}

// glob reports whether s matches a path.Match pattern. "" and "*" match anything, even a slash, which
// the * of path.Match does not match.
func glob(pattern, s string) bool {
	if pattern == "" || pattern == "*" {
		return true
	}
	ok, err := path.Match(pattern, s)
	return ok && err == nil
}

// ErrEmptyRule means that a rule sets nothing and so would match every pod.
var ErrEmptyRule = errors.New(`names no pod (hint: set namespace, name or labels; "*" is any)`)

// Validate returns an error if the rule is empty or has an invalid pattern.
func (r Rule) Validate() error {
	if r.Namespace == "" && r.Name == "" && len(r.Labels) == 0 {
		return ErrEmptyRule
	}
	var errs []error
	check := func(key, pattern string) {
		if _, err := path.Match(pattern, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: not a pattern: %w", key, pattern, err))
		}
	}
	check("namespace", r.Namespace)
	check("name", r.Name)
	for key, pattern := range r.Labels {
		check("labels."+key, pattern)
	}
	return errors.Join(errs...)
}
