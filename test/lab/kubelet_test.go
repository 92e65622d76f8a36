package lab

import (
	"regexp"
	"testing"
	"time"
)

func TestQoSOf(t *testing.T) {
	for _, test := range []struct {
		name       string
		containers []ContainerSpec
		want       QoS
	}{
		{"no containers", nil, BestEffort},
		{"nothing named", []ContainerSpec{{}, {}}, BestEffort},
		{"limit alone", []ContainerSpec{{MemoryLimit: 5}}, Guaranteed},
		{"limit is request", []ContainerSpec{{MemoryLimit: 5, MemoryRequest: 5}}, Guaranteed},
		{"limit above request", []ContainerSpec{{MemoryLimit: 6, MemoryRequest: 5}}, Burstable},
		{"request alone", []ContainerSpec{{MemoryRequest: 5}}, Burstable},
		{"one of two", []ContainerSpec{{MemoryLimit: 5}, {}}, Burstable},
	} {
		if got := qosOf(test.containers); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestPodCgroup(t *testing.T) {
	for qos, want := range map[QoS]string{Guaranteed: "podU", Burstable: "burstable/podU", BestEffort: "besteffort/podU"} {
		if got := podCgroup(qos, "U"); got != want {
			t.Errorf("%s: got %s, want %s", qos, got, want)
		}
	}
}

func TestOOMScoreAdj(t *testing.T) {
	for _, test := range []struct {
		name     string
		qos      QoS
		critical bool
		request  int64
		want     int64
	}{
		{"best effort", BestEffort, false, 0, 1000},
		{"guaranteed", Guaranteed, false, 4000, -997},
		{"critical", Burstable, true, 0, -997},
		{"nothing requested", Burstable, false, 0, 999},
		{"under one thousandth", Burstable, false, 3, 999},
		{"a quarter", Burstable, false, 1000, 750},
		{"all", Burstable, false, 4000, 3},
		{"more than all", Burstable, false, 9000, 3},
	} {
		if got := oomScoreAdj(test.qos, test.critical, test.request, 4000); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

func TestNewUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	first, second := newUID(), newUID()
	if !form.MatchString(first) || first == second {
		t.Errorf("got %s and %s", first, second)
	}
}

func TestKubeletMetadata(t *testing.T) {
	spec := PodSpec{
		Namespace: "ns", Name: "p", UID: "u",
		Labels:      map[string]string{"app": "x"},
		Annotations: map[string]string{"kubernetes.io/config.source": "file"},
	}
	if got := podLabels(spec); len(got) != 4 || got["app"] != "x" || got["io.kubernetes.pod.uid"] != "u" {
		t.Errorf("pod labels: %v", got)
	}
	if len(spec.Labels) != 1 {
		t.Errorf("the caller's labels were changed: %v", spec.Labels)
	}
	if got := podAnnotations(spec, epoch); got["kubernetes.io/config.source"] != "file" || got["kubernetes.io/config.seen"] == "" {
		t.Errorf("pod annotations: %v", got)
	}
	if got := containerLabels(spec, ContainerSpec{Name: "c"}); len(got) != 4 || got["io.kubernetes.container.name"] != "c" {
		t.Errorf("container labels: %v", got)
	}
	spec.Bare = true
	if got := podLabels(spec); len(got) != 1 {
		t.Errorf("labels of a bare pod: %v", got)
	}
	if got := podAnnotations(spec, epoch); len(got) != 1 {
		t.Errorf("annotations of a bare pod: %v", got)
	}
}

var epoch = time.Unix(0, 0)
