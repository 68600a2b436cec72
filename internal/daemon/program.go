package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

const (
	maxComm    = 15 // bytes of a program's name that the kernel keeps
	maxProgram = 64 // bytes of one that the node tells
)

// findProgram looks up what the process runs, when it joins. Nothing waits for that: the
// process's owner can hold up a look at it.
func (p *process) findProgram() {
	p.n.wg.Go(func() {
		name := programOf(p.cred.PID)
		p.program.Store(&name)
	})
}

// programName is empty as long as the node does not know the program.
func (p *process) programName() string {
	if name := p.program.Load(); name != nil {
		return *name
	}
	return ""
}

// programOf is the name of the program that a process of this machine runs: the kernel's,
// which is a script's own where an interpreter runs that, or the file's where the kernel
// has cut the name.
func programOf(real int) string {
	found := make(chan string, 1)
	if unix.LookAt(real, time.Second, func() {
		dir := "/proc/" + strconv.Itoa(real)
		b, _ := os.ReadFile(dir + "/comm")
		name := string(bytes.TrimSuffix(b, []byte("\n")))
		if len(name) == maxComm {
			if exe, err := os.Readlink(dir + "/exe"); err == nil {
				if file := filepath.Base(strings.TrimSuffix(exe, " (deleted)")); strings.HasPrefix(file, name) {
					name = file
				}
			}
		}
		found <- name
	}) != nil {
		return ""
	}
	name := strings.ToValidUTF8(<-found, "�")
	return strings.ToValidUTF8(name[:min(len(name), maxProgram)], "")
}
