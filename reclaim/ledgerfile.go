package reclaim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Limits of the ledger's file.
const (
	ledgerVersion = 1
	maxLedger     = 8 << 20 // bytes: 50,000 images
	// saveEvery spares flash cards: an hour of history may be lost while nothing is removed.
	saveEvery = time.Hour
	// saveAtEnd is the same at the end of the service, which may be the end of the boot: a node that is
	// never up for an hour must not lose everything. A service that keeps restarting does not wear out
	// a flash card either.
	saveAtEnd = 5 * time.Minute
)

// ledgerWait is how long a caller waits for the ledger's file. A healthy disk takes milliseconds; a
// longer write continues in the background.
const ledgerWait = 5 * time.Second

// errLedger: the content of a ledger file is not valid.
var errLedger = errors.New("ledger is damaged")

// ledgerFile is the file of a ledger.
type ledgerFile struct {
	path   string // "" = no file
	writer worker
	own    fs.FileInfo // of the file as last written by this ledger; only the writer uses it
	// failed is why the last write failed or has not ended; guarded by Ledger.mu.
	failed error
	told   bool // Save has returned failed
	ended  int  // number of writes that have ended
}

// envelope is the file: the ledger with a checksum of its bytes.
type envelope struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"` // SHA-256 of the ledger's bytes, in hex
	Ledger   json.RawMessage `json:"ledger"`
}

// snapshot is the ledger at one moment.
type snapshot struct {
	Boot   string            `json:"boot"` // id of the boot it was written in
	At     time.Duration     `json:"at"`   // the time since that boot
	Time   time.Duration     `json:"time"` // the ledger's time
	Images map[string]record `json:"images"`
	// Stopped is Ledger.stopped.
	Stopped map[string]time.Duration `json:"stopped,omitempty"`
}

// OpenLedger loads the ledger at path ("" = in memory only). It also uses path.prev, path.tmp,
// path.lock and path.damaged. It always returns a ledger: it moves a damaged file to path.damaged and
// loads the previous generation, or starts empty; an empty ledger protects every image. The error is
// for a warning.
func OpenLedger(path, boot string, now time.Duration) (*Ledger, error) {
	l, err := ReadLedger(path, boot, now)
	if path == "" {
		return l, err
	}
	l.file.path = path
	damaged := errors.Is(err, errLedger)
	// Best effort: on a read-only or stalled disk, the files are just left as they are.
	_ = l.file.writer.do(context.Background(), ledgerWait, func() {
		if _, none := os.Lstat(path + ".tmp"); none == nil || damaged {
			l.file.tidy()
		}
	})
	return l, err
}

// ReadLedger loads a ledger like OpenLedger, for inspection: it is never saved, and no file changes. If the disk
// does not answer, the ledger starts empty, which protects every image.
func ReadLedger(path, boot string, now time.Duration) (*Ledger, error) {
	l := newLedger(boot)
	if path == "" {
		return l, nil
	}
	type generation struct {
		snap *snapshot
		err  error
	}
	read := make(chan generation, 1)
	if err := l.file.writer.do(context.Background(), ledgerWait, func() {
		snap, err := readGenerations(path)
		read <- generation{snap, err}
	}); err != nil {
		return l, fmt.Errorf("load image ledger %s: %w", path, err)
	}
	g := <-read
	if g.snap != nil {
		l.restore(*g.snap, now)
	}
	return l, g.err
}

// readGenerations reads the newest generation that is not damaged; nil = none. The error says which are.
func readGenerations(path string) (*snapshot, error) {
	var errs []error
	for _, p := range []string{path, path + ".prev"} {
		snap, err := readLedger(p)
		switch {
		case err == nil:
			return &snap, errors.Join(errs...)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("load image ledger %s: %w", p, err))
		}
	}
	return nil, errors.Join(errs...)
}

// restore takes over the state of an earlier run. If the boots cannot be distinguished, it assumes the
// shorter time to have passed.
func (l *Ledger) restore(snap snapshot, now time.Duration) {
	sameBoot := snap.Boot == l.boot && l.boot != ""
	unknown := snap.Boot == "" || l.boot == ""
	l.before = snap.Time
	if now >= snap.At && (sameBoot || unknown) {
		l.before = snap.Time - snap.At
	}
	l.latest, l.saved, l.noted = snap.Time, snap.Time, snap.Time
	maps.Copy(l.images, snap.Images)
	maps.Copy(l.stopped, snap.Stopped)
}

// readLedger reads one generation.
func readLedger(path string) (snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return snapshot{}, err
	}
	defer func() { _ = f.Close() }()
	return parseLedger(f)
}

