package inventory

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/config"

	"github.com/criguard/criguard/guard/config/configtest"
)

// heap returns the heap in use after garbage collection, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // free the objects that finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A tenant's annotations and labels must not take up criguard's locked memory: of 60 pods with 250 KiB each,
// less than 2 MiB stay. Annotations and labels that criguard uses are kept.
func TestMetadataIsBounded(t *testing.T) {
	const pods, size = 60, 250 << 10
	many := func(prefix string) map[string]string {
		all := map[string]string{}
		for i := range size / 256 {
			all[fmt.Sprintf("%s.example/%04d", prefix, i)] = strings.Repeat("x", 235)
		}
		return all
	}
	for name, fill := range map[string]func(*critest.PodSpec){
		"one annotation":            func(p *critest.PodSpec) { p.Annotations["note"] = strings.Repeat("x", size) },
		"many annotations":          func(p *critest.PodSpec) { maps.Copy(p.Annotations, many("note")) },
		"an annotation that counts": func(p *critest.PodSpec) { p.Annotations[config.AnnotationPriority] = strings.Repeat("1", size) },
		"many labels":               func(p *critest.PodSpec) { maps.Copy(p.Labels, many("app")) },
		"one label":                 func(p *critest.PodSpec) { p.Labels["app"] = strings.Repeat("x", size) },
		"a label that a rule names": func(p *critest.PodSpec) { p.Labels["zone"] = strings.Repeat("x", size) },
		"containers' annotations":   func(p *critest.PodSpec) { p.Containers[0].Annotations = many("note") },
		"containers' labels":        func(p *critest.PodSpec) { p.Containers[0].Labels = many("app") },
		"containers' mounts": func(p *critest.PodSpec) {
			for path := range many("mount") {
				p.Containers[0].Mounts = append(p.Containers[0].Mounts, cri.Mount{ContainerPath: "/" + path, HostPath: "/" + strings.Repeat("x", 220)})
			}
		},
		"containers' image volumes": func(p *critest.PodSpec) {
			for image := range many("image") {
				p.Containers[0].Mounts = append(p.Containers[0].Mounts, cri.Mount{ContainerPath: "/x", Image: image})
			}
			p.Containers[0].Mounts = append(p.Containers[0].Mounts, cri.Mount{ContainerPath: "/x", Image: strings.Repeat("x", size)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := critest.New(t, critest.Containerd2)
			for range pods {
				p := critest.PodSpec{
					Labels: map[string]string{"zzz-team": "payments"}, Annotations: map[string]string{config.AnnotationProtect: "true"},
					Containers: []critest.ContainerSpec{{}},
				}
				fill(&p)
				s.AddPod(p)
			}
			l := newTestLister(t, s, cgroup.Layout{})
			client, err := cri.Dial(s.Endpoint(), time.Minute) // 15 MiB take a while on a busy machine
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			l.opt.Source = func(context.Context) (Source, error) { return client, nil }
			l.cfg = configtest.Parse(t, "[annotations]\ntrusted_namespaces = ['default']\n[[priority]]\nlabels = {zzz-team = 'payments'}\nvalue = -7\n[[protect]]\nlabels = {zone = '*'}\n")
			before := heap()
			inv := l.List(t.Context())
			if inv.Err != nil || len(inv.Pods) != pods {
				t.Fatalf("%d pods, %v", len(inv.Pods), inv.Err)
			}
			if kept := heap() - before; kept > 2<<20 {
				t.Errorf("%d KiB stay in memory", kept>>10)
			}
			for _, p := range inv.Pods {
				if p.Protection != "annotation" || p.Priority != -7 {
					t.Fatalf("protection %q, priority %d", p.Protection, p.Priority)
				}
			}
			runtime.KeepAlive(l)
		})
	}
}

// Labels within the limit are all kept. Beyond it, the labels in use are kept, then others in name order.
func TestBoundLabels(t *testing.T) {
	few := map[string]string{"a": "1", "b": strings.Repeat("x", 1000)}
	if got := boundLabels(few, nil); !maps.Equal(got, few) {
		t.Errorf("kept %d of few", len(got))
	}
	many := map[string]string{"pod-template-hash": "5d", "zone": "z", "huge": strings.Repeat("x", 64<<10)}
	for i := range 1000 {
		many[fmt.Sprintf("l%04d", i)] = strings.Repeat("x", 95)
	}
	want := boundLabels(many, map[string]bool{"zone": true, "absent": true})
	if want["zone"] != "z" || want["pod-template-hash"] != "5d" || want["l0000"] == "" || want["l0999"] != "" || want["huge"] != "" {
		t.Errorf("kept %d labels, the wrong ones", len(want))
	}
	if size := labelsSize(want); size > maxLabels+1<<10 || size < maxLabels/2 {
		t.Errorf("kept %d bytes, bound is %d", size, maxLabels)
	}
	if _, ok := want["absent"]; ok {
		t.Error("a label that the pod does not have is kept")
	}
	for range 10 {
		if got := boundLabels(maps.Clone(many), map[string]bool{"zone": true}); !maps.Equal(got, want) {
			t.Fatal("kept others the next time")
		}
	}
}
