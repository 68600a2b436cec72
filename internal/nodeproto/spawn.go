package nodeproto

import (
	"bytes"

	"github.com/vmmc-go/vmmc/internal/code"
)

// Spawn goes from a process to its daemon: SpawnRequest -> Spawned. Unlike the
// others it must not be repeated: a second one starts a second program.
const Spawn Method = 32

// MaxSpawn bounds what a program is started with, in bytes: its path, its
// arguments with [ArgCost] for each, its directory and the names of hosts and
// session. It fits into a packet, whatever the bytes are.
const (
	MaxSpawn = 32 << 10
	ArgCost  = 8
)

// SpawnRequest starts a program. Paths and arguments are bytes: the system does
// not promise that they are text, and JSON would change what is none.
type SpawnRequest struct {
	Node      string
	Path      []byte   // also its argument 0; relative to Directory
	Args      [][]byte // from argument 1 on
	Directory []byte   // the caller's working directory, and the program's
	Hosts     []byte   // the caller's VMMCHOSTS
}

// Spawned is a program that was started. It has not joined yet.
type Spawned struct{ PID uint32 }

// Check refuses what cannot be started; session is the one of the caller.
func (r *SpawnRequest) Check(session string) error {
	size := len(r.Path) + len(r.Directory) + len(r.Hosts) + len(session)
	zero := bytes.IndexByte(r.Path, 0) >= 0 || bytes.IndexByte(r.Directory, 0) >= 0 ||
		bytes.IndexByte(r.Hosts, 0) >= 0 || bytes.IndexByte([]byte(session), 0) >= 0
	for _, a := range r.Args {
		size += len(a) + ArgCost
		zero = zero || bytes.IndexByte(a, 0) >= 0
	}
	switch {
	case len(r.Path) == 0:
		return code.New(code.BadArg, "the program's path is empty")
	case zero:
		return code.New(code.BadArg, "a zero byte in the path, an argument, the directory, VMMCHOSTS "+
			"or the session's name: no program can get it")
	case size > MaxSpawn:
		return code.New(code.BadArg, "path, arguments, directory, VMMCHOSTS and the session's name "+
			"have %d bytes (%d for each argument counted in), at most %d: hand the rest over in a file, "+
			"or by an import", size, ArgCost, MaxSpawn)
	case !bytes.HasPrefix(r.Directory, []byte("/")):
		return code.New(code.BadArg, "the working directory %q does not begin with /", r.Directory)
	}
	return nil
}
