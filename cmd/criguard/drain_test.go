package main

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/guard"
)

func TestConfirmed(t *testing.T) {
	for answer, want := range map[string]bool{
		"y\n": true, "Yes\n": true, " yes \n": true, "": false, "\n": false, "n\n": false, "yesterday\n": false, "no\ny\n": false,
	} {
		var out strings.Builder
		if got := confirmed(strings.NewReader(answer), &out, 7); got != want || !strings.Contains(out.String(), "Stop 7 sandboxes") {
			t.Errorf("%q: %t, after %q", answer, got, out.String())
		}
	}
}

func TestPrintPlan(t *testing.T) {
	var out strings.Builder
	printPlan(&out, guard.CommandAnswer{Message: "would stop 1 sandboxes", Plan: &guard.DrainPlan{Pods: []guard.DrainPod{
		{Pod: "d/a", Priority: -10, QoS: "BestEffort", Grace: 3e9}, {Pod: "kube-system/k", QoS: "Burstable", Stays: "namespace kube-system"},
	}}})
	want := `POD            PRIORITY  QOS         GRACE  
d/a            -10       BestEffort  3s     stop
kube-system/k  0         Burstable   -      stays: namespace kube-system
would stop 1 sandboxes
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
