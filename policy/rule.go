package policy

import (
	"errors"
	"fmt"
	"path"
)

// Rule names pods by their namespace, name and labels. What is left out matches
// anything.
type Rule struct {
	Namespace string            // glob, as "batch-*"
	Name      string            // glob
	Labels    map[string]string // each must be there, with a value that matches the glob
}

// Match reports whether a pod is named by the rule.
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

// glob reports whether s matches a path.Match pattern. "" and "*" match
// anything, also what path.Match's * leaves out.
func glob(pattern, s string) bool {
	if pattern == "" || pattern == "*" {
		return true
	}
	ok, err := path.Match(pattern, s)
	return ok && err == nil
}

// ErrEmptyRule is a rule that names nothing, and so would name everything.
var ErrEmptyRule = errors.New(`names no pod (hint: set namespace, name or labels; "*" is any)`)

// Validate reports what is wrong with the rule: that it is empty, or has a
// pattern that is none.
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
