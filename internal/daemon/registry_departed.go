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

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// maxDeparted bounds the number of ended processes that are remembered. Links of forgotten ones end
// when their resume limit expires.
const maxDeparted = 16 << 10

// departed is the list of this node's processes that have ended or left, as far as this daemon saw
// it or the journal says so. A process that joined an earlier daemon and has not rejoined is in it
// only if the kernel says that it has ended.
type departed struct {
	mu   sync.Mutex
	list []departure // oldest first, from next on
	next int
	last int64 // when the latest one ended, as departure has it
}

// departure is the end of a process.
type departure struct {
	nodeproto.ProcessID
	// Seconds since 1970; of a daemon before this one that did not write it, when this one began.
	at int64
}

// add adds a process that has ended now.
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

// latest returns up to n of them, the latest last.
func (d *departed) latest(n int) []departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Concat(d.list[d.next:], d.list[:d.next])
	return all[max(0, len(all)-n):]
}

// has searches the whole list, which takes about 20 us. It runs a few times a second, for links
// that have lost their connection. A map beside the list went on growing, by 1.6 MB, where the
// oldest went as new ones came.
func (d *departed) has(id nodeproto.ProcessID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.list, func(o departure) bool {
		return o.Incarnation == id.Incarnation && o.ProcessID == id
	})
}

// noteDeparture classifies the end of a process's connection. A connection that this daemon ended,
// or that broke by a malformed packet, says nothing about the process, whose links go on. A process
// that did not read its connection may rejoin, and so may one that was just rejoining.
func (reg *registry) noteDeparture(p *process) {
	err := p.conn.Err()
	ended := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
	id := p.id.Load()
	switch {
	case id == nil || reg.n.isStopping(): // the next daemon asks the kernel
	case reg.journal.change(*id, memberExpected, memberReturning):
	case errors.Is(err, os.ErrDeadlineExceeded):
		reg.journal.change(*id, memberExpected, memberJoined)
	case ended:
		if !reg.departed.has(*id) { // unless the journal has seen it first
			reg.departed.add(*id)
		}
		reg.journal.change(*id, memberEnded, memberJoined)
	default: // it sent a malformed packet: it cannot rejoin, and may live on with its links
		reg.journal.change(*id, memberDropped, memberJoined)
	}
}

// hasDeparted reports whether a process is known to have ended. The node that is asked may not
// know.
func (reg *registry) hasDeparted(ctx context.Context, id nodeproto.ProcessID) (bool, error) {
	if id.Node == reg.n.cfg.Name {
		return reg.departed.has(id), nil
	}
	o, err := reg.n.cluster.peer(id.Node)
	if err != nil {
		return false, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout.Ping,
		code.New(code.Unreachable, "node %q at %s has not answered within %v", o.host.Name,
			o.host.Control, timeout.Ping))
	defer stop()
	a, err := o.client.Departed(ctx, connect.NewRequest(&nodev1.DepartedRequest{
		Process: processID(id),
	}))
	if err != nil {
		return false, o.failed(ctx, err)
	}
	return a.Msg.GetDeparted(), nil
}
