package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
	"unicode"
)

// appendControlFile writes a process into its run group's control file, in the form that
// the manual gives. A file that cannot be written harms no program.
func (d *drive) appendControlFile(p Program) error {
	name := FileName(d.spec.Session) + "_" + uitoa(p.Group)
	header := fmt.Sprintf("#\n# VMMC Output Control For Session [%s] Run #%d User [%s]\n#\n",
		oneLine(d.spec.Session), p.Group, oneLine(d.spec.User))
	if err := d.beginControlFile(name, header); err != nil {
		return err
	}
	f, _, err := d.appendTo(name)
	for range 20 { // another node that is creating the file is about to unlink its temporary name
		if !errors.Is(err, errNames) {
			break
		}
		time.Sleep(5 * time.Millisecond)
		f, _, err = d.appendTo(name)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(controlLine(d.spec.Node, p))
	return err
}

func controlLine(node string, p Program) string {
	t := p.Begun
	return fmt.Sprintf("VMMC_%s %d # HOST=%s REALPID=%d TIME=%4d/%2d/%2d-%2d:%2d\n",
		node, p.PID, node, p.Real, t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute())
}

// beginControlFile makes a file with what it begins with, unless it is there: it gets its
// name only with its beginning in it, because other nodes may write to it too.
func (d *drive) beginControlFile(name, header string) error {
	dir := within(d.spec.Output)
	if _, err := d.root.Lstat(path.Join(dir, name)); err == nil {
		return nil
	}
	made := fmt.Sprintf(".%s.%s.%d", d.spec.Node, d.spec.Marker, time.Now().UnixNano())
	f, _, err := d.appendTo(made)
	if err != nil {
		return err
	}
	_, err = f.WriteString(header)
	_ = f.Close()
	if err == nil {
		err = d.root.Link(path.Join(dir, made), path.Join(dir, name))
	}
	if rerr := d.root.Remove(path.Join(dir, made)); err == nil && !errors.Is(rerr, os.ErrNotExist) {
		err = rerr
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// oneLine keeps a name from making lines of its own.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '�'
		}
		return r
	}, s)
}
