package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/fleet/client"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/simulate"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// keyEffect is what a key changes: two configurations that differ only in that key, and the result of each.
type keyEffect struct {
	where      string // what acts on the key
	a, b       string
	in         func(*testing.T) (a, b string) // returns a and b if they name something that is made for the test
	see        func(*testing.T, config.Config) string
	sawA, sawB string
}

// Every key that is parsed has an effect.
func TestEveryKeyTakesEffect(t *testing.T) {
	effects := keyEffects()
	var keys []string
	for _, key := range config.Keys() {
		keys = append(keys, key)
		if _, ok := effects[key]; !ok {
			t.Errorf("%s: what does it change?", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(effects)) {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is no key", key)
		}
	}
	for key, e := range effects {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			if e.in != nil {
				e.a, e.b = e.in(t)
			}
			var cfgs []config.Config
			for _, text := range []string{e.a, e.b} {
				cfg, err := config.Parse("test", strings.NewReader(text))
				if err != nil {
					t.Fatalf("%v in\n%s", err, text)
				}
				cfgs = append(cfgs, cfg)
			}
			// Rules differ as a whole; tables keyed by signal differ in one entry.
			path, _, _ := strings.Cut(key, "[]")
			if d := cfgs[1].Diff(cfgs[0]); len(d) != 1 || d[0] != path && !strings.HasPrefix(d[0], path+".") {
				t.Fatalf("they differ in %q", d)
			}
			for i, want := range []string{e.sawA, e.sawB} {
				if got := e.see(t, cfgs[i]); got != want {
					t.Errorf("%s of\n%s\nis %q, want %q", e.where, []string{e.a, e.b}[i], got, want)
				}
			}
			if e.sawA == e.sawB {
				t.Error("both come to the same")
			}
		})
	}
}

// effectTrace returns a trace made of pairs of a time and the node's state at that time.
func effectTrace(story ...string) string {
	var b strings.Builder
	for i := 0; i < len(story); i += 2 {
		fmt.Fprintf(&b, "{\"at\":%q,%s}\n", story[i], story[i+1])
	}
	return b.String()
}

// seeTrace runs passes over a trace and shows one thing about each.
func seeTrace(show func(simulate.Pass) string, story ...string) func(*testing.T, config.Config) string {
	return func(t *testing.T, cfg config.Config) string {
		var out bytes.Buffer
		if _, err := simulate.Run(t.Context(), cfg, strings.NewReader(effectTrace(story...)), &out, simulate.Options{}); err != nil {
			t.Fatal(err)
		}
		var seen []string
		for dec := json.NewDecoder(&out); dec.More(); {
			var p simulate.Pass
			if err := dec.Decode(&p); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, show(p))
		}
		return strings.Join(seen, ", ")
	}
}

// showStop shows which pod is stopped, or what holds the stop back.
func showStop(p simulate.Pass) string {
	switch {
	case p.Stop != nil:
		return p.Stop.Pod
	case p.Held != "":
		return p.Held
	default:
		return "none"
	}
}

func showGrace(p simulate.Pass) string {
	if p.Stop == nil {
		return "none"
	}
	return time.Duration(p.Stop.Grace).String()
}

func showMet(p simulate.Pass) string        { return "[" + strings.Join(p.Met, " ") + "]" }
func showConditions(p simulate.Pass) string { return "[" + p.Conditions.String() + "]" }
func showSteps(p simulate.Pass) string      { return "[" + strings.Join(p.Reclaimed, " ") + "]" }

// orderRecorder records the stops of a pass instead of performing them.
type orderRecorder struct{ orders []eviction.StopOrder }

func (s *orderRecorder) Stop(_ context.Context, o eviction.StopOrder) eviction.StopJob {
	s.orders = append(s.orders, o)
	return doneStop{}
}

