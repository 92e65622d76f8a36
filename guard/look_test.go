package guard

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
)

// Looking at images and planning a prune do not change the ledger's file.
func TestLookWritesNoLedger(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	nodetest.AddUnusedImage(srv)
	dir := nodetest.Files(t, map[string]string{"images.json": "damaged"})
	path := filepath.Join(dir, "images.json")
	l := Look{host: connectedNode(t, srv, "history.dir = '"+dir+"'")}
	if _, err := l.Images(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reports, err := l.Prune(t.Context(), api.PruneOptions{Containers: true, Images: true, DryRun: true}); err != nil || len(reports) == 0 {
		t.Fatalf("%+v, %v", reports, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files: %v, %v", entries, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "damaged" {
		t.Errorf("the ledger is %q, %v", b, err)
	}
	if _, err := l.Prune(t.Context(), api.PruneOptions{Images: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Errorf("a prune sets a damaged ledger aside: %v", err)
	}
}

// The notes name what is not there on this node: an endpoint, directories, a cgroup, pods of a rule.
func TestLookNotes(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Namespace: "monitoring", Name: "a"})
	const protect = "\n[[protect]]\nnamespace = 'monitoring'\n[[protect]]\nnamespace = 'monitorign'\n"
	base := nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'"+protect)
	for _, c := range []struct{ text, want string }{
		{base, "protect rule 2 matches no pod that runs now"},
		{nodetest.Config(t, "runtime.endpoint = '/none'"+protect), "without an answer of the runtime, the thresholds of its filesystems and the protect rules were not checked"},
		{nodetest.Config(t, "runtime.endpoint = '/none'"+protect), `runtime.endpoint = "/none" does not answer: no container runtime answers: find runtime: runtime is not reachable: no socket /none`},
		{nodetest.Config(t, "node.pods_cgroup = '/nope'"), `node.pods_cgroup = "/nope" does not exist`},
		{nodetest.Config(t, "fleet.enabled = true"), "fleet.enabled = true, and the fleet's agent has no socket (hint: systemctl enable --now criguard-fleet.socket)"},
		{nodetest.Config(t, "metrics.textfile = '/nonexistent/x.prom'"), `the directory of metrics.textfile = "/nonexistent" does not exist`},
	} {
		l, err := OpenLook(t.Context(), configtest.Parse(t, c.text))
		if err != nil {
			t.Fatal(err)
		}
		notes := l.Notes()
		l.Close()
		if !slices.Contains(notes, c.want) || slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "protect rule 1") }) {
			t.Errorf("%q, want %q", notes, c.want)
		}
	}
	cfg := configtest.Parse(t, base)
	cfg.Node.RootDir, cfg.Node.PodLogDir = "/nonexistent/a", "/nonexistent/b"
	nodetest.Write(t, cfg.Node.Sys, map[string]string{"fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n"}) // as in a container
	l, err := OpenLook(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, want := range []string{
		`node.root_dir = "/nonexistent/a" does not exist`, `node.pod_log_dir = "/nonexistent/b" does not exist`,
		"this node is in a cgroup with a memory limit of 2Gi, which no threshold covers (hint: limit the pods' cgroup, too)",
	} {
		if notes := l.Notes(); !slices.Contains(notes, want) {
			t.Errorf("%q, want %q", notes, want)
		}
	}
}

// Without a service, no window of a stall has passed: its ranking says so.
func TestLookRanksStall(t *testing.T) {
	h := connectedNode(t, critest.New(t, critest.Containerd2))
	l := &Look{host: h, guard: eviction.New(h.config(), h.kernel, h, nil, nil, nil, policy.NewRestraint(h.bootID))}
	l.Refresh(t.Context())
	for signal, want := range map[policy.Signal]string{
		policy.MemoryStall: "not measured yet", policy.SwapAvailable: "the node does not have it", policy.MeminfoAvailable: "",
	} {
		if r, err := l.Rank(t.Context(), signal); err != nil || r.Unmeasured != want || (r.Capacity == 0) != (want != "") {
			t.Errorf("%s: %+v, %v", signal, r, err)
		}
	}
}

// A direct look at a guarded node leaves the pods alone that operators protect there.
func TestLookProtects(t *testing.T) {
	server := critest.New(t, critest.Containerd2)
	pod := server.AddPod(critest.PodSpec{})
	server.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: 1000})
	h := connectedNode(t, server)
	l := &Look{host: h, guard: eviction.New(h.config(), h.kernel, h, nil, nil, nil, policy.NewRestraint(h.bootID))}
	l.Refresh(t.Context())
	const why = api.ProtectedBy + "root until 10:00:00"
	l.Protect(map[string]string{"default/pod-1": why})
	r, err := l.Rank(t.Context(), policy.NodeFSAvailable)
	if err != nil || len(r.Pods) != 1 || r.Pods[0].Excluded != why || r.Pods[0].Position != 0 {
		t.Errorf("%+v, %v", r.Pods, err)
	}
}
