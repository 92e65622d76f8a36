package guard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/simulate"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// listedBy lists the pods of a test server, classified without a node.
func listedBy(t *testing.T, s *critest.Server) []inventory.Pod {
	t.Helper()
	return listedWith(t, s, config.Default())
}

func listedWith(t *testing.T, s *critest.Server, cfg config.Config) []inventory.Pod {
	t.Helper()
	client, err := cri.Dial(s.Endpoint(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return inventory.New(inventory.Options{
		Config: cfg, Source: func(context.Context) (inventory.Source, error) { return client, nil },
		Capacity: func() int64 { return 16 << 30 }, Now: func() time.Duration { return time.Hour }, Clock: time.Now,
	}).List(t.Context()).Pods
}

// A Guaranteed pod whose limit the runtime does not report ranks after a small pod above its request. Its
// request is shown as unknown, in a trace as well.
func TestGuaranteedWithoutReportedLimit(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	quiet := s.AddPod(critest.PodSpec{QoS: "Guaranteed", Containers: []critest.ContainerSpec{{OOMScoreAdj: -997}}})
	small := s.AddPod(critest.PodSpec{QoS: "BestEffort", Containers: []critest.ContainerSpec{{}}})
	pods := listedBy(t, s)
	cs := inventory.Candidates(pods)
	for i := range cs {
		cs[i].Memory = policy.Known(map[string]int64{quiet.ID: 6 << 30, small.ID: 4 << 20}[cs[i].ID])
	}
	ranked := policy.Rank(cs, policy.MemoryAvailable, policy.SingleFS, nil)
	views := eviction.RankedViews(&policy.Decision{Ranked: ranked}, pods)
	if views[0].Sandbox != small.ID || views[1].Over || views[1].RequestSource != api.SourceUnknown || views[1].Request != 0 {
		t.Fatalf("ranked %+v", views)
	}
	if got := views[1].FormatRequest(policy.MemoryAvailable); got != "unknown" {
		t.Errorf("its request is shown as %q", got)
	}
	if got := views[1].FormatRequest(policy.NodeFSAvailable); got != "0" {
		t.Errorf("its storage request is shown as %q", got)
	}
	p := inventory.ByID(pods, quiet.ID)
	line := trace.PodOf(p, &p.Candidate, 0)
	if line.MemoryRequest != nil {
		t.Errorf("a trace has a request of %d", *line.MemoryRequest)
	}
	n := simulate.NewNode(config.Default())
	n.Advance(trace.Line{Pods: []trace.Pod{line}})
	if got := n.Inventory(t.Context(), 0).Pods[0]; got.RequestSource != api.SourceUnknown {
		t.Errorf("the trace's pod has a request from %q", got.RequestSource)
	}
}

// The inventory and the API use the same word for a request that no source reports.
func TestSourceUnknown(t *testing.T) {
	if inventory.SourceUnknown != api.SourceUnknown {
		t.Errorf("%q and %q", inventory.SourceUnknown, api.SourceUnknown)
	}
}

// The trace of a critical pod has the priority that makes the pod critical.
func TestTraceOfCriticalPod(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{})
	s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: -997})
	pods := listedBy(t, s)
	if line := trace.PodOf(&pods[0], &pods[0].Candidate, 0); line.Priority == nil || *line.Priority != 2_000_001_000 {
		t.Errorf("a trace of it: %+v", line)
	}
}

// A trace has a pod's annotations, as they win over the rules of any configuration, and nothing of the recorder's own rules.
func TestTraceOfRules(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	annotated := map[string]string{config.AnnotationPriority: "7", config.AnnotationProtect: "true", config.AnnotationStorage: "3Gi"}
	for name, annotations := range map[string]map[string]string{"a": annotated, "b": nil} {
		pod := s.AddPod(critest.PodSpec{Namespace: "ops", Name: name, Annotations: annotations})
		s.AddContainer(pod.ID, critest.ContainerSpec{})
	}
	rules := func(limit, priority, trusted string) config.Config {
		c, err := config.Parse("rules.toml", strings.NewReader(`annotations.trusted_namespaces = [`+trusted+`]
[[limit]]
namespace = "*"
ephemeral_storage = "`+limit+`"
[[priority]]
namespace = "*"
value = `+priority))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	type facts struct {
		priority, limit int64
		protection      string
	}
	recorder := rules("1Gi", "1", `"ops"`)
	for _, c := range []struct {
		name string
		cfg  config.Config
		want map[string]facts
	}{
		{"no rules", config.Default(), map[string]facts{"a": {}, "b": {}}},
		{"the namespace is not trusted", rules("2Gi", "2", ""), map[string]facts{"a": {2, 2 << 30, ""}, "b": {2, 2 << 30, ""}}},
		{"it is", rules("2Gi", "2", `"ops"`), map[string]facts{"a": {7, 3 << 30, inventory.ProtectedAnnotation}, "b": {2, 2 << 30, ""}}},
	} {
		line := trace.Line{}
		pods := listedWith(t, s, recorder)
		for i := range pods {
			line.Pods = append(line.Pods, trace.PodOf(&pods[i], &pods[i].Candidate, 0))
		}
		n := simulate.NewNode(c.cfg)
		n.Advance(line)
		for _, p := range n.Inventory(t.Context(), 0).Pods {
			if got := (facts{p.Priority, p.StorageLimit, p.Protection}); got != c.want[p.Name] {
				t.Errorf("%s: %s has %+v, want %+v", c.name, p.Name, got, c.want[p.Name])
			}
		}
	}
}
