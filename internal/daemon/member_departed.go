package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// maxDeparted bounds how many processes are remembered that are there no more: of the
// oldest it is not known then, and their links end when nobody has resumed them in time.
const maxDeparted = 16 << 10

// departed are the processes of this node that have ended, or have left it, as far as this
// daemon has seen it or knows it from the roll. One that joined the daemon before this one and has not come
// back is among them only if the kernel says that it has ended.
type departed struct {
	mu   sync.Mutex
	list []departure // oldest first, from next on
	next int
	last int64 // when the latest one ended, as departure has it
}

// departure is the end of a process.
type departure struct {
	nodeproto.ProcessID
	at int64 // seconds since 1970; of a daemon before this one that did not write it, when this one began
}

// add notes one that has ended now.
func (d *departed) add(id nodeproto.ProcessID) { d.addAt(departure{id, time.Now().Unix()}) }

func (d *departed) addAt(e departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = max(d.last, e.at)
	if len(d.list) < maxDeparted {
		d.list = append(d.list, e)
	} else {
		d.list[d.next] = e
		d.next = (d.next + 1) % maxDeparted
	}
}

// askedAfter is for how long other nodes ask about a process that has ended: as long as their
// processes wait for a link to be resumed, if they notice its loss by its silence.
const askedAfter = timeout.Resume + timeout.Hello + timeout.Silence

// asked reports whether another node may ask about one of them still.
func (d *departed) asked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last > 0 && time.Since(time.Unix(d.last, 0)) < askedAfter
}

// latest are up to n of them, the latest last.
func (d *departed) latest(n int) []departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Concat(d.list[d.next:], d.list[:d.next])
	return all[max(0, len(all)-n):]
}

// has looks through all, which takes some 20 us: it is asked for links that have lost their connection, a few times a
// second. A map beside the list went on growing, by 1.6 MB, where the oldest went as new ones came.
func (d *departed) has(id nodeproto.ProcessID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.list, func(o departure) bool { return o.Incarnation == id.Incarnation && o.ProcessID == id })
}

// noteDeparture notes that a process has ended its connection. A connection that was ended
// here, or by what came over it, says nothing of the process, whose links go on. One that was given up
// because the process did not read it may be made anew, and so may one of a process that was just coming back.
func (n *Node) noteDeparture(p *process) {
	err := p.conn.Err()
	ended := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	id := p.id.Load()
	n.mu.Lock()
	closed := n.closed
	n.mu.Unlock()
	switch {
	case id == nil || closed: // the next daemon asks the kernel
	case p.returning.Load() || errors.Is(err, os.ErrDeadlineExceeded):
		n.journal.expectReturn(*id)
	case ended:
		n.departed.add(*id)
		n.journal.end(*id)
	default: // it has said what makes no sense: it does not come back, and may live on with its links
		n.journal.drop(*id)
	}
}

// hasDeparted says whether a process is known to be no more. Who is asked may not know.
func (n *Node) hasDeparted(ctx context.Context, id nodeproto.ProcessID) (bool, error) {
	if id.Node == n.cfg.Name {
		return n.departed.has(id), nil
	}
	o, err := n.peerNode(id.Node)
	if err != nil {
		return false, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout.Ping,
		code.New(code.Unreachable, "node %q at %s has not answered within %v", o.host.Name, o.host.Control, timeout.Ping))
	defer stop()
	a, err := o.client.Departed(ctx, connect.NewRequest(&nodev1.DepartedRequest{Process: processID(id)}))
	if err != nil {
		return false, o.failed(ctx, err)
	}
	return a.Msg.GetDeparted(), nil
}

// Departed is asked by another node, one of whose processes waits for one of this node.
func (s *service) Departed(ctx context.Context, r *connect.Request[nodev1.DepartedRequest]) (*connect.Response[nodev1.DepartedResponse], error) {
	p, _ := ctx.Value(callerKey{}).(cert.Peer)
	if p.Kind != cert.Node {
		return nil, coded(code.New(code.NoRights, "%v is no node", p))
	}
	m := r.Msg.GetProcess()
	id := nodeproto.ProcessID{Node: s.n.cfg.Name, PID: m.GetPid(), Incarnation: m.GetIncarnation()}
	return connect.NewResponse(&nodev1.DepartedResponse{Departed: m.GetNode() == id.Node && s.n.departed.has(id)}), nil
}