// seeOrder makes one pass and shows the order that the stopper gets.
func seeOrder(node string) func(*testing.T, config.Config) string {
	return func(t *testing.T, cfg config.Config) string {
		n := simulate.NewNode(cfg)
		line, err := trace.NewReader(strings.NewReader(effectTrace("0s", node))).Next()
		if err != nil {
			t.Fatal(err)
		}
		n.Advance(line)
		stops := &orderRecorder{}
		eviction.New(cfg, n, n, n, stops, nil, policy.NewRestraint("boot")).Pass(t.Context(), "test")
		var seen []string
		for _, o := range stops.orders {
			seen = append(seen, fmt.Sprintf("%s direct=%t fallback=%t", o.Pod.FullName(), o.Direct, o.Fallback))
		}
		return strings.Join(seen, ", ")
	}
}

// seePermit shows what the fleet says about a soft stop.
func seePermit(t *testing.T, cfg config.Config) string {
	c := client.New(client.Options{Config: cfg, Dir: rundir.Dir(t.TempDir()), Log: slog.New(slog.DiscardHandler), Now: cgroup.BootTime})
	held := c.Permit(&policy.Stop{Kind: policy.Soft})
	if held.By == "" {
		return "permitted"
	}
	return held.By + ": " + held.Detail
}

// seeProtection shows the protection of a pod whose annotation requests it.
func seeProtection(_ *testing.T, cfg config.Config) string {
	var pod inventory.Pod
	inventory.ApplyRules(&cfg, &pod, inventory.Facts{Namespace: "ops", Name: "a", Annotations: map[string]string{config.AnnotationProtect: "true"}})
	return pod.Protection
}

// effectOfRule is the effect of one of the keys that select pods in a rule.
func effectOfRule(table, key, a, b, rest string, see func(*testing.T, config.Config) string, sawA, sawB string) keyEffect {
	rule := func(value string) string { return fmt.Sprintf("[[%s]]\n%s = %s\n%s", table, key, value, rest) }
	return keyEffect{where: "inventory.ApplyRules", a: rule(a), b: rule(b), see: see, sawA: sawA, sawB: sawB}
}

