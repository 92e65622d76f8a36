package reclaim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// The kubelet's own tests of its container garbage collector (N1 to N5). Their times "after the epoch"
// follow a plausible time here: a timestamp of 1970 comes from a clock that was not set, and makes
// nothing old.
func TestSelectContainersLikeKubelet(t *testing.T) {
	t.Parallel()
	hour := ContainerPolicy{MinAge: time.Hour, MaxPerContainer: 2, Max: 6}
	now := Moment{time.Hour, epoch.Add(24 * time.Hour)}
	ago := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	type made struct {
		pod, name string
		at        time.Time
	}
	foo := func(at ...time.Time) (out []made) {
		for _, a := range at {
			out = append(out, made{"foo", "bar", a})
		}
		return out
	}
	tests := []struct {
		name   string
		made   []made
		policy ContainerPolicy
		left   []string
	}{
		{"N1 nothing may stay", foo(ago(0)), ContainerPolicy{time.Minute, 1, 0, false, false}, nil},
		{"N2 cap of the node", foo(ago(4), ago(3), ago(2), ago(1), ago(0)), ContainerPolicy{time.Minute, -1, 4, false, false}, []string{"0", "1", "2", "3"}},
		{"N3 no caps", foo(ago(2), ago(1), ago(0)), ContainerPolicy{time.Minute, -1, -1, false, false}, []string{"0", "1", "2"}},
		{"N4 all young", foo(now.Wall, now.Wall, now.Wall), hour, []string{"0", "1", "2"}},
		{"N5 newest of the container", foo(ago(2), ago(1), ago(0)), hour, []string{"0", "1"}},
		{
			"caps of units and node together",
			[]made{
				{"foo", "bar", ago(2)}, {"foo", "bar", ago(1)}, {"foo", "bar", ago(0)},
				{"foo1", "baz", ago(2)}, {"foo1", "baz", ago(1)}, {"foo1", "baz", ago(0)},
				{"foo2", "bar", ago(2)}, {"foo2", "bar", ago(1)}, {"foo2", "bar", ago(0)},
				{"foo3", "bar", ago(2)}, {"foo3", "bar", ago(1)}, {"foo3", "bar", ago(0)},
			},
			hour, []string{"0", "3", "6", "9"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var inv inventory
			for i, m := range tt.made {
				inv.Containers = append(inv.Containers, container(fmt.Sprint(i), m.pod, m.name, m.at))
			}
			sel := selectContainers(inv, tt.policy, &sightings{}, now)
			equal(t, "left", sortedIDs(sel.Keep), tt.left)
			if len(sel.Keep)+len(sel.Remove) != len(tt.made) {
				t.Errorf("%d kept and %d removed of %d", len(sel.Keep), len(sel.Remove), len(tt.made))
			}
		})
	}
}

