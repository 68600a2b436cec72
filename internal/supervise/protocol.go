package supervise

import (
	"strconv"
	"time"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// The requests of a daemon to a supervisor, in the packets of the local protocol.
const (
	Greet  nodeproto.Method = iota + 128 // Greeting -> State
	Start                                // Order -> Program
	Note                                 // Program that has joined -> Empty
	Leave                                // ListRequest.After is the pid that has left -> Empty
	List                                 // ListRequest -> Listing
	Await                                // AwaitRequest -> Program
	Signal                               // SignalRequest -> Signalled
	Read                                 // ReadRequest -> Chunk
	End                                  // Empty -> Leftovers, when nothing of the session runs any more
	Attend                               // AttendRequest -> Empty, at the program's end
	Write                                // WriteRequest -> Written
	Resize                               // ResizeRequest -> Empty
)

// ready is what a supervisor writes to the daemon that started it; anything else is an error.
const ready = "ready"

// Greeting says which session the daemon takes this for.
type Greeting struct {
	Session string
	Marker  string
}

// State is what a daemon must know of a supervisor.
type State struct {
	Base    string // as the kernel names it
	Streams bool   `json:",omitempty"` // it keeps standard output and standard error apart, and has Order.Follow
	Leases  bool   `json:",omitempty"` // it has Order.Bound, and AttendRequest.Group
	Affine  bool   `json:",omitempty"` // it has Order.Processors and Order.Turn
}

// ListRequest asks for the programs with a pid greater than After.
type ListRequest struct {
	After   uint32
	Running bool // only those that have not ended
	Reserve bool `json:",omitempty"` // and those for which a name was kept
}

// Listing is as much of them as fits.
type Listing struct {
	Programs []Program
	More     bool
}

// AwaitRequest waits for a program's end and for its output.
type AwaitRequest struct {
	PID uint32
	For time.Duration // at most
}

// SignalRequest signals one program, or a run group, or with 0 for both all of
// the session.
type SignalRequest struct {
	PID    uint32
	Group  uint32
	Signal int
}

// Signalled says how many programs a signal went to.
type Signalled struct{ Programs int }

// ReadRequest asks for a program's output.
type ReadRequest struct {
	PID    uint32
	Offset int64
	Max    int
	For    time.Duration // how long to wait for any

	Attended bool // the caller attends to the program, and has processed all output before Offset

	// The caller knows of streams, and of what was not kept: Offset counts all that the program has
	// printed, and the answer is Apart. Without it Offset is one in the file.
	Apart bool `json:",omitempty"`
	Tail  *int `json:",omitempty"` // with Apart: only where the last so many lines begin, as Next
}

// Chunk is a piece of output. Done: the program has ended and there is no more.
type Chunk struct {
	Data []byte
	Done bool

	// Of a supervisor that knows ReadRequest.Apart, when it was asked for.
	Apart  bool    `json:",omitempty"`
	Next   int64   `json:",omitempty"` // the offset behind Data
	Pieces []Piece `json:",omitempty"` // of Data, in order
	Lost   int64   `json:",omitempty"` // bytes before Data, from the offset on, that are not kept
	Why    string  `json:",omitempty"`
}

// Piece is a part of a program's output that it has printed at once to one stream.
type Piece struct {
	Error bool      `json:",omitempty"` // to standard error
	Bytes int       // how many
	Time  time.Time // when they were read
}

// AttendRequest holds a program's input or terminal for as long as it is under
// way; or with Group, which PID is not given with, the lease of a run group, see [Order].
type AttendRequest struct {
	PID   uint32
	Group uint32 `json:",omitempty"`
}

// WriteRequest gives a program input.
type WriteRequest struct {
	PID    uint32
	Offset int64 // of Data, in all of its input
	Data   []byte
	End    bool // the input ends behind Data
	For    time.Duration
}

// Written says how much input a program has got in all, and whether its input has no
// reader any more.
type Written struct {
	Taken  int64
	Closed bool
}

// ResizeRequest changes the size of a program's terminal.
type ResizeRequest struct {
	PID  uint32
	Size unix.Size
}

// Leftovers are processes that the supervisor may not end: programs that have
// become another user.
type Leftovers struct{ Real []int }

// The bounds of what one supervisor keeps.
const (
	MaxRunning = 2048     // programs at a time
	maxEnded   = 4096     // programs that have ended; the oldest are forgotten
	MaxChunk   = 32 << 10 // output in one answer
	maxPieces  = 64       // in one answer
	maxPage    = 32 << 10 // a listing's JSON
	maxCommand = 512      // of a command line, in listings
)

func uitoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
