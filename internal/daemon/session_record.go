package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// record is what a node keeps of a session in its state directory.
type record struct {
	Name   string
	User   string // that its processes run as
	As     string // the user that the session was made with; may be empty
	UID    uint32
	GID    uint32
	Groups []uint32
	Home   string
	Bytes  []byte `json:",omitempty"` // of Home, if JSON would change them
	Drive  string
	Share  string // the directory that the drive was made for; empty: it was there
	Mount  string // where the share is mounted; empty: it is a directory of this machine
	Output string
	Base   string
	Marker string // what its processes have in their environment
	Key    string // of the tokens of its programs; unlike the marker, its user does not know it
	Ending bool   // its deletion has begun

	Attempt string // the call that made it; may be empty
	Account bool   // the share was mounted with credentials, which are not kept
	Cgroup  string // that its processes are in; empty: none

	Made  time.Time `json:",omitzero"`  // when it was asked for; zero: the caller did not say
	Nodes []string  `json:",omitempty"` // that were asked for it, in that order
}

// read is what write has kept.
func (r *record) read(b []byte) error {
	if err := json.Unmarshal(b, r); err != nil {
		return err
	}
	if len(r.Bytes) > 0 {
		r.Home = string(r.Bytes)
	}
	return nil
}

// write keeps a record, the old one or the new one whenever this ends.
func (t *sessions) write(r record) error {
	if r.Bytes = nil; !utf8.ValidString(r.Home) {
		r.Bytes = []byte(r.Home)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f := t.file(r.Name)
	if err = writeSynced(f+newRecord, append(b, '\n')); err == nil {
		if err = os.Rename(f+newRecord, f); err == nil {
			err = syncDir(filepath.Dir(f))
		}
	}
	if err != nil {
		_ = os.Remove(f + newRecord)
		return code.New(code.NoMem, "keep session %q: %v", r.Name, err)
	}
	return nil
}

// newRecord is behind the name of a record that is being written.
const newRecord = ".new"

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
func (t *sessions) files() ([]string, error) {
	return filepath.Glob(filepath.Join(escapeGlob(t.state), "sessions", "*.json"))
}

// escapeGlob makes a path mean itself.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// newRecord checks what a session is to be.
func (t *sessions) newRecord(
	c users.Caller, name, user, drive, share, output string,
) (r record, err error) {
	if err := supervise.CheckSession(name); err != nil {
		return r, err
	}
	if output == "" {
		return r, code.New(code.BadArg,
			"the output directory is empty: name one, absolute within the session's drive")
	}
	if err := supervise.CheckDirectory("output directory", output); err != nil {
		return r, err
	}
	if drive, err = checkDrive(drive, share); err != nil {
		return r, err
	}
	a, err := t.n.accounts.Owner(c, user)
	if err != nil {
		return r, err
	}
	r = record{
		Name: name, User: a.Name, As: user, UID: a.UID, Home: a.Home, Drive: drive, Share: share,
		Output: output,
	}
	if a.As != nil {
		r.GID, r.Groups = a.As.GID, a.As.Groups
	}
	return r, nil
}
