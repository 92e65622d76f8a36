package lab

import (
	"os"
	"strings"
	"testing"
)

// What runs in a room sees the room: Debian's own programs, its processes and files.
func TestRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	room, err := OpenRoom(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer room.Close()
	if err := os.WriteFile(room.Path("/tmp/hello"), []byte("hello "), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(room.Path("/tmp/hello"))
	out, err := room.Command(t.Context(), "sh", "-ec", "cat /tmp/hello /proc/1/comm; ! test -e "+room.dir+"; dpkg --audit; echo fine >/dev/null").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "hello sh" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := room.Command(t.Context(), "false").Output(); err == nil {
		t.Error("a program's failure is not told")
	}
}
