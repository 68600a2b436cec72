package mount

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Point is a line of the kernel's table of what is mounted.
type Point struct {
	Type string
	Root string // the part of the file system that is seen there
	At   string
}

// Points is what this process sees.
func Points() ([]Point, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parsePoints(string(b)), nil
}

func parsePoints(table string) (out []Point) {
	for line := range strings.Lines(table) {
		front, back, ok := strings.Cut(line, " - ")
		f, kind := strings.Fields(front), strings.Fields(back)
		if !ok || len(f) < 6 || len(kind) == 0 {
			continue
		}
		out = append(out, Point{Type: kind[0], Root: plain(f[3]), At: plain(f[4])})
	}
	return out
}

// plain undoes the kernel's \040 and its like.
func plain(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Mounted reports whether anything is mounted at a path. It reads the table alone and
// looks nothing up below the path, so no server is asked.
func Mounted(at string) (bool, error) {
	points, err := Points()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(points, func(p Point) bool { return p.At == at }), nil
}

// lookPatience bounds a look at a process.
const lookPatience = 500 * time.Millisecond

func usesBelow(dir, at string) bool {
	links := []string{dir + "/cwd", dir + "/root", dir + "/exe"}
	fds, _ := filepath.Glob(dir + "/fd/*")
	return slices.ContainsFunc(append(links, fds...), func(l string) bool {
		to, err := os.Readlink(l)
		return err == nil && (to == at || strings.HasPrefix(to, at+"/"))
	})
}

// Users are the processes that have anything open at or below a path, or stand
// there, as far as this process may look.
func Users(at string) (out []int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		uses := make(chan bool, 1)
		if unix.LookAt(pid, lookPatience, func() { uses <- usesBelow(dir, at) }) == nil && <-uses {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}
