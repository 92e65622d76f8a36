package guard

import (
	"errors"
	"fmt"
	"math"

	"github.com/criguard/criguard/policy"
)

func (c checker) priorities(rules []priorityKeys) (all []PriorityRule) {
	for i, r := range rules {
		at := fmt.Sprintf("priority[%d]", i+1)
		rule := PriorityRule{Rule: c.rule(at, r.ruleKeys)}
		switch {
		case r.Value == nil:
			c.add(at+".value", nil, "must be set", "as value = -10; the lower is stopped earlier")
		case *r.Value < math.MinInt32 || *r.Value > math.MaxInt32:
			c.add(at+".value", *r.Value, fmt.Sprintf("must be between %d and %d", math.MinInt32, math.MaxInt32), "as priorities in Kubernetes")
		default:
			rule.Value = *r.Value
		}
		all = append(all, rule)
	}
	return all
}

func (c checker) protects(rules []ruleKeys) (all []policy.Rule) {
	for i, r := range rules {
		all = append(all, c.rule(fmt.Sprintf("protect[%d]", i+1), r))
	}
	return all
}

func (c checker) limits(rules []limitKeys) (all []LimitRule) {
	for i, r := range rules {
		at := fmt.Sprintf("limit[%d]", i+1)
		rule, key := c.rule(at, r.ruleKeys), at+".ephemeral_storage"
		if r.EphemeralStorage == "" {
			c.add(key, nil, "must be set", `as ephemeral_storage = "2Gi"`)
		}
		q := c.quantity(key, r.EphemeralStorage)
		if q.IsPercent() || q.IsZero() {
			c.add(key, string(r.EphemeralStorage), "must be an amount above 0", `as "2Gi"`)
		}
		all = append(all, LimitRule{rule, q.Of(0)})
	}
	return all
}

// rule is what names pods. One that names none would match every pod.
func (c checker) rule(at string, k ruleKeys) policy.Rule {
	r := k.rule()
	if errors.Is(r.Validate(), policy.ErrEmptyRule) {
		c.add(at, nil, "must name pods", `set namespace, name or labels; name = "*" is every pod`)
	}
	c.glob(at+".namespace", r.Namespace)
	c.glob(at+".name", r.Name)
	for _, label := range sortedKeys(r.Labels) {
		c.glob(joinKey(at+".labels", label), r.Labels[label])
	}
	return r
}
