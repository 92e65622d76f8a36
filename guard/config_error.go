package guard

import (
	"errors"
	"fmt"
	"strings"
)

// ErrConfig is what every mistake in a configuration is.
var ErrConfig = errors.New("bad configuration")

// ConfigError is one mistake in a configuration.
type ConfigError struct {
	File  string
	Line  int    // 0 = not known
	Key   string // dotted path: "images.min_age", "priority[2].namespace"
	Value string // as written; "" = none
	Rule  string // what it breaks
	Hint  string // what to do; "" = plain from the rule
}

// Error is "config.toml: images.min_age = "5": rule (hint: …)".
func (e *ConfigError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key)
		if e.Value != "" {
			b.WriteString(" = " + e.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Rule)
	if e.Hint != "" {
		b.WriteString(" (hint: " + e.Hint + ")")
	}
	return b.String()
}

// Is makes every mistake an ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// mistakes gathers all of them, in the order they are found.
type mistakes struct {
	file string
	errs []error
}

func (m *mistakes) add(key string, value any, rule, hint string) {
	e := &ConfigError{File: m.file, Key: key, Rule: rule, Hint: hint}
	if value != nil {
		e.Value = fmt.Sprintf("%#v", value)
	}
	m.errs = append(m.errs, e)
}

func (m *mistakes) err() error { return errors.Join(m.errs...) }

// kubeletKeys are the kubelet's names of what has another one here.
var kubeletKeys = map[string]string{
	"evictionHard":                          "[eviction.hard]",
	"evictionSoft":                          "[eviction.soft]",
	"evictionSoftGracePeriod":               "[eviction.soft_grace_period]",
	"evictionMinimumReclaim":                "[eviction.minimum_reclaim]",
	"evictionPressureTransitionPeriod":      "[eviction] pressure_transition_period",
	"evictionMaxPodGracePeriod":             "[eviction] max_pod_grace_period",
	"imageGCHighThresholdPercent":           "[images] high",
	"imageGCLowThresholdPercent":            "[images] low",
	"imageMinimumGCAge":                     "[images] min_age",
	"imageMaximumGCAge":                     "[images] max_age",
	"containerRuntimeEndpoint":              "[runtime] endpoint",
	"podLogsDir":                            "[node] pod_log_dir",
	"minimumContainerTTLDuration":           "[containers] min_age",
	"maximumDeadContainersPerContainer":     "[containers] max_per_container",
	"maximumDeadContainers":                 "[containers] max",
	"mergeDefaultEvictionSettings":          "nothing: defaults are always merged",
	"kernelMemcgNotification":               "nothing: the kernel's events are always used",
	"minimum-container-ttl-duration":        "[containers] min_age",
	"maximum-dead-containers-per-container": "[containers] max_per_container",
	"eviction-hard":                         "[eviction.hard]",
	"eviction-soft":                         "[eviction.soft]",
	"image-gc-high-threshold":               "[images] high",
	"image-gc-low-threshold":                "[images] low",
}

// nearest finds the word that was probably meant: within a third of its letters.
func nearest(s string, words []string) string {
	best, least := "", len(s)/3+1
	for _, w := range words {
		if d := distance(strings.ToLower(s), strings.ToLower(w)); d < least || d == least && best == "" {
			best, least = w, d
		}
	}
	return best
}

// distance counts the letters to change, add or leave out (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