// parseLedger rejects content that its checksum does not cover or that no ledger writes.
func parseLedger(r io.Reader) (snapshot, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxLedger+1))
	if err != nil {
		return snapshot{}, err
	}
	if len(raw) > maxLedger {
		return snapshot{}, fmt.Errorf("%w: longer than %d bytes", errLedger, maxLedger)
	}
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return snapshot{}, fmt.Errorf("%w: %w", errLedger, err)
	}
	if e.Version != ledgerVersion {
		return snapshot{}, fmt.Errorf("%w: version %d, want %d", errLedger, e.Version, ledgerVersion)
	}
	if e.Checksum != checksum(e.Ledger) {
		return snapshot{}, fmt.Errorf("%w: checksum does not match", errLedger)
	}
	var s snapshot
	if err := json.Unmarshal(e.Ledger, &s); err != nil {
		return snapshot{}, fmt.Errorf("%w: %w", errLedger, err)
	}
	const longest = math.MaxInt64 / 4 // 73 years: the sum of two does not overflow
	if s.At < 0 || s.Time < s.At || s.Time > longest {
		return snapshot{}, fmt.Errorf("%w: impossible time", errLedger)
	}
	for id, r := range s.Images {
		for _, t := range []time.Duration{r.FirstSeen, r.LastUsed, r.StoppedAt, r.GoneAt} {
			if t < 0 || t > s.Time {
				return snapshot{}, fmt.Errorf("%w: impossible time of image %.80q", errLedger, id)
			}
		}
	}
	for ref, t := range s.Stopped {
		if t < 0 || t > s.Time {
			return snapshot{}, fmt.Errorf("%w: impossible time of a stop with image %.80q", errLedger, ref)
		}
	}
	return s, nil
}

// marshal writes the format that parseLedger reads.
func (s snapshot) marshal() ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{ledgerVersion, checksum(body), body})
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// SaveDue saves the ledger if it changed and the last save was an hour ago or more, or if a stop was
// recorded since: the pod may come back only after a restart.
func (l *Ledger) SaveDue(now time.Duration) error { return l.saveAfter(saveEvery, now) }

// SaveEnd saves the ledger at the end of the service, like SaveDue but if the last save was five
// minutes ago.
func (l *Ledger) SaveEnd(now time.Duration) error { return l.saveAfter(saveAtEnd, now) }

func (l *Ledger) saveAfter(pause, now time.Duration) error {
	l.mu.Lock()
	due := l.dirty && (l.urgent || l.saved == 0 || l.time(now)-l.saved >= pause)
	l.mu.Unlock()
	if !due {
		return nil
	}
	return l.Save(now)
}

// Save writes a changed ledger to its file, and waits up to 5 s. If the disk is full, read-only or
// stalled, the ledger continues in memory. If several saves in a row fail, only the first error is
// returned.
func (l *Ledger) Save(now time.Duration) error {
	if !l.unsaved() {
		return nil
	}
	l.mu.Lock()
	ended := l.file.ended
	l.mu.Unlock()
	err := l.file.writer.do(context.Background(), ledgerWait, func() { l.setFailed(l.write(now)) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.file.ended == ended {
		l.file.failed = cmp.Or(l.file.failed, err)
	}
	if err = l.file.failed; err == nil || l.file.told {
		return nil
	}
	l.file.told = true
	return fmt.Errorf("save image ledger: %w", err)
}

// Unsaved returns why the ledger exists only in memory; nil while its file can be written.
func (l *Ledger) Unsaved() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.failed
}

// setFailed records the result of a write.
func (l *Ledger) setFailed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file.ended++
	if l.file.failed = err; err == nil {
		l.file.told = false
	}
}

func (l *Ledger) unsaved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dirty && l.file.path != ""
}

// write saves the current state, as the only writer among all processes. It also writes urgent changes
// that came in while a slow disk was busy.
func (l *Ledger) write(now time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(l.file.path), 0o755); err != nil {
		return err
	}
	unlock, err := lockFile(l.file.path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	for more := true; more; {
		l.mergeFile()
		raw, at, err := l.take(now)
		if err == nil && raw != nil {
			err = l.file.replace(raw)
		}
		l.mu.Lock()
		if err != nil {
			l.dirty, l.urgent = true, true
		} else if raw != nil {
			l.saved = at
		}
		more = err == nil && l.urgent
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// take encodes the state to save; nil = nothing to save. The caller writes it without the lock: a disk
// under pressure is slow.
func (l *Ledger) take(now time.Duration) (raw []byte, at time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dirty {
		return nil, 0, nil
	}
	at = l.time(now)
	// Records may be newer than now if the disk delayed the write.
	raw, err = snapshot{Boot: l.boot, At: at - l.before, Time: at, Images: l.images, Stopped: l.stopped}.marshal()
	l.dirty, l.urgent = false, false
	return raw, at, err
}
