package etcd

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	k := keysOf("edge-eu")
	for got, want := range map[string]string{
		k.member("ring-1", "n1"): "/criguard/v1/edge-eu/m/ring-1/n1",
		k.want("ring-1", "n1"):   "/criguard/v1/edge-eu/u/ring-1/n1",
		k.member("", "n1"):       "/criguard/v1/edge-eu/m//n1",
		k.zoneSlot("ring-1"):     "/criguard/v1/edge-eu/s/ring-1",
		k.zoneSlot(""):           "/criguard/v1/edge-eu/s/",
		k.settling():             "/criguard/v1/edge-eu/settling",
		k.pause():                "/criguard/v1/edge-eu/policy/pause",
		k.rates():                "/criguard/v1/edge-eu/policy/rates",
		// printf %s shop/web | sha256sum
		k.workloadSlot("shop/web"): "/criguard/v1/edge-eu/w/97375646b1deb3d2d5c406cd15750035f52a38beb24211ed2dd66e8824bf15f9",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if end := prefixEnd("a/"); end != "a0" {
		t.Errorf("the end of a/ is %s", end)
	}
}

func FuzzSplitNode(f *testing.F) {
	const prefix = "/criguard/v1/f/m/"
	for _, key := range []string{"", prefix, prefix + "z/n", prefix + "/n", prefix + "z/", prefix + "z/n/x", "/registry/pods"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		zone, node, ok := splitNode(prefix, key)
		if ok != (ok && prefix+zone+"/"+node == key && node != "" && !strings.Contains(zone+node, "/")) {
			t.Errorf("%q: %q, %q", key, zone, node)
		}
		rest, has := strings.CutPrefix(key, prefix)
		if want := has && strings.Count(rest, "/") == 1 && !strings.HasSuffix(rest, "/"); ok != want {
			t.Errorf("%q: %v, want %v", key, ok, want)
		}
	})
}
