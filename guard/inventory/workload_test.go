package inventory

import "testing"

func TestWorkload(t *testing.T) {
	for _, v := range []struct {
		name   string
		labels map[string]string
		want   string
	}{
		{"web-7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "web"},
		{"web-7d4b9c6f5-x2k9z", nil, "web-7d4b9c6f5-x2k9z"},
		{"web-7d4b9c6f5-x2k9z", map[string]string{"app": "web"}, "web-7d4b9c6f5-x2k9z"},
		{"web-7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "other"}, "web-7d4b9c6f5-x2k9z"},
		{"web7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "web7d4b9c6f5-x2k9z"},
		{"-7d4b9c6f5-x2k9z", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "-7d4b9c6f5-x2k9z"},
		{"agent-x2k9z", map[string]string{"controller-revision-hash": "5b8"}, "agent"},
		{"agent-x2k9", map[string]string{"controller-revision-hash": "5b8"}, "agent-x2k9"},
		{"agent-X2k9z", map[string]string{"controller-revision-hash": "5b8"}, "agent-X2k9z"},
		{"-x2k9z", map[string]string{"controller-revision-hash": "5b8"}, "-x2k9z"},
		{"db-0", map[string]string{"controller-revision-hash": "db-5b8"}, "db-0"},
		{"db-10000", map[string]string{"controller-revision-hash": "db-5b8", "statefulset.kubernetes.io/pod-name": "db-10000"}, "db-10000"},
		{"backup-x2k9z", map[string]string{"job-name": "backup"}, "backup"},
		{"backup-28391-x2k9z", map[string]string{"batch.kubernetes.io/job-name": "backup-28391", "job-name": "backup-28391"}, "backup-28391"},
		{"backup-3-x2k9z", map[string]string{"batch.kubernetes.io/job-name": "backup"}, "backup-3"},
		{"restore-x2k9z", map[string]string{"job-name": "backup"}, "restore-x2k9z"},
		{"solo", map[string]string{"pod-template-hash": "7d4b9c6f5"}, "solo"},
		{"", nil, ""},
	} {
		if got, want := Workload("ns", v.name, v.labels), "ns/"+v.want; got != want {
			t.Errorf("%q with %v is %q, want %q", v.name, v.labels, got, want)
		}
	}
}
