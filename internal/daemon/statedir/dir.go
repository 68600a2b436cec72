package statedir

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/trust"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Dir is a state directory, which one daemon at a time has. The caller makes one call of Take,
// Taken and Close at a time.
type Dir struct {
	path string   // "": there is none
	lock *os.File // held while this daemon uses the directory; nil: it does not
}

// New returns a state directory that is not taken; path may be "".
func New(path string) *Dir { return &Dir{path: path} }

func (d *Dir) file(name string) string {
	return filepath.Join(d.path, "sessions", supervise.FileName(name)+".json")
}

// Run is the directory of a session, which is its user's.
func (d *Dir) Run(name string) string {
	return filepath.Join(d.path, "run", supervise.FileName(name))
}

// Take takes the directory, and makes it when make is set. It returns the lock if that was taken
// now: the caller may keep its count of pids in the file, and must not close it.
func (d *Dir) Take(make bool) (taken *os.File, err error) {
	if d.lock != nil {
		return nil, nil
	}
	if d.path == "" {
		return nil, code.New(code.BadConfig,
			"this node keeps no state, and so no sessions: use a node of vmmcd")
	}
	if _, err := os.Stat(filepath.Join(d.path, "sessions")); errors.Is(err, fs.ErrNotExist) && !make {
		return nil, nil
	}
	// Users get through, to what is theirs, and see nothing else.
	for _, part := range []struct {
		name string
		mode os.FileMode
	}{{"", 0o711}, {"sessions", 0o700}, {"run", 0o711}} {
		if _, err := trust.Own().Make(filepath.Join(d.path, part.name), part.mode); err != nil {
			return nil, code.New(code.BadConfig,
				"take the state directory: %v: name another one with --state", err)
		}
	}
	f, err := unix.LockFile(filepath.Join(d.path, "lock"))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, code.New(code.BadConfig,
			"another vmmcd has the state directory %s: give this one another with --state", d.path)
	}
	if err != nil {
		return nil, code.New(code.BadConfig, "take the state directory: %v", err)
	}
	if left, _ := d.files(); make && len(left) > 0 {
		_ = f.Close()
		return nil, code.New(code.BadConfig,
			"the state directory %s has sessions of another vmmcd, which had it when this one started: "+
				"start this one again to have them", d.path)
	}
	d.lock = f
	return f, nil
}

// Taken reports whether this daemon has the directory.
func (d *Dir) Taken() bool { return d.lock != nil }

// Close lets another daemon have it.
func (d *Dir) Close() {
	if d.lock != nil {
		_ = d.lock.Close()
	}
}

// Write keeps a record, the old one or the new one whenever this ends.
func (d *Dir) Write(r Record) error {
	if r.Bytes = nil; !utf8.ValidString(r.Home) {
		r.Bytes = []byte(r.Home)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f := d.file(r.Name)
	if err = writeSynced(f+newFile, append(b, '\n')); err == nil {
		if err = os.Rename(f+newFile, f); err == nil {
			err = syncDir(filepath.Dir(f))
		}
	}
	if err != nil {
		_ = os.Remove(f + newFile)
		return code.New(code.NoMem, "keep session %q: %v", r.Name, err)
	}
	return nil
}

// Remove removes a session's record.
func (d *Dir) Remove(session string) error { return os.Remove(d.file(session)) }

// Records returns the records of all sessions. It passes over those that cannot be read, of which
// it tells failed, and removes what a daemon left that died while it wrote.
func (d *Dir) Records(failed func(file string, err error)) (all []Record, err error) {
	torn, _ := filepath.Glob(filepath.Join(escapeGlob(d.path), "sessions", "*.json"+newFile))
	for _, f := range torn {
		_ = os.Remove(f)
	}
	files, err := d.files()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		var r Record
		b, err := os.ReadFile(f)
		if err == nil {
			err = r.read(b)
		}
		if err != nil || d.file(r.Name) != f {
			failed(f, err)
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

// newFile is behind the name of a record that is being written.
const newFile = ".new"

func writeSynced(name string, b []byte) error {
	f, err := trust.Create(name, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names in a directory outlive a loss of power.
func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// files are the records.
func (d *Dir) files() ([]string, error) {
	return filepath.Glob(filepath.Join(escapeGlob(d.path), "sessions", "*.json"))
}

// escapeGlob makes a path mean itself.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}
