package directory

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// journal is an append-only file of what is registered with a node. It is there while the node is
// serving, and whole: a line is written before the registration is answered. It is not synced. A
// machine that has been started since has another boot id, and the file is void. Guarded by
// table.mu.
type journal struct {
	file, boot string
	log        *slog.Logger

	f     *os.File // nil: there is none
	lines int
	nodes []string
	left  []string
}

// line is one of the file: first the head, then registrations and withdrawals.
type line struct {
	Boot  string        `json:",omitempty"`
	Nodes []string      `json:",omitempty"`
	Left  []string      `json:",omitempty"` // nodes that were among these before
	Add   *Registration `json:",omitempty"`
	Drop  *Registration `json:",omitempty"`
}

// Limits on what is read from a file that may be damaged.
const (
	maxJournal = 1 << 30
	maxLine    = 128 << 10 // a head has the names of all nodes
)

// read reads what a daemon before this one has left; nil if it is not to be used.
func (j *journal) read() (nodes, left []string, all []Registration) {
	if j.file == "" || j.boot == "" {
		return nil, nil, nil
	}
	nodes, left, all, err := j.parse()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.log.Info("the registered names of the daemon before this one are not used: other nodes are asked "+
			"for them", "file", j.file, "why", err)
		j.discard()
		return nil, nil, nil
	}
	return nodes, left, all
}

func (j *journal) parse() (nodes, left []string, all []Registration, err error) {
	info, err := os.Lstat(j.file) // does not follow a symbolic link
	if err != nil {
		return nil, nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, nil, nil, fmt.Errorf("it is %v, want a file for its owner alone", info.Mode())
	}
	f, err := os.Open(j.file)
	if err != nil {
		return nil, nil, nil, err
	}
	defer f.Close()
	if uid, _, err := unix.OwnerOf(f); err != nil || int(uid) != os.Getuid() {
		return nil, nil, nil, fmt.Errorf("it is user %d's (%w)", uid, errors.Join(err, fs.ErrPermission))
	}
	return parseJournal(f, j.boot)
}

// parseJournal reads a file. A last line that is torn was not answered.
func parseJournal(
	f io.Reader, boot string,
) (nodes, left []string, all []Registration, err error) {
	whole := &io.LimitedReader{R: f, N: maxJournal}
	lines := bufio.NewScanner(whole)
	lines.Buffer(nil, maxLine)
	there := map[Key][]Registration{}
	torn := false
	for lines.Scan() {
		if torn {
			return nil, nil, nil, errors.New("a line in it is no JSON")
		}
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			torn = true
			continue
		}
		switch {
		case nodes == nil:
			if l.Boot != boot || len(l.Nodes) == 0 {
				return nil, nil, nil, errors.New("the machine was started since")
			}
			nodes, left = l.Nodes, l.Left
		case l.Add != nil:
			k := l.Add.Key
			there[k] = append(slices.DeleteFunc(there[k], l.Add.same), *l.Add)
		case l.Drop != nil:
			k := l.Drop.Key
			if there[k] = slices.DeleteFunc(there[k], l.Drop.same); len(there[k]) == 0 {
				delete(there, k)
			}
		}
	}
	if err := lines.Err(); err != nil || whole.N == 0 {
		return nil, nil, nil, fmt.Errorf("it cannot be read to its end (%w)", errors.Join(err, io.ErrShortBuffer))
	}
	for _, rs := range there {
		all = append(all, rs...)
	}
	return nodes, left, all, nil
}

func (j *journal) add(t *table, r Registration)    { j.append(t, line{Add: &r}) }
func (j *journal) remove(t *table, r Registration) { j.append(t, line{Drop: &r}) }

// append writes a line, if there is a file. Without one the next daemon asks the other nodes.
func (j *journal) append(t *table, l line) {
	if j.f == nil {
		return
	}
	b, err := json.Marshal(l)
	if err == nil {
		_, err = j.f.Write(append(b, '\n'))
	}
	if err != nil {
		j.fail(err)
		return
	}
	if j.lines++; j.lines > 4096 && j.lines > 4*len(t.names) {
		j.write(t, j.nodes, j.left)
	}
}

// write writes a new file and renames it into place.
func (j *journal) write(t *table, nodes, left []string) {
	j.close()
	if j.file == "" || j.boot == "" || len(nodes) < 2 {
		return
	}
	if err := j.rewrite(t.all(), nodes, left); err != nil {
		j.fail(err)
	}
}

func (j *journal) rewrite(all []Registration, nodes, left []string) error {
	_ = os.Remove(j.file + ".new") // left by a daemon that died while it wrote
	f, err := os.OpenFile(j.file+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err = j.encode(f, all, nodes, left); err == nil {
		err = os.Rename(j.file+".new", j.file)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(j.file + ".new")
		return err
	}
	j.f, j.lines, j.nodes, j.left = f, len(all), nodes, left
	return nil
}

// encode writes a whole journal.
func (j *journal) encode(f io.Writer, all []Registration, nodes, left []string) error {
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	_ = enc.Encode(line{Boot: j.boot, Nodes: nodes, Left: left}) // Flush returns the error
	for _, r := range all {
		_ = enc.Encode(line{Add: &r})
	}
	return w.Flush()
}

// fail gives the file up. It must not be there any more: it is not whole.
func (j *journal) fail(err error) {
	j.log.Warn("registered names cannot be kept for the next daemon, which will ask the other nodes", "file",
		j.file, "err", err)
	j.discard()
}

// discard makes the file void. One that cannot be removed is emptied: the next daemon would take it
// for all that it must know.
func (j *journal) discard() {
	j.close()
	if j.file == "" {
		return
	}
	err := os.Remove(j.file)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	if info, serr := os.Lstat(j.file); serr == nil && info.Mode().IsRegular() {
		if terr := os.Truncate(j.file, 0); terr == nil {
			return
		}
	}
	j.log.Error("a file of registered names is not valid any more and cannot be removed: remove it before "+
		"the daemon is started again, or two processes may get one name", "file", j.file, "err", err)
}

func (j *journal) close() {
	if j.f != nil {
		_ = j.f.Close()
		j.f = nil
	}
}
