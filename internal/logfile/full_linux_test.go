package logfile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestAFullDisk runs on a file system of its own, in a mount namespace that ends
// with the process.
func TestAFullDisk(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "mounting a small file system needs root")
	if _, err := exec.LookPath("mount"); err != nil {
		t.Skip("there is no mount(8)")
	}
	c := testutil.Command(t, "fulldisk", t.TempDir())
	c.SysProcAttr.Unshareflags |= syscall.CLONE_NEWNS
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// roleFullDisk fills a small file system, logs to it, and makes room again.
func roleFullDisk() int {
	dir := testutil.Args()[0]
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", dir).CombinedOutput(); err != nil {
		fmt.Printf("mount: %v: %s\n", err, out)
		return 1
	}
	f := Open(filepath.Join(dir, "logs", "server.log"), Size)
	defer f.Close()
	say(f, 0, 10)
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = ballast.Write(block)
	}
	_ = ballast.Close()
	long := strings.Repeat("x", 3000)
	for range 100 {
		_, _ = fmt.Fprintf(f, "%s\n", long)
		f.End()
	}
	if s := all(f, 0); !strings.HasSuffix(s, "\n") || strings.Contains(s[strings.LastIndexByte(s[:len(s)-1], '\n')+1:], "line 10") {
		fmt.Printf("the full disk has %d bytes that end with %q\n", len(s), s[max(0, len(s)-100):])
		return 1
	}
	if err := os.Remove(ballast.Name()); err != nil {
		fmt.Println(err)
		return 1
	}
	say(f, 10, 11)
	got := all(f, 0)
	for _, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if !strings.HasPrefix(line, "line ") && line != long && !strings.Contains(line, "no space left on device") {
			fmt.Printf("a line that is not whole: %.200q\n", line)
			return 1
		}
	}
	if !strings.HasPrefix(got, lines(0, 10)) || !strings.HasSuffix(got, "line 10\n") || !strings.Contains(got, "no space left on device") {
		fmt.Printf("with room again it has %d bytes that end with %q\n", len(got), got[max(0, len(got)-300):])
		return 1
	}
	return 0
}
