package logfile

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func begin(t *testing.T, limit int64) *File {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "nodes need Linux")
	f := Open(filepath.Join(t.TempDir(), "logs", "server.log"), limit)
	t.Cleanup(f.Close)
	return f
}

// say writes lines one by one, each written before the next.
func say(f *File, from, to int) {
	for i := from; i < to; i++ {
		_, _ = fmt.Fprintf(f, "line %d\n", i)
		f.End()
	}
}

// all reads from a position to the end.
func all(f *File, at int64) string {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	var out []byte
	for b := make([]byte, 100); ; {
		n, next := f.Read(ctx, at, b)
		if n == 0 {
			return string(out)
		}
		out, at = append(out, b[:n]...), next
	}
}

func lines(from, to int) string {
	s := ""
	for i := from; i < to; i++ {
		s += fmt.Sprintf("line %d\n", i)
	}
	return s
}

func TestItsSizeIsBounded(t *testing.T) {
	f := begin(t, 100)
	say(f, 100, 300)
	var sum int64
	files, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil || len(files) != kept+1 {
		t.Fatalf("%d files (%v), wanted %d", len(files), err, kept+1)
	}
	for _, e := range files {
		s, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if sum += s.Size(); s.Size() > 100 || s.Mode().Perm() != 0o640 {
			t.Errorf("%s has %d bytes and mode %v", e.Name(), s.Size(), s.Mode())
		}
	}
	got := all(f, 0)
	if int64(len(got)) != sum || !strings.HasSuffix(lines(100, 300), got) {
		t.Errorf("reading from the start gave %q of %d bytes", got, sum)
	}
	for _, n := range []int{0, 1, 7, 30} {
		if got := all(f, f.Last(n)); got != lines(300-n, 300) {
			t.Errorf("the last %d lines are %q", n, got)
		}
	}
	if got := all(f, f.Last(1000)); int64(len(got)) != sum {
		t.Errorf("the last 1000 lines are %d bytes, wanted all %d", len(got), sum)
	}
}

// TestPositionsGoOn: a follower misses nothing when the next file begins, and the
// next program finds what the one before it wrote.
func TestPositionsGoOn(t *testing.T) {
	f := begin(t, 100)
	at := f.End()
	got := ""
	for i := 100; i < 180; i += 5 {
		say(f, i, i+5)
		got += all(f, at)
		at = f.End()
	}
	if got != lines(100, 180) {
		t.Errorf("followed %q", got)
	}
	f.Close()
	next := Open(f.path, 100)
	defer next.Close()
	say(next, 180, 182)
	if got := all(next, next.Last(20)); got != lines(162, 182) {
		t.Errorf("the next one's last lines are %q", got)
	}
}

func TestFollowingWaits(t *testing.T) {
	f := begin(t, Size)
	say(f, 0, 3)
	at := f.End()
	got := make(chan string)
	go func() {
		b := make([]byte, 100)
		n, _ := f.Read(t.Context(), at, b)
		got <- string(b[:n])
	}()
	say(f, 3, 4)
	if s := <-got; s != "line 3\n" {
		t.Errorf("the reader got %q", s)
	}
}

func TestARemovedDirectoryIsMadeAgain(t *testing.T) {
	f := begin(t, 100)
	say(f, 0, 20)
	if err := os.RemoveAll(filepath.Dir(f.path)); err != nil {
		t.Fatal(err)
	}
	say(f, 20, 22)
	if got := all(f, 0); got != lines(20, 22) {
		t.Errorf("it has %q", got)
	}
	// Another program's rotation.
	if err := os.Rename(f.path, f.path+".old"); err != nil {
		t.Fatal(err)
	}
	say(f, 22, 23)
	if b, err := os.ReadFile(f.path); err != nil || string(b) != "line 22\n" {
		t.Errorf("the file has %q, %v", b, err)
	}
}

// TestADiskThatTakesNothing: no line waits, and when the disk is there again it
// says what is missing.
func TestADiskThatTakesNothing(t *testing.T) {
	f := begin(t, Size)
	say(f, 0, 1)
	dir := filepath.Dir(f.path)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	say(f, 1, 6)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	say(f, 6, 7)
	for deadline := time.Now().Add(10 * retry); ; time.Sleep(time.Millisecond) {
		got := all(f, 0)
		if strings.Contains(got, "lines=5") && strings.Contains(got, "level=WARN") && strings.HasSuffix(got, "line 6\n") && !strings.Contains(got, "line 5") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it has %q", got)
		}
	}
}

// TestADiskThatHangs: no logging goroutine waits, and memory is bounded.
func TestADiskThatHangs(t *testing.T) {
	f := begin(t, Size)
	say(f, 0, 1)
	long := []byte(strings.Repeat("x", 1000) + "\n")
	f.disk.Lock() // as a write that does not return
	for range 5 * maxPending / len(long) {
		_, _ = f.Write(long)
	}
	f.disk.Unlock()
	f.End()
	say(f, 1, 2)
	got := all(f, 0)
	if !strings.Contains(got, "slower than the log") || !strings.HasSuffix(got, "line 1\n") || len(got) > 3*maxPending {
		t.Errorf("%d bytes were kept, which end with %q", len(got), got[max(0, len(got)-300):])
	}
}

func TestAFloodIsLimited(t *testing.T) {
	var b bytes.Buffer
	h := Limit(slog.NewTextHandler(&b, nil))
	at := time.Unix(1_000_000, 0)
	say := func(level slog.Level, text string) {
		_ = h.Handle(t.Context(), slog.NewRecord(at, level, text, 0))
	}
	for range 10_000 {
		say(slog.LevelWarn, "stranger")
	}
	say(slog.LevelWarn, "friend")
	if n := strings.Count(b.String(), "stranger"); n != int(warning.burst) {
		t.Errorf("%d lines of one kind at once, wanted %g", n, warning.burst)
	}
	if !strings.Contains(b.String(), "friend") {
		t.Error("another kind of line was left out too")
	}
	b.Reset()
	at = at.Add(10 * time.Second)
	for range 10_000 {
		say(slog.LevelWarn, "stranger")
	}
	if n := strings.Count(b.String(), "stranger"); n != 10 || !strings.Contains(b.String(), "lines=9900") {
		t.Errorf("ten seconds later: %d lines, in %q", n, b.String())
	}
	for i := range 10_000 {
		say(slog.LevelInfo, fmt.Sprint("kind ", i))
	}
	if n := strings.Count(b.String(), "kind"); n > maxKinds+int(usual.burst) {
		t.Errorf("%d lines of very many kinds", n)
	}
}
