package supervise

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// apart is all that a program has printed, by streams, and how much of it is lost.
func (s *session) apart(r ReadRequest) (streams [2]string, lost int64, why string) {
	s.t.Helper()
	var b [2]bytes.Buffer
	for r.Apart, r.For, r.Max = true, bound, MaxChunk; ; {
		c, err := s.Read(s.t.Context(), r)
		if err != nil || !c.Apart || c.Next < r.Offset || c.Next == r.Offset && !c.Done {
			s.t.Fatalf("read from byte %d: %+v, %v", r.Offset, c, err)
		}
		if lost += c.Lost; c.Why != "" {
			why = c.Why
		}
		data := c.Data
		for _, p := range c.Pieces {
			i := 0
			if p.Error {
				i = 1
			}
			if p.Time.IsZero() {
				s.t.Error("a piece without a time")
			}
			b[i].Write(data[:p.Bytes])
			data = data[p.Bytes:]
		}
		if len(data) > 0 {
			s.t.Fatalf("%d bytes are in no piece", len(data))
		}
		if r.Offset = c.Next; c.Done {
			return [2]string{b[0].String(), b[1].String()}, lost, why
		}
	}
}

// The streams of a program are kept apart for every reader at any time. A reader that does not know
// of streams gets the contents of the file.
func TestStreamsAreApart(t *testing.T) {
	for name, c := range map[string]struct {
		script, out, err string
		tail             string // the last two lines of both
	}{
		"nothing":    {"true", "", "", ""},
		"one":        {"echo a; echo b; echo c", "a\nb\nc\n", "", "b\nc\n"},
		"the other":  {"echo a >&2; echo b >&2", "", "a\nb\n", "a\nb\n"},
		"both":       {"echo a; echo b >&2", "a\n", "b\n", "a\nb\n"},
		"no line":    {"printf a; printf b >&2", "a", "b", "ab"},
		"closed":     {"exec >&-; echo a >&2", "", "a\n", "a\n"},
		"together":   {"exec 2>&1; echo a; echo b >&2; echo c", "a\nb\nc\n", "", "b\nc\n"},
		"many bytes": {"head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2", strings.Repeat("\x00", 300_000), strings.Repeat("\x00", 200_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, t.TempDir())
			check := func(when string, pid uint32, r ReadRequest) {
				t.Helper()
				r.PID = pid
				if got, lost, _ := s.apart(r); got != [2]string{c.out, c.err} || lost != 0 {
					t.Errorf("%s: %.60q, and %d bytes are lost", when, got, lost)
				}
			}
			p := s.sh(c.script)
			check("while it runs", p.PID, ReadRequest{})
			if got := s.wait(p.PID); got.Output != int64(len(c.out)+len(c.err)) || got.Missing != 0 {
				t.Errorf("%+v", got)
			}
			check("when it has ended", p.PID, ReadRequest{})
			if got := s.output(p.PID); len(got) != len(c.out)+len(c.err) {
				t.Errorf("a reader that knows of no streams gets %.60q", got)
			}
			if lines := 2; c.tail != "" {
				at, err := s.Read(t.Context(), ReadRequest{PID: p.PID, Apart: true, Tail: &lines})
				if want := int64(len(c.out) + len(c.err) - len(c.tail)); err != nil || at.Next != want {
					t.Errorf("the tail begins at %d (%v), want %d", at.Next, err, want)
				}
			}

			// As it is printed, with the reader holding up the program.
			s.next++
			q, err := s.Start(t.Context(), Order{PID: s.next, Group: 1, Path: []byte("/bin/sh"), Args: script(c.script), Directory: []byte("/"), Env: [][]byte{[]byte("PATH=/usr/bin:/bin")}, Follow: true})
			must(t, err)
			check("as it comes", q.PID, ReadRequest{Attended: true})
			check("after that", q.PID, ReadRequest{})

			s.child.Signal(9)
			<-s.Done()
			s.Close()
			s.child.Reap()
			s.launch()
			check("of another supervisor", p.PID, ReadRequest{})
		})
	}
}

// What another program does to the file is told, in bytes and why, and what comes later is kept.
func TestFileIsTakenAway(t *testing.T) {
	const first = "one\ntwo\n"
	for name, c := range map[string]struct {
		take func(file string) error
		why  string
	}{
		"removed":   {os.Remove, "removed or renamed"},
		"renamed":   {func(f string) error { return os.Rename(f, f+".old") }, "removed or renamed"},
		"rotated":   {func(f string) error { must(t, os.Rename(f, f+".old")); return os.WriteFile(f, nil, 0o600) }, "removed or renamed"},
		"truncated": {func(f string) error { return os.Truncate(f, 0) }, "truncated"},
		"cut":       {func(f string) error { return os.Truncate(f, 3) }, "truncated"},
	} {
		for _, goesOn := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				base := t.TempDir()
				s := newSession(t, base)
				last, script := "", `printf 'one\ntwo\n' >&2; while [ ! -e go ]; do sleep 0.01; done`
				if goesOn {
					last, script = "three\n", script+"; echo three"
				}
				p := s.sh(script)
				for at := int64(0); at < int64(len(first)); {
					c, err := s.Read(t.Context(), ReadRequest{PID: p.PID, Offset: at, Max: MaxChunk, For: bound, Apart: true})
					must(t, err)
					at = c.Next
				}
				must(t, c.take(filepath.Join(base, "out/deep/VMMC_n1.1")))
				must(t, os.WriteFile(filepath.Join(base, "go"), nil, 0o600))
				got := s.wait(p.PID)
				if got.Output != int64(len(first+last)) || got.Missing != int64(len(first)) || !strings.Contains(got.Why, c.why) {
					t.Errorf("%+v", got)
				}
				streams, lost, why := s.apart(ReadRequest{PID: p.PID})
				if streams != [2]string{last, ""} || lost != int64(len(first)) || !strings.Contains(why, c.why) {
					t.Errorf("%q are there, %d bytes are lost: %s", streams, lost, why)
				}
			})
		}
	}
}

// A file that is taken away when its program has ended is not taken for an empty one.
func TestFileIsTakenAwayLater(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	p := s.sh("echo one; echo two >&2")
	s.wait(p.PID)
	file := filepath.Join(base, "out/deep/VMMC_n1.1")
	must(t, os.Rename(file, file+".old"))
	must(t, os.WriteFile(file, []byte("else\nelse\n"), 0o600))
	if streams, lost, why := s.apart(ReadRequest{PID: p.PID}); streams != [2]string{} || lost != 8 || why == "" {
		t.Errorf("%q are there, %d bytes are lost: %q", streams, lost, why)
	}
	must(t, os.Remove(file))
	must(t, os.Rename(file+".old", file))
	if streams, lost, _ := s.apart(ReadRequest{PID: p.PID}); streams != [2]string{"one\n", "two\n"} || lost != 0 {
		t.Errorf("%q are there, %d bytes are lost", streams, lost)
	}
}
