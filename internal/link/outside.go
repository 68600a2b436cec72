package link

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Outside is what code outside of Go needs to send and get on the mapped path as [Mapped.TrySend]
// and [Mapped.Get] do. All words are those that these functions read themselves: there is no copy
// that could lag behind. They stay where they are while the Mapped and the Import are reachable and
// pinned, see [Outside.Pin].
type Outside struct {
	Mapped *Mapped
	Mem    []byte
	Region *shm.Region // Has Mem.
	Board  wait.Board
	Addr   uint64 // The export's on the board; 0: none.

	State     *atomic.Uint32
	LiveState uint32

	Pending           *atomic.Int32
	LastSeq, AckedSeq *atomic.Uint64
	LinkEnded         *atomic.Bool
	ImportEnded       *atomic.Bool
	Closed            *atomic.Bool

	Lanes *[shm.Lanes][shm.ShardCounters]uint64 // The link's counters.

	// Sends must not bypass [Mapped.Send]: the export is redirectable.
	Redirectable bool
}

// Outside returns it. m.Ended and m.Claims are set.
func (m *Mapped) Outside() Outside {
	rq := m.req
	return Outside{
		Mapped: m, Mem: m.mem, Region: m.region, Board: m.board, Addr: m.addr,
		State: m.exportState, LiveState: m.liveState,
		Pending: &rq.backlog.pending, LastSeq: &rq.lastSeq, AckedSeq: &rq.ackedSeq,
		LinkEnded: &rq.failed, ImportEnded: m.Ended, Closed: &m.closed,
		Lanes: m.counters.Lanes(), Redirectable: m.Claims != nil,
	}
}

// Pinner is a [runtime.Pinner].
type Pinner interface{ Pin(any) }

// Pin keeps the words of Go's heap where they are. Each pointer is to a word without pointers, so
// that code in C may keep it until p unpins.
func (o *Outside) Pin(p Pinner) {
	p.Pin(o.Pending)
	p.Pin(o.LastSeq)
	p.Pin(o.AckedSeq)
	p.Pin(o.LinkEnded)
	p.Pin(o.ImportEnded)
	p.Pin(o.Closed)
}

// FinishSend is the end of a send whose n bytes at off were stored outside of Go, the last word by
// an atomic exchange: it counts the message, and wakes the exporter's sleepers or returns why it is
// not known whether the message has arrived.
func (m *Mapped) FinishSend(off, n int) error { return m.finishMessage(off, n) }

// ProcessesOutside is how cmd/libvmmc reaches what a process of package vmmc has for code outside of
// Go. Package vmmc sets it; process is its *Process.
var ProcessesOutside struct {
	// Events has add called with each vmmc.Event from now on, when it happens: add neither waits nor
	// calls the library.
	Events func(process any, add func(event any))
	// SetGate is [Engine.SetGate], and GateOpened [Engine.GateOpened].
	SetGate    func(process any, g *Gate)
	GateOpened func(process any)
}

// RequestsOutside is how cmd/libvmmc reaches what a request of package vmmc has for code outside of
// Go. Package vmmc sets it; request is its Request.
var RequestsOutside struct {
	// StoreWhenDone is [Request.StoreWhenDone].
	StoreWhenDone func(request any, word *atomic.Uint64, value uint64)
}

// ExportsOutside is how cmd/libvmmc reaches the end of data of an export of package vmmc. Package
// vmmc sets it; ex is its *Export.
var ExportsOutside struct {
	// End returns false for an export that is not redirectable, whose data have no end.
	End func(ex any) (redirect.EndOutside, bool)
}

// ImportsOutside is how cmd/libvmmc reaches what an import of package vmmc has for code outside of
// Go. Package vmmc sets it; im is its *Import.
var ImportsOutside struct {
	// Of returns ok only for an import that is mapped, and its rights.
	Of func(im any) (o Outside, mayRead, mayWrite, ok bool)
	// FinishSend is [Mapped.FinishSend] with the error of a send.
	FinishSend func(im any, off, n int) error
}