// keyEffects has an entry for each key.
func keyEffects() map[string]keyEffect {
	const ( // states of the node for a trace
		atTheBrink = `"signals":{"memory.available":{"available":"50Mi","capacity":"4Gi"}}`
		atHalfAGi  = `"signals":{"memory.available":{"available":"500Mi","capacity":"4Gi"}}`
		atEase     = `"signals":{"memory.available":{"available":"3Gi","capacity":"4Gi"}}`
		diskFull   = `"signals":{"nodefs.available":{"available":"1Gi","capacity":"20Gi"}}`
		twoPods    = `"pods":[{"name":"x/a","labels":{"app":"a"},"memory_usage":"2Gi"},{"name":"y/b","labels":{"app":"b"},"memory_usage":"1Gi"}]`
		twoSizes   = `"pods":[{"name":"x/a","priority":1,"memory_usage":"2Gi","pids":200,"disk_usage":{"rootfs":"2Gi","logs":"0","volumes":"0"},"inodes_usage":{"rootfs":2000,"logs":0,"volumes":0}},` +
			`{"name":"y/b","memory_usage":"1Gi","pids":100,"disk_usage":{"rootfs":"1Gi","logs":"0","volumes":"0"},"inodes_usage":{"rootfs":1000,"logs":0,"volumes":0}}]`
		fourPods = `"pods":[{"name":"d/a","memory_usage":"40Mi"},{"name":"d/b","memory_usage":"30Mi"},{"name":"d/c","memory_usage":"20Mi"},{"name":"d/d","memory_usage":"10Mi"}]`
		largePod = `"pods":[{"name":"x/a","labels":{"app":"a"},"disk_usage":{"rootfs":"3Gi","logs":"0","volumes":"0"}}]`
		onePod   = `"pods":[{"name":"d/a","memory_usage":"1Gi"}]`
	)
	brink := seeTrace(showStop, "0s", atTheBrink+","+twoPods)
	limited := seeTrace(showStop, "0s", atEase+","+largePod)
	// At each line, what the pods stopped before would have given back is available again.
	memory := func(available string) string {
		return `"signals":{"memory.available":{"available":"` + available + `","capacity":"4Gi"}}`
	}
	four := seeTrace(showStop, "0s", memory("5Mi")+","+fourPods, "1s", memory("45Mi"), "3s", memory("75Mi"))
	// At these lines, something outside the pods takes what a stop gives back.
	taken := seeTrace(showStop, "0s", memory("75Mi")+","+fourPods, "100ms", memory("75Mi"), "200ms", memory("75Mi"))
	// The same pod comes back after every stop.
	again := func(times ...string) func(*testing.T, config.Config) string {
		var story []string
		for _, at := range times {
			story = append(story, at, atTheBrink+","+onePod)
		}
		return seeTrace(showStop, story...)
	}
	const (
		soft   = "[eviction.soft]\n'memory.available' = '1Gi'\n[eviction.soft_grace_period]\n'memory.available' = "
		softly = "[eviction]\nhard = {'memory.available' = '0%'}\nsoft = {'memory.available' = '100Mi'}\nsoft_grace_period = {'memory.available' = '0s'}\n"
		often  = "[budget]\nbreaker = 0\n[backoff]\n"
	)
	effects := map[string]keyEffect{
		"mode": {
			where: "eviction.Manager.launch", a: "mode = 'enforce'", b: "mode = 'observe'",
			see: seeOrder(atTheBrink + "," + onePod), sawA: "d/a direct=true fallback=true", sawB: "",
		},
		"protect_static": {
			where: "inventory.ApplyRules", a: "", b: "protect_static = false",
			see:  seeTrace(showStop, "0s", atTheBrink+`,"pods":[{"name":"d/s","static":true,"memory_usage":"1Gi"}]`),
			sawA: api.HeldProtected, sawB: "d/s",
		},
		"protect_kube_system": {
			where: "inventory.ApplyRules", a: "", b: "protect_kube_system = false",
			see:  seeTrace(showStop, "0s", atTheBrink+`,"pods":[{"name":"kube-system/k","memory_usage":"1Gi"}]`),
			sawA: api.HeldProtected, sawB: "kube-system/k",
		},

		"eviction.interval": {
			where: "eviction.Manager.relieve", a: "eviction.interval = '10s'", b: "eviction.interval = '1m'",
			see:  seeTrace(showSteps, "0s", diskFull, "15s", diskFull),
			sawA: "[containers sandboxes logs images], [containers sandboxes logs images]", sawB: "[containers sandboxes logs images], []",
		},
		"eviction.max_pod_grace_period": {
			where: "eviction.Manager.begin", a: soft + "'0s'", b: soft + "'0s'\n[eviction]\nmax_pod_grace_period = '5s'",
			see: seeTrace(showGrace, "0s", atHalfAGi+","+onePod), sawA: "30s", sawB: "5s",
		},
		"eviction.pressure_transition_period": {
			where: "policy.Evaluate", a: "", b: "eviction.pressure_transition_period = '30s'",
			see: seeTrace(showConditions, "0s", atTheBrink, "1m", atEase), sawA: "[MemoryPressure], [MemoryPressure]", sawB: "[MemoryPressure], []",
		},
		"eviction.soft_forgive": {
			where: "policy.Evaluate", a: soft + "'1m'", b: soft + "'1m'\n[eviction]\nsoft_forgive = '1s'",
			see:  seeTrace(showStop, "0s", atHalfAGi+","+onePod, "30s", atEase, "32s", atHalfAGi, "61s", atHalfAGi),
			sawA: "grace, none, grace, d/a", sawB: "grace, none, grace, grace",
		},
		"eviction.direct_kill": {
			where: "eviction.Manager.launch", a: "eviction.direct_kill = 'fallback'", b: "eviction.direct_kill = 'never'",
			see: seeOrder(atTheBrink + "," + onePod), sawA: "d/a direct=false fallback=true", sawB: "d/a direct=false fallback=false",
		},
		"eviction.memory_reclaim": {
			where: "eviction.Steps", a: "", b: "eviction.memory_reclaim = true",
			see: seeTrace(showSteps, "0s", atTheBrink), sawA: "[]", sawB: "[memory]",
		},
		"eviction.stall_floor": {
			where: "policy.Evaluate", a: "eviction.hard.'memory.stall' = '80%'", b: "eviction.hard.'memory.stall' = '80%'\neviction.stall_floor = '50%'",
			see:  seeTrace(showStop, "0s", `"signals":{"memory.stall":{"available":10,"capacity":100},"meminfo.available":{"available":"1Gi","capacity":"4Gi"}},`+onePod),
			sawA: api.HeldStallFloor, sawB: "d/a",
		},
		"eviction.hard": {
			where: "policy.Evaluate", a: "", b: "eviction.hard.'memory.available' = '1Gi'",
			see: seeTrace(showStop, "0s", atHalfAGi+","+onePod), sawA: "none", sawB: "d/a",
		},
		"eviction.soft": {
			where: "policy.Evaluate", a: soft + "'0s'", b: strings.Replace(soft, "1Gi", "400Mi", 1) + "'0s'",
			see: seeTrace(showStop, "0s", atHalfAGi+","+onePod), sawA: "d/a", sawB: "none",
		},
		"eviction.soft_grace_period": {
			where: "policy.Evaluate", a: soft + "'0s'", b: soft + "'1m'",
			see: seeTrace(showStop, "0s", atHalfAGi+","+onePod), sawA: "d/a", sawB: api.HeldGrace,
		},
		"eviction.minimum_reclaim": {
			where: "policy.Evaluate", a: "", b: "eviction.minimum_reclaim.'memory.available' = '1Gi'",
			see: seeTrace(showMet, "0s", atTheBrink, "1s", atHalfAGi), sawA: "[memory.available:hard], []", sawB: "[memory.available:hard], [memory.available:hard]",
		},

		"rank.memory": {
			where: "policy.Rank", a: "", b: "rank.memory = ['usage']",
			see: seeTrace(showStop, "0s", atTheBrink+","+twoSizes), sawA: "y/b", sawB: "x/a",
		},
		"rank.disk": {
			where: "policy.Rank", a: "", b: "rank.disk = ['usage']",
			see: seeTrace(showStop, "0s", diskFull+","+twoSizes), sawA: "y/b", sawB: "x/a",
		},
		"rank.inodes": {
			where: "policy.Rank", a: "", b: "rank.inodes = ['usage']",
			see:  seeTrace(showStop, "0s", `"signals":{"nodefs.inodesFree":{"available":3000,"capacity":100000}},`+twoSizes),
			sawA: "y/b", sawB: "x/a",
		},
		"rank.pid": {
			where: "policy.Rank", a: "", b: "rank.pid = ['usage']",
			see:  seeTrace(showStop, "0s", `"signals":{"pid.available":{"available":10,"capacity":1000}},`+twoSizes),
			sawA: "y/b", sawB: "x/a",
		},

		"priority[].namespace":      effectOfRule("priority", "namespace", "'x*'", "'y*'", "value = -1", brink, "x/a", "y/b"),
		"priority[].name":           effectOfRule("priority", "name", "'a'", "'b'", "value = -1", brink, "x/a", "y/b"),
		"priority[].labels":         effectOfRule("priority", "labels", "{app = 'a'}", "{app = 'b'}", "value = -1", brink, "x/a", "y/b"),
		"priority[].value":          effectOfRule("priority", "value", "-1", "1", "name = 'a'", brink, "x/a", "y/b"),
		"protect[].namespace":       effectOfRule("protect", "namespace", "'x*'", "'y*'", "", brink, "y/b", "x/a"),
		"protect[].name":            effectOfRule("protect", "name", "'a'", "'b'", "", brink, "y/b", "x/a"),
		"protect[].labels":          effectOfRule("protect", "labels", "{app = 'a'}", "{app = 'b'}", "", brink, "y/b", "x/a"),
		"limit[].namespace":         effectOfRule("limit", "namespace", "'x*'", "'y*'", "ephemeral_storage = '2Gi'", limited, "x/a", "none"),
		"limit[].name":              effectOfRule("limit", "name", "'a'", "'b'", "ephemeral_storage = '2Gi'", limited, "x/a", "none"),
		"limit[].labels":            effectOfRule("limit", "labels", "{app = 'a'}", "{app = 'b'}", "ephemeral_storage = '2Gi'", limited, "x/a", "none"),
		"limit[].ephemeral_storage": effectOfRule("limit", "ephemeral_storage", "'2Gi'", "'4Gi'", "name = 'a'", limited, "x/a", "none"),

		"annotations.trusted_namespaces": {
			where: "inventory.ApplyRules", a: "", b: "annotations.trusted_namespaces = ['o*']",
			see: seeProtection, sawA: "", sawB: inventory.ProtectedAnnotation,
		},

		"budget.hard.burst": {
			where: "policy.Restraint", a: "budget.hard.burst = 1", b: "budget.hard.burst = 2",
			see: four, sawA: "d/a, budget, budget", sawB: "d/a, d/b, budget",
		},
		"budget.hard.every": {
			where: "policy.Restraint", a: "budget.hard.burst = 1", b: "budget.hard = {burst = 1, every = '2s'}",
			see: four, sawA: "d/a, budget, budget", sawB: "d/a, budget, d/b",
		},
		"budget.soft.burst": {
			where: "policy.Restraint", a: softly + "[budget]\nsoft.burst = 1", b: softly + "[budget]\nsoft.burst = 2",
			see: four, sawA: "d/a, budget, budget", sawB: "d/a, d/b, budget",
		},
		"budget.soft.every": {
			where: "policy.Restraint", a: softly + "[budget]\nsoft.burst = 1", b: softly + "[budget]\nsoft = {burst = 1, every = '2s'}",
			see: four, sawA: "d/a, budget, budget", sawB: "d/a, budget, d/b",
		},
		"budget.per_hour": {
			where: "policy.Restraint", a: "budget.per_hour = 1", b: "budget.per_hour = 2",
			see: four, sawA: "d/a, budget, budget", sawB: "d/a, d/b, budget",
		},
		"budget.breaker": {
			where: "policy.Restraint", a: "budget.breaker = 1", b: "budget.breaker = 2",
			see: taken, sawA: "d/a, breaker, breaker", sawB: "d/a, d/b, breaker",
		},
		"backoff.first": {
			where: "policy.Restraint", a: softly, b: softly + "[backoff]\nfirst = '2s'",
			see: again("0s", "5s"), sawA: "d/a, back-off", sawB: "d/a, d/a",
		},
		"backoff.max": {
			where: "policy.Restraint", a: softly + often, b: softly + often + "max = '10s'",
			see: again("0s", "11s", "22s"), sawA: "d/a, d/a, back-off", sawB: "d/a, d/a, d/a",
		},
		"backoff.reset": {
			where: "policy.Restraint", a: softly + often, b: softly + often + "reset = '5m'",
			see: again("0s", "11s", "6m30s", "6m42s"), sawA: "d/a, d/a, d/a, back-off", sawB: "d/a, d/a, d/a, d/a",
		},
		"admission.mode": {
			where: "eviction.Manager.enforce", a: "", b: "admission.mode = 'stop'",
			see:  seeTrace(showStop, "0s", atTheBrink, "10s", atEase+`,"pods":[{"name":"d/new","qos":"BestEffort","created":"5s","memory_usage":"1Mi"}]`),
			sawA: "outside pods, none", sawB: "outside pods, d/new",
		},
		"fleet.enabled": {
			where: "client.Permit", a: "", b: "fleet.enabled = true",
			see: seePermit, sawA: "permitted", sawB: "asking the fleet: waiting for the agent",
		},
	}
	for key, e := range nodeEffects() {
		effects[key] = e
	}
	return effects
}

// doneStop is a stop that has ended.
type doneStop struct{}

func (doneStop) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
func (doneStop) Escalate(bool, []string)       {}
func (doneStop) Discard(_, _ bool)             {}
func (doneStop) Outcome() eviction.StopOutcome { return eviction.StopOutcome{Returned: true} }
