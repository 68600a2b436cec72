package unix

import (
	"os"
	"testing"

	sys "golang.org/x/sys/unix"
)

// A terminal says once that it is at its end while its last output is still on its way, and a
// signal may come between.
func TestReadSome(t *testing.T) {
	type result struct {
		n   int
		err error
	}
	for name, c := range map[string]struct {
		read  []result
		n     int
		again bool
	}{
		"output":                      {[]result{{n: 5}}, 5, false},
		"none yet":                    {[]result{{err: sys.EAGAIN}}, 0, true},
		"a signal":                    {[]result{{err: sys.EINTR}, {n: 5}}, 5, false},
		"a pipe's end":                {[]result{{}}, 0, false},
		"a terminal's end":            {[]result{{err: sys.EIO}, {err: sys.EIO}}, 0, false},
		"a terminal's last output":    {[]result{{err: sys.EIO}, {n: 5}}, 5, false},
		"a signal before that":        {[]result{{err: sys.EIO}, {err: sys.EINTR}, {n: 5}}, 5, false},
		"what is no pipe or terminal": {[]result{{err: sys.EISDIR}}, 0, false},
	} {
		reads := 0
		n, again := readSome(func([]byte) (int, error) {
			reads++
			if reads > len(c.read) {
				t.Fatalf("%s: read again after %v", name, c.read)
			}
			return c.read[reads-1].n, c.read[reads-1].err
		}, make([]byte, 8))
		if n != c.n || again != c.again || reads != len(c.read) {
			t.Errorf("%s: %d bytes, again %v, after %d reads; wanted %d, %v, %d", name, n, again, reads, c.n, c.again, len(c.read))
		}
	}
}

// What a program prints as it ends comes, also where its terminal's echo is being read at that
// moment.
func TestLastOutputOfTerminal(t *testing.T) {
	for range 200 {
		screen, program, err := OpenTerminal(Size{Rows: 24, Columns: 80})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Start(t.Context(), Program{
			Path: "/bin/sh", Args: []string{"sh", "-c", `read -r x; echo "<$x>"`}, Dir: "/", Seat: true,
			Files: [3]*os.File{program, program, program},
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = program.Close()
		if _, err := screen.WriteString("word\n"); err != nil {
			t.Fatal(err)
		}
		var shown []byte
		rc, err := screen.SyscallConn()
		for over := false; err == nil && !over; {
			b := make([]byte, 64)
			err = rc.Read(func(fd uintptr) bool {
				n, again := ReadSome(fd, b)
				shown, over = append(shown, b[:n]...), n == 0 && !again
				return !again
			})
		}
		how := c.Reap()
		_ = screen.Close()
		if want := "word\r\n<word>\r\n"; err != nil || string(shown) != want || how != "exit status 0" {
			t.Fatalf("it printed %q and ended with %s (%v), wanted %q", shown, how, err, want)
		}
	}
}
