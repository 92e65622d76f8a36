package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

type table = map[string]string

// asTables returns tables of thresholds in TOML.
func asTables(hard, soft, grace, minReclaim table) string {
	var b strings.Builder
	for i, entries := range []table{hard, soft, grace, minReclaim} {
		fmt.Fprintf(&b, "[%s]\n", []string{TableHard, TableSoft, TableGrace, TableMinReclaim}[i])
		for _, name := range sortedKeys(entries) {
			fmt.Fprintf(&b, "%q = %q\n", name, entries[name])
		}
	}
	return b.String()
}

// The kubelet's cases of parsing thresholds.
func TestVectorsA(t *testing.T) {
	hard := func(s policy.Signal, value, least policy.Quantity) policy.Threshold {
		return policy.Threshold{Signal: s, Value: value, MinReclaim: least}
	}
	soft := func(s policy.Signal, value, least policy.Quantity) policy.Threshold {
		return policy.Threshold{Signal: s, Kind: policy.Soft, Value: value, Grace: 30 * time.Second, MinReclaim: least}
	}
	const mi, gi = 1 << 20, 1 << 30
	b, p := func(n int64) policy.Quantity { return policy.Bytes(n * mi) }, func(s string) policy.Quantity { return mustQuantity(t, s) }
	for _, v := range []struct {
		id                     string
		hard, soft, grace, min table
		allocatable            bool
		want                   []policy.Threshold
		err                    string
	}{
		{id: "A1"},
		{
			id: "A2", hard: table{"memory.available": "150Mi"}, soft: table{"memory.available": "300Mi"},
			grace: table{"memory.available": "30s"}, min: table{"memory.available": "0"}, allocatable: true,
			want: []policy.Threshold{
				hard(policy.MemoryAvailable, b(150), policy.Bytes(0)),
				hard(policy.AllocatableMemoryAvailable, b(150), policy.Bytes(0)),
				soft(policy.MemoryAvailable, b(300), policy.Bytes(0)),
			},
		},
		{
			id: "A3", hard: table{"memory.available": "10%"}, soft: table{"memory.available": "30%"},
			grace: table{"memory.available": "30s"}, min: table{"memory.available": "5%"},
			want: []policy.Threshold{hard(policy.MemoryAvailable, p("10%"), p("5%")), soft(policy.MemoryAvailable, p("30%"), p("5%"))},
		},
		{
			id:   "A4",
			hard: table{"imagefs.available": "150Mi", "nodefs.available": "100Mi"}, soft: table{"imagefs.available": "300Mi", "nodefs.available": "200Mi"},
			grace: table{"imagefs.available": "30s", "nodefs.available": "30s"}, min: table{"imagefs.available": "2Gi", "nodefs.available": "1Gi"},
			want: []policy.Threshold{
				hard(policy.NodeFSAvailable, b(100), policy.Bytes(gi)), hard(policy.ImageFSAvailable, b(150), policy.Bytes(2*gi)),
				soft(policy.NodeFSAvailable, b(200), policy.Bytes(gi)), soft(policy.ImageFSAvailable, b(300), policy.Bytes(2*gi)),
			},
		},
		{
			id:   "A5",
			hard: table{"imagefs.available": "15%", "nodefs.available": "10.5%"}, soft: table{"imagefs.available": "30%", "nodefs.available": "20.5%"},
			grace: table{"imagefs.available": "30s", "nodefs.available": "30s"}, min: table{"imagefs.available": "10%", "nodefs.available": "5%"},
			want: []policy.Threshold{
				hard(policy.NodeFSAvailable, p("10.5%"), p("5%")), hard(policy.ImageFSAvailable, p("15%"), p("10%")),
				soft(policy.NodeFSAvailable, p("20.5%"), p("5%")), soft(policy.ImageFSAvailable, p("30%"), p("10%")),
			},
		},
		{
			id:   "A6",
			hard: table{"imagefs.inodesFree": "150Mi", "nodefs.inodesFree": "100Mi"}, soft: table{"imagefs.inodesFree": "300Mi", "nodefs.inodesFree": "200Mi"},
			grace: table{"imagefs.inodesFree": "30s", "nodefs.inodesFree": "30s"}, min: table{"imagefs.inodesFree": "2Gi", "nodefs.inodesFree": "1Gi"},
			want: []policy.Threshold{
				hard(policy.NodeFSInodesFree, b(100), policy.Bytes(gi)), hard(policy.ImageFSInodesFree, b(150), policy.Bytes(2*gi)),
				soft(policy.NodeFSInodesFree, b(200), policy.Bytes(gi)), soft(policy.ImageFSInodesFree, b(300), policy.Bytes(2*gi)),
			},
		},
		{id: "A7", hard: table{"memory.available": "0%"}, soft: table{"memory.available": "0%"}},
		{id: "A8", hard: table{"memory.available": "100%"}, soft: table{"memory.available": "100%"}},
		{id: "A9", hard: table{"mem.available": "150Mi"}, err: `eviction.hard."mem.available" = "150Mi": unknown signal (hint: did you mean "memory.available"?)`},
		{id: "A10", hard: table{"memory.available": "-150Mi"}, err: `eviction.hard."memory.available" = "-150Mi": must not be negative`},
		{id: "A11", hard: table{"memory.available": "-15%"}, err: `eviction.hard."memory.available" = "-15%": must not be negative`},
		{id: "A12", hard: table{"memory.available": "150%"}, err: `eviction.hard."memory.available" = "150%": must not be above 100%`},
		{id: "A13", soft: table{"memory.available": "-150Mi"}, err: `eviction.soft."memory.available" = "-150Mi": must not be negative`},
		{id: "A14", hard: table{"memory.available": "150Mi", "invalid.foo": "150Mi"}, err: `eviction.hard."invalid.foo" = "150Mi": unknown signal (hint: signals are memory.available, `},
		{id: "A15", soft: table{"memory.available": "150Mi"}, err: `eviction.soft_grace_period."memory.available": must be set for a soft threshold (hint: as "1m30s")`},
		{id: "A16", soft: table{"memory.available": "150Mi"}, grace: table{"memory.available": "-30s"}, err: `eviction.soft_grace_period."memory.available" = "-30s": must not be negative`},
		{id: "A17", min: table{"memory.available": "-300Mi"}, err: `eviction.minimum_reclaim."memory.available" = "-300Mi": must not be negative`},
		{id: "A18", hard: table{"memory.available": "0"}, err: `eviction.hard."memory.available" = "0": must be above 0 (hint: "0%" or "100%" switches a threshold off)`},
		{id: "A19", min: table{"memory.available": "0%"}, err: `eviction.minimum_reclaim."memory.available" = "0%": must be above 0% (hint: "0" asks for no minimum)`},
	} {
		t.Run(v.id, func(t *testing.T) {
			text := asTables(v.hard, v.soft, v.grace, v.min)
			if v.err != "" {
				got := mistakesIn(t, text)
				if line := got[0].Error(); len(got) != 1 || !strings.HasPrefix(line[strings.Index(line, " ")+1:], v.err) {
					t.Errorf("mistakes %v, want %q alone", got, v.err)
				}
				return
			}
			got := goodConfig(t, text).Eviction.Thresholds
			got = slices.DeleteFunc(got, func(th policy.Threshold) bool {
				name := th.Signal.String()
				return v.hard[name] == "" && v.soft[name] == "" // a default
			})
			if v.allocatable {
				got = policy.Derive(got, policy.SingleFS, true)
			}
			if !slices.Equal(got, v.want) {
				t.Errorf("got %v, want %v", got, v.want)
			}
		})
	}
}