func TestSelectContainers(t *testing.T) {
	t.Parallel()
	old := epoch
	one := ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 1, Max: -1}
	none := ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 0, Max: -1}
	with := func(c cri.Container, f func(*cri.Container)) cri.Container { f(&c); return c }
	now := Moment{time.Hour, epoch.Add(24 * time.Hour)}

	t.Run("a running container is not even listed", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{with(container("a", "p", "c", old), func(c *cri.Container) { c.State = cri.Running })}}
		sel := selectContainers(inv, none, &sightings{}, now)
		equal(t, "removed", ids(sel.Remove), nil)
		equal(t, "kept", ids(sel.Keep), nil)
	})
	t.Run("created and unknown ones are dead when old enough", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{
			with(container("created-young", "p", "a", now.Wall.Add(-59*time.Second)), func(c *cri.Container) { c.State = cri.Created }),
			with(container("created-old", "p", "b", old), func(c *cri.Container) { c.State = cri.Created }),
			with(container("unknown", "p", "c", old), func(c *cri.Container) { c.State = cri.Unknown }),
		}}
		sel := selectContainers(inv, none, &sightings{}, now)
		equal(t, "removed", sortedIDs(sel.Remove), []string{"created-old", "unknown"})
		inv.Sandboxes = []cri.Sandbox{sandbox("sb-p", "p", false, old)}
		sel = selectContainers(inv, none, &sightings{}, now)
		equal(t, "removed from a sandbox that is not ready", sortedIDs(sel.Remove), []string{"created-old", "unknown"})
	})
	t.Run("one that was created just now is about to be started, whatever the minimum age, and is not the newest dead one", func(t *testing.T) {
		t.Parallel()
		inv := inventory{
			Containers: []cri.Container{
				with(container("next", "p", "c", now.Wall.Add(-59*time.Second)), func(c *cri.Container) { c.State, c.Attempt = cri.Created, 1 }),
				container("last", "p", "c", now.Wall.Add(-59*time.Second)),
			},
			Sandboxes: []cri.Sandbox{sandbox("sb-p", "p", true, old)},
		}
		for kept, want := range map[int][]string{0: {"last"}, 1: nil} {
			p := ContainerPolicy{MaxPerContainer: kept, Max: -1}
			sel := selectContainers(inv, p, &sightings{}, now)
			equal(t, "removed", ids(sel.Remove), want)
			later := Moment{now.Boot + time.Second, now.Wall.Add(time.Second)}
			if kept == 0 {
				equal(t, "removed a second later", sortedIDs(selectContainers(inv, p, &sightings{}, later).Remove), []string{"last", "next"})
			}
		}
	})
	t.Run("an unknown one may run while its sandbox is ready, and is not the newest dead one", func(t *testing.T) {
		t.Parallel()
		inv := inventory{
			Containers: []cri.Container{
				with(container("unknown", "p", "c", old.Add(time.Hour)), func(c *cri.Container) { c.State, c.Attempt = cri.Unknown, 1 }),
				container("exited", "p", "c", old),
			},
			Sandboxes: []cri.Sandbox{sandbox("sb-p", "p", true, old), sandbox("sb-p-0", "p", false, old)},
		}
		for p, want := range map[ContainerPolicy][]string{none: {"exited"}, one: nil} {
			sel := selectContainers(inv, p, &sightings{}, now)
			equal(t, "removed", ids(sel.Remove), want)
			if got := why(sel.Keep, "unknown"); got != whyMayRun {
				t.Errorf("kept: %s", got)
			}
		}
	})
	t.Run("an attempt is newer than one before it, whatever the clock said", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{
			with(container("first", "p", "c", old.Add(time.Hour)), func(c *cri.Container) { c.Attempt = 0 }),
			with(container("second", "p", "c", old), func(c *cri.Container) { c.Attempt = 1 }),
		}}
		sel := selectContainers(inv, one, &sightings{}, now)
		equal(t, "removed", ids(sel.Remove), []string{"first"})
	})
	t.Run("a container of the same name in another pod is another one", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{container("a", "p", "c", old), container("b", "q", "c", old)}}
		equal(t, "removed", ids(selectContainers(inv, one, &sightings{}, now).Remove), nil)
	})
	t.Run("so is one in a pod of another name with the same UID, as of pods that were copied", func(t *testing.T) {
		t.Parallel()
		inv := inventory{
			Containers: []cri.Container{{ID: "a", SandboxID: "sb-a", Name: "c", State: cri.Exited, CreatedAt: old}, {ID: "b", SandboxID: "sb-b", Name: "c", State: cri.Exited, CreatedAt: old.Add(time.Second)}},
			Sandboxes:  []cri.Sandbox{{ID: "sb-a", UID: "copied", Name: "a", Ready: true}, {ID: "sb-b", UID: "copied", Name: "b", Ready: true}},
		}
		equal(t, "removed", ids(selectContainers(inv, one, &sightings{}, now).Remove), nil)
	})
	t.Run("surplus goes before the node's cap, and oldest first", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{
			container("p1", "p", "c", old.Add(time.Second)), container("p2", "p", "c", old.Add(9*time.Second)),
			container("q1", "q", "c", old), container("q2", "q", "c", old.Add(2*time.Second)),
			container("r1", "r", "c", old.Add(-time.Second)),
		}}
		sel := selectContainers(inv, ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 1, Max: 2}, &sightings{}, now)
		equal(t, "removed", ids(sel.Remove), []string{"q1", "p1", "r1"})
	})
	t.Run("of unknown age is young", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{
			container("untold", "p", "a", time.Time{}),
			container("future", "p", "b", now.Wall.Add(time.Hour)),
			container("1970", "p", "c", time.Unix(100, 0)),
		}}
		equal(t, "removed", ids(selectContainers(inv, none, &sightings{}, now).Remove), nil)
	})
	t.Run("unknown age counts from the first sight", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{container("1970", "p", "c", time.Unix(100, 0))}}
		var seen sightings
		seen.see(inv, now)
		later := Moment{now.Boot + 2*time.Minute, now.Wall}
		equal(t, "removed", ids(selectContainers(inv, none, &seen, later).Remove), []string{"1970"})
	})
	t.Run("a node that lives in 1970 has ages all the same", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{container("a", "p", "c", time.Unix(100, 0))}}
		then := Moment{time.Hour, time.Unix(3600, 0)}
		equal(t, "removed", ids(selectContainers(inv, none, &sightings{}, then).Remove), []string{"a"})
	})
	t.Run("a clock that leaps ages nothing that was seen", func(t *testing.T) {
		t.Parallel()
		inv := inventory{Containers: []cri.Container{container("a", "p", "c", now.Wall.Add(-time.Second))}}
		var seen sightings
		seen.see(inv, now)
		leapt := Moment{now.Boot + time.Second, now.Wall.Add(1000 * time.Hour)}
		equal(t, "removed", ids(selectContainers(inv, none, &seen, leapt).Remove), nil)
	})
}

