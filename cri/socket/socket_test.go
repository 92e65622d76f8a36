package socket

import "testing"

// Each spelling of an endpoint has the same path. Other schemes and relative paths are no endpoints.
func TestPath(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/a.sock": "/run/a.sock", "unix:/run/a.sock": "/run/a.sock", "/run/a.sock": "/run/a.sock",
		"": "", "run/a.sock": "", "unix://run/a.sock": "", "unix:run/a.sock": "", "unix:": "", "tcp://a": "", "tcp:///a": "", "npipe:////./pipe/a": "", "/a\x00": "",
	} {
		if got, err := Path(endpoint); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", endpoint, got, err, want)
		}
	}
}
