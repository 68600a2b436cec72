package supervise

import (
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Spec is what a supervisor is told of its session.
type Spec struct {
	Session string
	Node    string
	User    string // as the session was made with; may be empty
	Base    string // the directory that the session's drive stands for
	Output  string // the directory for output, absolute within the base
	Daemon  uint32 // the user whose daemons may reach the supervisor, beside root's and its own
	// In the environment of all programs: the next supervisor knows by it what this one left.
	Marker string
	// The session is being made: no supervisor before this one has left anything.
	New bool `json:",omitempty"`
}

// MarkerEnv is the variable that has the marker.
const MarkerEnv = "VMMC_SUPERVISED"

// Order is a program that is to be started.
type Order struct {
	PID       uint32 // the logical pid that it has
	Group     uint32 // the run group
	Parent    nodeproto.ProcessID
	Token     string // by which its node knows it when it joins
	Path      []byte // a relative one is relative to Directory
	Name      []byte // argument 0; empty: Path
	Search    bool   // a bare name that is not there is looked for in the environment's PATH
	Args      [][]byte
	Directory []byte // absolute within the base
	Env       [][]byte
	Input     bool      // it reads what is written for it; else its input is empty
	Terminal  *Terminal // it gets one, which is its input too; may be nil
	// Its output is read as it comes, with ReadRequest.Attended.
	Follow  bool   `json:",omitempty"`
	Reserve string `json:",omitempty"` // the name that its node keeps for it
	// It is killed with all of its run group here when no client has attended to the group for a
	// moment (AttendRequest.Group), or none does so in time.
	Bound bool `json:",omitempty"`
	// The processors that it may run on, or above 0 the number of one of the supervisor's, from 1 on
	// and in turn.
	Processors []int `json:",omitempty"`
	Turn       int   `json:",omitempty"`
}

// Terminal is what a program is to know of its user's terminal.
type Terminal struct {
	unix.Size
	Term string // may be empty
}

// Program is what a supervisor knows of a process of its session.
type Program struct {
	PID     uint32
	Real    int
	Group   uint32
	Parent  nodeproto.ProcessID
	Token   string `json:",omitempty"`
	Reserve string `json:",omitempty"`
	Command string // for people to read
	Begun   time.Time
	Joined  bool // was started elsewhere and has joined: its output goes elsewhere too

	Ended  bool
	Lost   bool // how it ended is not known
	Status int  // exit status; -1 if a signal ended it
	Signal int
	End    time.Time
	Swept  bool `json:",omitempty"` // it ended with its session

	Output  int64  // bytes that it has printed
	Missing int64  // those of them that are not kept
	Why     string // why the last of them were not
	Start   int64  // where its output begins in the file
}

// ErrSlowExec is why a program is not started whose file or directory does not answer.
var ErrSlowExec = fmt.Errorf("its directory, its file or its interpreter could not be opened within %v: a process holds a lease on it (F_SETLEASE), or its file server does not answer", timeout.Exec)

// maxDirectory bounds the path of a directory, as the kernel does.
const maxDirectory = 4095

// MaxName bounds a session's name as it stands in file names, so that there is
// room for a number behind it.
const MaxName = 200

// CheckSession refuses what cannot be the name of a session. All characters may
// be in it that an environment can carry.
func CheckSession(name string) error {
	switch {
	case name == "":
		return code.New(code.BadArg, "the session's name is empty: give it one")
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return code.New(code.BadArg, "the session's name %q is not valid UTF-8, or has a zero byte, which no environment carries", name)
	case len(FileName(name)) > MaxName:
		return code.New(code.BadArg, "the session's name takes %d bytes in file names, at most %d: choose a shorter one", len(FileName(name)), MaxName)
	}
	return nil
}

// FileName encodes a session's name for use in file names: what would make it
// another path, or a hidden file, as a percent sign and two digits.
func FileName(session string) string {
	r := strings.NewReplacer("%", "%25", "/", "%2F", "\x00", "%00")
	s := r.Replace(session)
	if strings.HasPrefix(s, ".") {
		s = "%2E" + s[1:]
	}
	return s
}

// LogName is the file that has the output of a process.
func LogName(node string, pid uint32) string { return "VMMC_" + node + "." + uitoa(pid) }

// CheckDirectory refuses a directory that is not absolute within its base, or
// that climbs out of it.
func CheckDirectory(what, dir string) error {
	switch {
	case !strings.HasPrefix(dir, "/"):
		return code.New(code.BadArg,
			"the %s %q is not absolute: within the session's drive it begins with /", what, dir)
	case strings.ContainsRune(dir, 0):
		return code.New(code.BadArg, "the %s %q has a zero byte", what, dir)
	}
	if len(dir) > maxDirectory {
		return code.New(code.BadArg, "the %s has %d bytes, at most %d", what, len(dir), maxDirectory)
	}
	depth := 0
	for part := range strings.SplitSeq(dir, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return code.New(code.BadArg, "the %s %q climbs out of the session's drive", what, dir)
			}
		default:
			depth++
		}
	}
	return nil
}

// within makes a directory of the drive a path relative to the base.
func within(dir string) string {
	if p := strings.TrimLeft(path.Clean("/"+dir), "/"); p != "" {
		return p
	}
	return "."
}