// This checks which containers of a pod without signs of life are removed, and when.
func TestSelectContainersOfFinishedPods(t *testing.T) {
	t.Parallel()
	start := Moment{time.Hour, epoch.Add(24 * time.Hour)}
	policy := ContainerPolicy{MinAge: time.Second, MaxPerContainer: 1, Max: -1, Finished: true}
	dead := inventory{
		Containers: []cri.Container{container("a", "p", "c", epoch)},
		Sandboxes:  []cri.Sandbox{sandbox("sb-p", "p", false, epoch)},
	}
	alive := func(ready bool, state cri.State) inventory {
		return inventory{
			Containers: []cri.Container{dead.Containers[0], {ID: "b", SandboxID: "sb-p", Name: "d", State: state, CreatedAt: epoch}},
			Sandboxes:  []cri.Sandbox{sandbox("sb-p", "p", ready, epoch)},
		}
	}
	at := func(d time.Duration) Moment { return Moment{start.Boot + d, start.Wall.Add(d)} }

	t.Run("only after it was seen quiet for a minute, however short min_age", func(t *testing.T) {
		t.Parallel()
		var seen sightings
		seen.see(dead, start)
		equal(t, "at 59 s", ids(selectContainers(dead, policy, &seen, at(59*time.Second)).Remove), nil)
		equal(t, "at 60 s", ids(selectContainers(dead, policy, &seen, at(time.Minute)).Remove), []string{"a"})
		long := policy
		long.MinAge = time.Hour
		equal(t, "min_age is longer", ids(selectContainers(dead, long, &seen, at(59*time.Minute)).Remove), nil)
	})
	t.Run("of a kubelet that has not been seen alive, not while the runtime has just started", func(t *testing.T) {
		t.Parallel()
		after := policy
		after.returning = true
		var seen, lived, bare sightings
		seen.see(dead, start)
		equal(t, "pod of before", ids(selectContainers(dead, after, &seen, at(time.Hour)).Remove), nil)
		equal(t, "later", ids(selectContainers(dead, policy, &seen, at(time.Hour)).Remove), []string{"a"})
		lived.see(alive(true, cri.Running), start)
		lived.see(dead, start)
		equal(t, "one that was seen to end", ids(selectContainers(dead, after, &lived, at(time.Hour)).Remove), []string{"a"})
		own := inventory{Containers: slices.Clone(dead.Containers), Sandboxes: dead.Sandboxes}
		own.Containers[0].Labels = nil
		bare.see(own, start)
		equal(t, "without a kubelet", ids(selectContainers(own, after, &bare, at(time.Hour)).Remove), []string{"a"})
	})
	t.Run("never in quiet times", func(t *testing.T) {
		t.Parallel()
		var seen sightings
		seen.see(dead, start)
		quiet := policy
		quiet.Finished = false
		equal(t, "removed", ids(selectContainers(dead, quiet, &seen, at(time.Hour)).Remove), nil)
	})
	t.Run("never without having been seen", func(t *testing.T) {
		t.Parallel()
		equal(t, "removed", ids(selectContainers(dead, policy, &sightings{}, at(time.Hour)).Remove), nil)
	})
	for name, inv := range map[string]inventory{
		"a ready sandbox":                     alive(true, cri.Exited),
		"a container that runs":               alive(false, cri.Running),
		"a container whose state is not told": alive(false, cri.Unknown),
	} {
		t.Run("never with "+name, func(t *testing.T) {
			t.Parallel()
			var seen sightings
			seen.see(inv, start)
			if got := ids(selectContainers(inv, policy, &seen, at(time.Hour)).Remove); slices.Contains(got, "a") {
				t.Errorf("removed %q", got)
			}
		})
	}
	t.Run("a sign of life starts the wait anew", func(t *testing.T) {
		t.Parallel()
		var seen sightings
		seen.see(dead, start)
		seen.see(alive(true, cri.Running), at(30*time.Second))
		seen.see(dead, at(40*time.Second))
		equal(t, "at 99 s", ids(selectContainers(dead, policy, &seen, at(99*time.Second)).Remove), nil)
		equal(t, "at 100 s", ids(selectContainers(dead, policy, &seen, at(100*time.Second)).Remove), []string{"a"})
	})
}

