package fleetcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/test/certs"
)

// A certificate that expires within 30 days is worth a warning. Of several authorities, the last counts: an old one stays in the file
// while certificates are renewed.
func TestCheckWarnsBeforeExpiry(t *testing.T) {
	a, err := certs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	issue := func(name string, validity time.Duration) fleet.TLS {
		files, err := a.Issue(name, validity)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	soon, late := issue("soon", renewal-day), issue("late", renewal+day)
	end, _, err := etcd.Expiry(soon)
	if err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "both.crt")
	var text []byte
	for _, file := range []string{soon.Cert, late.Cert} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	if err := os.WriteFile(both, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		files fleet.TLS
		want  string
	}{
		{"nothing", late, ""},
		{"the certificate", soon, soon.Cert},
		{"the authority", fleet.TLS{CA: soon.Cert, Cert: late.Cert, Key: late.Key}, soon.Cert},
		{"the older authority", fleet.TLS{CA: both, Cert: late.Cert, Key: late.Key}, ""},
		{"plain text", fleet.TLS{Insecure: true}, ""},
	} {
		var check Check
		check.warnExpiry(c.files, time.Now())
		got := strings.Join(check.Warnings, "\n")
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s expires soon: %q", c.name, got)
		}
		if date := end.UTC().Format(time.DateOnly); got != "" && !strings.Contains(got, date) {
			t.Errorf("%s: %q, want the date %s", c.name, got, date)
		}
	}
}
