//go:build linux && !amd64 && !arm64

package unix

import (
	"fmt"
	"os"
	"syscall"
)

// canHelp: this architecture has no spawn helper. The program is executed by this process, which a
// file that hangs holds up.
const canHelp = false

const reportSize = 0

// launch has the descriptors of a program.
type launch struct {
	image *os.File
	files []*os.File
	steps []string
}

func (*launch) close() {}

func (*launch) path() string { return "" }

func prepare(Program, []*os.File) (*launch, error) { return nil, ErrUnsupported }

func failure([]byte, Program, []string) error { return ErrUnsupported }

func (p *Program) direct(a *os.ProcAttr) error {
	if p.As != nil {
		a.Sys.Credential = &syscall.Credential{Uid: p.As.UID, Gid: p.As.GID, Groups: p.As.Groups}
	}
	a.Dir = p.Dir
	if p.In != nil {
		rc, err := p.In.SyscallConn()
		if err != nil {
			return err
		}
		return rc.Control(func(fd uintptr) { a.Dir = fmt.Sprintf("/proc/self/fd/%d", fd) })
	}
	return nil
}