// More thresholds that are allowed.
func TestThresholdsAllowed(t *testing.T) {
	for _, v := range []struct {
		name                   string
		hard, soft, grace, min table
	}{
		{name: "soft grace 0", soft: table{"pid.available": "5%"}, grace: table{"pid.available": "0s"}},
		{name: "a stall with its minimum", hard: table{"io.stall": "80%"}, min: table{"io.stall": "10%"}},
		{name: "a target of everything", hard: table{"memory.available": "60%"}, min: table{"memory.available": "40%"}},
		{name: "a target of everything, in fractions", hard: table{"memory.available": "33.333333333%"}, min: table{"memory.available": "66.666666667%"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			all := goodConfig(t, asTables(v.hard, v.soft, v.grace, v.min)).Eviction.Thresholds
			for kind, want := range []table{policy.Hard: v.hard, policy.Soft: v.soft} {
				for name, value := range want {
					if !slices.ContainsFunc(all, func(th policy.Threshold) bool {
						return th.Signal.String() == name && th.Kind == policy.Kind(kind) && th.Value.String() == value
					}) {
						t.Errorf("%v lacks %s", all, name)
					}
				}
			}
		})
	}
}

// More mistakes than the vectors have, and all of them at once.
func TestThresholdMistakes(t *testing.T) {
	for _, v := range []struct {
		name                   string
		hard, soft, grace, min table
		want                   []string // key: rule
	}{
		{name: "grace of an unknown signal", grace: table{"pids": "1m"}, want: []string{`eviction.soft_grace_period.pids: unknown signal`}},
		{name: "no duration", soft: table{"pid.available": "5%"}, grace: table{"pid.available": "soon"}, want: []string{`eviction.soft_grace_period."pid.available": must be a duration`}},
		{name: "negative duration", soft: table{"pid.available": "5%"}, grace: table{"pid.available": "-1s"}, want: []string{`eviction.soft_grace_period."pid.available": must not be negative`}},
		{name: "a stall is a share", hard: table{"io.stall": "80%"}, min: table{"io.stall": "1Mi"}, want: []string{`eviction.minimum_reclaim."io.stall": must be a percentage`}},
		{
			name: "a target above everything", hard: table{"memory.available": "60%"}, min: table{"memory.available": "40.000000001%"},
			want: []string{`eviction.minimum_reclaim."memory.available": must leave the threshold attainable`},
		},
		{
			name: "all at once", hard: table{"memory.available": "-1", "pid.available": "101%", "x": "1"}, soft: table{"nodefs.available": "10%", "imagefs.available": "10%"},
			grace: table{"imagefs.available": "-1s"}, min: table{"memory.available": "0%"},
			want: []string{
				`eviction.hard."memory.available": must not be negative`, `eviction.hard."pid.available": must not be above 100%`, `eviction.hard.x: unknown signal`,
				`eviction.soft_grace_period."nodefs.available": must be set for a soft threshold`,
				`eviction.soft_grace_period."imagefs.available": must not be negative`, `eviction.minimum_reclaim."memory.available": must be above 0%`,
			},
		},
	} {
		t.Run(v.name, func(t *testing.T) {
			var got []string
			for _, e := range mistakesIn(t, asTables(v.hard, v.soft, v.grace, v.min)) {
				got = append(got, e.Key+": "+e.Rule)
			}
			if !slices.Equal(got, v.want) {
				t.Errorf("got %q, want %q", got, v.want)
			}
		})
	}
}
