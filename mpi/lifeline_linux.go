//go:build linux

package mpi

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// "vmmc mpirun" on one machine kills its ranks when it is killed, but not what these have spawned: that
// may outlive them. It has two pipes with all of them. The first one ends with the tool: a child reads it,
// and ends then. The second one ends with the last rank or child, for which the tool waits if a rank has
// written that it spawns.

// lifeline is the ends of this program.
type lifeline struct{ tool, ranks *os.File }

// lifelines takes the pipes, once in a program. It has none if no tool has given it any.
var lifelines = sync.OnceValue(func() *lifeline {
	var fds [2]uintptr
	var inodes [2]uint64
	value := env.Get(nodeproto.LifelineEnv)
	if n, err := fmt.Sscanf(value, "%d:%d,%d:%d", &fds[0], &inodes[0], &fds[1], &inodes[1]); n != 4 || err != nil {
		return nil
	}
	for i, fd := range fds { // another program in between may have closed them, and opened others
		if !isPipe(fd, inodes[i]) {
			return nil
		}
		syscall.CloseOnExec(int(fd))
	}
	return &lifeline{os.NewFile(fds[0], "the tool's end"), os.NewFile(fds[1], "the ranks' end")}
})

// give hands the pipes on to a program that is about to be started. It returns the variables for it.
func (l *lifeline) give(files *[]*os.File) []string {
	if l == nil {
		return nil
	}
	if _, err := l.ranks.Write([]byte{1}); err != nil {
		return nil // the tool has ended, and so will this rank
	}
	*files = []*os.File{l.tool, l.ranks}
	var inodes [2]uint64
	for i, f := range *files {
		inodes[i] = inodeOf(f)
	}
	return []string{fmt.Sprintf("%s=3:%d,4:%d", nodeproto.LifelineEnv, inodes[0], inodes[1])}
}

// endWithTool ends this program when the tool ends.
func (l *lifeline) endWithTool() {
	if l == nil {
		return
	}
	go func() { // ends with the program
		_, _ = l.tool.Read(make([]byte, 1))
		fmt.Fprintln(os.Stderr, "mpi: this rank was spawned below vmmc mpirun, and ends with that")
		os.Exit(1)
	}()
}

// isPipe reports whether a descriptor is the pipe with an inode.
func isPipe(fd uintptr, inode uint64) bool {
	var st syscall.Stat_t
	return syscall.Fstat(int(fd), &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFIFO && st.Ino == inode
}

func inodeOf(f *os.File) uint64 {
	fi, err := f.Stat()
	if err != nil {
		return 0
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
