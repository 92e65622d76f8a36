package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/need"
)

var hexID = regexp.MustCompile(`^[0-9a-f]{32}$`)

func TestEventsHaveOneIDEach(t *testing.T) {
	seen := map[string]Event{}
	for e := range messageIDs {
		id := e.MessageID()
		if !hexID.MatchString(id) {
			t.Errorf("%s: message ID %q", e, id)
		}
		if other, twice := seen[id]; twice {
			t.Errorf("%s and %s have the same message ID", e, other)
		}
		seen[id] = e
	}
	if id := Event("no such event").MessageID(); id != "" {
		t.Errorf("an unknown event has message ID %q", id)
	}
}

// An ID is an interface: other people's filters and alerts contain it.
func TestEventIDsStay(t *testing.T) {
	for event, want := range map[Event]string{
		EventStart:         "974a8d3e51dda36a00c9992635360e95",
		EventShutdown:      "bc2e566b4735b203283b595271ce33d3",
		EventCondition:     "a4a2680fa09b762d67f06c762bd9a1bf",
		EventReclaim:       "2e8129bbfab8d9cf3ad7174338b6cf5b",
		EventStopBegin:     "4261ac454eb477c647c8bf42bd53bad0",
		EventStopDone:      "ad003abdc152d97ccb6685fcd99af2ee",
		EventStopFailed:    "80f087bd85beeec243aeeb157a3efaef",
		EventHeld:          "0337ded2dff94ef0965732110a7eb8ad",
		EventAlarm:         "8f3717019404ee85c91d227ef12ebb25",
		EventRuntimeDown:   "3f149438c170820bf4512d366be3be16",
		EventRuntimeUp:     "51a0406eb8ce24a3d905ba952a251b7d",
		EventSignalAbsent:  "e7f781823a7ca55b63db19d8d2785018",
		EventSignalBack:    "cab6bd5618184c0bac1dfa231bfc3537",
		EventConfigReload:  "72eedf6b7b89db4fb5333b38005a33e9",
		EventConfigRefused: "9d5907ac193188cbd901c3aeb2dabd80",
		EventCommand:       "a1a926cb3a494f5b9bc01b05539999e9",
		EventHook:          "faf36d1e233e4475bd0d947a1e68f341",
		EventDegraded:      "ed481ceb9b1be65498e5b2b8e2e0a929",
	} {
		if got := event.MessageID(); got != want {
			t.Errorf("%s has message ID %s, want %s", event, got, want)
		}
	}
}

type explanation struct{ header, text string }

func readCatalog(t *testing.T) map[string]explanation {
	t.Helper()
	b, err := os.ReadFile("criguard.catalog")
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]explanation{}
	parts := strings.Split("\n"+string(b), "\n-- ")
	for _, part := range parts[1:] {
		id, rest, _ := strings.Cut(part, "\n")
		header, text, ok := strings.Cut(rest, "\n\n")
		if _, twice := entries[id]; twice || !ok {
			t.Errorf("entry %q: twice, or without text", id)
		}
		entries[id] = explanation{header, strings.TrimSpace(text)}
	}
	return entries
}

func TestCatalogExplainsEveryEvent(t *testing.T) {
	// The fields of every record of a kind. The journal would not replace any other name.
	carries := map[Event][]string{
		EventCondition: {"CONDITION"}, EventReclaim: {"SIGNAL"}, EventStopBegin: {"POD"}, EventStopDone: {"POD"}, EventStopFailed: {"POD"},
		EventHeld: {"THRESHOLD", "REASON"}, EventAlarm: {"REASON"}, EventRuntimeDown: {"REASON"},
		EventSignalAbsent: {"SIGNAL", "REASON"}, EventSignalBack: {"SIGNAL"}, EventConfigRefused: {"REASON"}, EventDegraded: {"REASON"},
		EventCommand: {"COMMAND"}, EventHook: {"COMMAND", "REASON"},
	}
	used := regexp.MustCompile(`@([A-Z_]+)@`)
	entries := readCatalog(t)
	for e := range messageIDs {
		t.Run(string(e), func(t *testing.T) {
			entry, ok := entries[e.MessageID()]
			if !ok {
				t.Fatal("the catalog does not have it")
			}
			delete(entries, e.MessageID())
			for _, want := range []string{"Subject: ", "Defined-By: criguard", "Support: https://", "Documentation: man:criguard(1)"} {
				if !strings.Contains("\n"+entry.header, "\n"+want) {
					t.Errorf("header has no %q:\n%s", want, entry.header)
				}
			}
			if entry.text == "" {
				t.Error("no text")
			}
			for _, m := range used.FindAllStringSubmatch(entry.header+entry.text, -1) {
				name, ours := strings.CutPrefix(m[1], fieldPrefix)
				if !ours || !slices.Contains(carries[e], name) {
					t.Errorf("not every record has field %s", m[1])
				}
			}
		})
	}
	for id := range entries {
		t.Errorf("entry %s belongs to no event", id)
	}
}

func TestCatalogCompiles(t *testing.T) {
	journalctl := need.Program(t, "journalctl")
	root := t.TempDir()
	b, err := os.ReadFile("criguard.catalog")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"usr/lib/systemd/catalog", "var/lib/systemd/catalog"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "usr/lib/systemd/catalog/criguard.catalog"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), journalctl, "--root="+root, "--update-catalog").CombinedOutput(); err != nil {
		t.Fatalf("update catalog: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), journalctl, "--root="+root, "--list-catalog").CombinedOutput()
	if err != nil {
		t.Fatalf("list catalog: %v\n%s", err, out)
	}
	for e := range messageIDs {
		if !strings.Contains(string(out), e.MessageID()+" criguard: ") {
			t.Errorf("%s (%s) is not listed:\n%s", e, e.MessageID(), out)
		}
	}
}
