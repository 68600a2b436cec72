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
func (s *supervisor) appendControlFile(p Program) error {
	name := FileName(s.spec.Session) + "_" + uitoa(p.Group)
	header := fmt.Sprintf("#\n# VMMC Output Control For Session [%s] Run #%d User [%s]\n#\n",
		oneLine(s.spec.Session), p.Group, oneLine(s.spec.User))
	if err := s.beginControlFile(name, header); err != nil {
		return err
	}
	f, _, err := s.appendTo(name)
	for range 20 { // another node that is creating the file is about to unlink its temporary name
		if !errors.Is(err, errNames) {
			break
		}
		time.Sleep(5 * time.Millisecond)
		f, _, err = s.appendTo(name)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(controlLine(s.spec.Node, p))
	return err
}

func controlLine(node string, p Program) string {
	t := p.Begun
	return fmt.Sprintf("VMMC_%s %d # HOST=%s REALPID=%d TIME=%4d/%2d/%2d-%2d:%2d\n",
		node, p.PID, node, p.Real, t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute())
}

// beginControlFile makes a file with what it begins with, unless it is there: it gets its
// name only with its beginning in it, because other nodes may write to it too.
func (s *supervisor) beginControlFile(name, header string) error {
	dir := within(s.spec.Output)
	if _, err := s.root.Lstat(path.Join(dir, name)); err == nil {
		return nil
	}
	made := fmt.Sprintf(".%s.%s.%d", s.spec.Node, s.spec.Marker, time.Now().UnixNano())
	f, _, err := s.appendTo(made)
	if err != nil {
		return err
	}
	_, err = f.WriteString(header)
	_ = f.Close()
	if err == nil {
		err = s.root.Link(path.Join(dir, made), path.Join(dir, name))
	}
	if rerr := s.root.Remove(path.Join(dir, made)); err == nil && !errors.Is(rerr, os.ErrNotExist) {
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