// What stays of a sandbox that was ended needs no quiet time, and its containers may be young. What else stays is left alone.
func TestRemoveEnded(t *testing.T) {
	t.Parallel()
	now := Moment{time.Hour, epoch.Add(24 * time.Hour)}
	policy := ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 1, Max: -1, Finished: true}
	young := now.Wall.Add(-time.Second)
	for name, c := range map[string]struct {
		ended, ready bool
		state        cri.State // of another container in the sandbox
		want         []string
	}{
		"ended":                    {true, false, cri.Exited, []string{"a", "b"}},
		"not ended":                {false, false, cri.Exited, []string{}},
		"still ready":              {true, true, cri.Exited, []string{}},
		"one runs":                 {true, false, cri.Running, []string{}},
		"the state of one unknown": {true, false, cri.Unknown, []string{}},
	} {
		inv := inventory{
			Containers: []cri.Container{container("a", "p", "c", young), container("b", "p", "d", young), container("other", "q", "c", young)},
			Sandboxes:  []cri.Sandbox{sandbox("sb-p", "p", c.ready, epoch), sandbox("sb-q", "q", false, epoch)},
		}
		inv.Containers[1].State = c.state
		sel := selectContainers(inv, policy, &sightings{}, now)
		ended := map[string]time.Duration{}
		if c.ended {
			ended["sb-p"] = now.Boot
		}
		sel.removeEnded(inv, ended)
		equal(t, name, sortedIDs(sel.Remove), c.want)
		if !slices.ContainsFunc(sel.Keep, func(it Item) bool { return it.ID == "other" }) {
			t.Errorf("%s: kept %q", name, ids(sel.Keep))
		}
	}
}

// The same inventory in any order gives the same selection.
func TestSelectionsHaveATotalOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	now := Moment{time.Hour, epoch.Add(24 * time.Hour)}
	for range 200 {
		inv := randomInventory(rng)
		p := ContainerPolicy{time.Minute, rng.IntN(3) - 1, rng.IntN(10) - 1, rng.IntN(2) == 0, false}
		var seen sightings
		seen.see(inv, Moment{0, epoch})
		a, b := selectContainers(inv, p, &seen, now), selectSandboxes(inv, p, &seen, now)
		rng.Shuffle(len(inv.Containers), func(i, k int) {
			inv.Containers[i], inv.Containers[k] = inv.Containers[k], inv.Containers[i]
		})
		rng.Shuffle(len(inv.Sandboxes), func(i, k int) {
			inv.Sandboxes[i], inv.Sandboxes[k] = inv.Sandboxes[k], inv.Sandboxes[i]
		})
		c, d := selectContainers(inv, p, &seen, now), selectSandboxes(inv, p, &seen, now)
		equal(t, "containers removed", ids(c.Remove), ids(a.Remove))
		equal(t, "containers kept", ids(c.Keep), ids(a.Keep))
		equal(t, "sandboxes removed", ids(d.Remove), ids(b.Remove))
		equal(t, "sandboxes kept", ids(d.Keep), ids(b.Keep))
	}
}

// randomInventory returns a few pods with attempts in every state. Timestamps and names often collide.
func randomInventory(rng *rand.Rand) inventory {
	var inv inventory
	for p := range rng.IntN(5) {
		pod := fmt.Sprintf("p%d", p)
		for s := range rng.IntN(4) {
			b := sandbox(fmt.Sprintf("sb-%s-%d", pod, s), pod, rng.IntN(4) == 0, randomTime(rng))
			b.Attempt = uint32(rng.IntN(3))
			inv.Sandboxes = append(inv.Sandboxes, b)
		}
		for c := range rng.IntN(7) {
			ctr := container(fmt.Sprintf("c-%s-%d", pod, c), pod, fmt.Sprintf("n%d", rng.IntN(2)), randomTime(rng))
			ctr.SandboxID = fmt.Sprintf("sb-%s-%d", pod, rng.IntN(4))
			ctr.State = cri.State(rng.IntN(4))
			ctr.Attempt = uint32(rng.IntN(3))
			if rng.IntN(5) == 0 {
				ctr.Labels = nil
			}
			inv.Containers = append(inv.Containers, ctr)
		}
	}
	return inv
}

func randomTime(rng *rand.Rand) time.Time {
	if rng.IntN(8) == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(rng.IntN(5)) * time.Hour * 6)
}
