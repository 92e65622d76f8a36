package reclaim

import (
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
	"sync"
	"time"
)

// Limits of the ledger's file.
const (
	ledgerVersion = 1
	maxLedger     = 8 << 20 // bytes: 50,000 images
	// saveEvery spares flash cards: while nothing is removed, what an hour adds may
	// be lost.
	saveEvery = time.Hour
	// saveAtEnd is the same at the end of a service, which may be that of the boot: a node
	// that is up for less than an hour at a time must not lose all of it. A service that
	// ends again and again wears no flash card out.
	saveAtEnd = 5 * time.Minute
)

// errLedger is a ledger file whose content cannot be believed.
var errLedger = errors.New("ledger is damaged")

// ledgerFile is where a ledger is kept.
type ledgerFile struct {
	mu      sync.Mutex // held while writing
	path    string     // "" = nowhere
	failing bool       // the last write did not work, and that was told
}

// envelope is the file: the ledger with a checksum over its bytes.
type envelope struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"` // SHA-256 of the ledger's bytes, in hex
	Ledger   json.RawMessage `json:"ledger"`
}

// snapshot is the ledger at a moment.
type snapshot struct {
	Boot   string            `json:"boot"` // id of the boot it was written in
	At     time.Duration     `json:"at"`   // the time since that boot
	Time   time.Duration     `json:"time"` // the ledger's time
	Images map[string]record `json:"images"`
	// Stopped is Ledger.stopped.
	Stopped map[string]time.Duration `json:"stopped,omitempty"`
}

// OpenLedger loads the ledger that is kept at path ("" = in memory), beside which it uses the names
// path.prev, path.tmp and path.damaged. It always returns a ledger: where the file
// is damaged, that is set aside and the generation before it is taken, or none; a
// ledger that knows nothing protects everything. What went wrong on the way is
// returned, for a warning.
func OpenLedger(path, boot string, now time.Duration) (*Ledger, error) {
	l := newLedger(boot)
	l.file.path = path
	if path == "" {
		return l, nil
	}
	var errs []error
	for _, p := range []string{path, path + ".prev"} {
		snap, err := readLedger(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("load image ledger %s: %w", p, err))
			if errors.Is(err, errLedger) {
				// Best effort: on a read-only disk it is in nobody's way.
				_ = os.Rename(p, path+".damaged")
			}
			continue
		}
		l.restore(snap, now)
		break
	}
	return l, errors.Join(errs...)
}

// restore takes over what an earlier run knew. Where the boots cannot be told
// apart, the shorter time is taken to have passed.
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

// parseLedger believes nothing that its checksum does not cover, or that no
// ledger writes.
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
	const longest = math.MaxInt64 / 4 // 73 years: sums of two do not overflow
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

// marshal writes what parseLedger reads.
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

// SaveDue saves the ledger when it changed and was not saved for an hour, or when a stop
// was noted since: the pod may come back only after a restart.
func (l *Ledger) SaveDue(now time.Duration) error { return l.saveAfter(saveEvery, now) }

// SaveEnd saves the ledger as SaveDue does, at the end of the service: when it was not
// saved for some minutes.
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

// Save writes the ledger to its file, when it changed. A disk that is full or
// read-only costs nothing but memory: the ledger goes on without its file, and
// only the first of several failures in a row is returned.
func (l *Ledger) Save(now time.Duration) error {
	l.file.mu.Lock()
	defer l.file.mu.Unlock()
	raw, at, err := l.take(now)
	if raw == nil && err == nil {
		return nil
	}
	if err == nil {
		err = replaceFile(l.file.path, raw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.dirty, l.urgent = true, true
		told := l.file.failing
		if l.file.failing = true; told {
			return nil
		}
		return fmt.Errorf("save image ledger: %w", err)
	}
	l.saved, l.file.failing = at, false
	return nil
}

// take encodes what is to be saved; nil = nothing. The lock is not held while it
// is written: a disk under pressure takes its time.
func (l *Ledger) take(now time.Duration) (raw []byte, at time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dirty || l.file.path == "" {
		return nil, 0, nil
	}
	at = l.time(now)
	raw, err = snapshot{Boot: l.boot, At: now, Time: at, Images: l.images, Stopped: l.stopped}.marshal()
	l.dirty, l.urgent = false, false
	return raw, at, err
}

// replaceFile puts new content at path and keeps the old one as path.prev.
// Whenever the power goes, one of both is whole.
func replaceFile(path string, content []byte) error {
	dir, tmp, prev := filepath.Dir(path), path+".tmp", path+".prev"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeSynced(tmp, content); err != nil {
		_ = os.Remove(tmp) // give the space back
		return err
	}
	if err := keepPrevious(path, prev); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// keepPrevious makes prev another name of what is at path. Without anything
// there, prev is the only whole one and stays.
func keepPrevious(path, prev string) error {
	if _, err := os.Lstat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.Remove(prev); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(path, prev) == nil {
		return nil
	}
	// A filesystem without hard links: for a moment only prev is there.
	return os.Rename(path, prev)
}

func writeSynced(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
