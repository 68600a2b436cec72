package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/manual"
)

// inboxID is what each end exports for the other's messages.
const inboxID = 1

// end is one of the two processes. Each has an inbox that the other imports, raw
// memory of the same shape, and on the remote path a raw TCP connection.
type end struct {
	Config
	p     *vmmc.Process
	in    *vmmc.Export
	out   *vmmc.Import
	node  vmmc.NodeID // the other's
	pid   vmmc.PID
	raw   *baseline.Memory
	tcp   *baseline.TCP
	ln    net.Listener // of the near end, for raw TCP connections
	dials string       // of the far end: where that is
	talk  *talk
	say   *json.Encoder // the near end's, to the command
	seq   uint32
	done  int
	total int

	settles bool   // nothing else says where the ends run
	socket  string // of this end's node
	dest    manual.DestSpace
	addr    manual.ProxyAddr // of the other's inbox

	farSocket string        // of the other end's node
	handled   *vmmc.Export  // of the far end: with a handler
	final     atomic.Uint32 // the word after which that one says that it is over
	over      chan struct{}
	crowd     []crowded // of the far end: many exports

	introduced *baseline.Introduced // on one node: for the limit of first imports
	rpc        *rpcServer
	via        *viaEnd // of the far end
}

// inbox is how long the inboxes are.
func (c *Config) inbox() int {
	most := 4 << 20
	if len(c.Sizes) > 0 {
		most = slices.Max(c.Sizes)
	}
	return max(most, 1<<20)
}

// markSize is the room behind the inbox for a word that says where in a stream the
// messages that count begin.
const markSize = 64

// introduction is the first thing that each end says to the other.
type introduction struct {
	Node string
	// The node's socket.
	Socket string
	PID    vmmc.PID
	TCP    string
}

// RunEnd is what a child does: args are the role, the node's socket and the
// configuration.
func RunEnd(ctx context.Context, args []string) (err error) {
	if len(args) > 0 && args[0] == restartMember {
		return runRestartMember(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == namesMember {
		return runNamesMember(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == namesEcho {
		return runNamesEcho(args[1:])
	}
	if len(args) != 3 {
		return fmt.Errorf("role, socket and configuration wanted, got %q", args)
	}
	e := &end{say: json.NewEncoder(os.Stdout), seq: 1 << 29, socket: args[1]}
	if err := json.Unmarshal([]byte(args[2]), &e.Config); err != nil {
		return err
	}
	cpus, err := unix.CPUs()
	if err != nil {
		return err
	}
	e.settles = e.Pin == "" && len(cpus) > 1
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	go func() { // the command is gone, or has all that it wants
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
		cancel(errOver)
	}()
	if e.talk, err = newTalk(3, cancel); err != nil {
		return err
	}
	defer e.talk.close()
	if e.raw, err = baseline.OpenMemory(4, 5, e.inbox()); err != nil {
		return err
	}
	defer e.raw.Close()
	near := args[0] == "near"
	if e.Path == Local {
		begin := baseline.NewExporter
		if near {
			begin = baseline.NewImporter
		}
		if e.introduced, err = begin(os.NewFile(6, "introducer")); err != nil {
			return err
		}
		defer e.introduced.Close()
	}
	opts := []vmmc.Option{vmmc.WithSocket(args[1])}
	if e.Encrypt {
		opts = append(opts, vmmc.WithEncryption())
	}
	if e.p, err = vmmc.Open(ctx, opts...); err != nil {
		return err
	}
	defer func() {
		if cerr := e.p.Close(); err == nil {
			err = cerr
		}
	}()
	defer func() {
		if e.ln != nil {
			_ = e.ln.Close()
		}
		if e.tcp != nil {
			e.tcp.Close()
		}
	}()
	if err := e.meet(ctx, near); err != nil {
		return fmt.Errorf("join both ends: %w", err)
	}
	if !near {
		return e.serve(ctx)
	}
	if err := e.measure(ctx); err != nil {
		return err
	}
	if err := e.say.Encode(event{Over: true}); err != nil {
		return err
	}
	<-over
	return nil
}

var errOver = errors.New("the command has ended")

// meet makes all that the two ends have in common.
func (e *end) meet(ctx context.Context, near bool) error {
	m, err := e.p.Alloc(e.inbox() + markSize)
	if err != nil {
		return err
	}
	if e.in, err = e.p.Export(inboxID, m.Bytes()); err != nil {
		return err
	}
	me := introduction{Node: e.p.Node().String(), Socket: e.socket, PID: e.p.PID()}
	if e.Path == Remote && near {
		// the limit is what TCP can do, and what BBR paces is a draw of two speeds
		lc := net.ListenConfig{Control: unix.BeginUnpaced}
		if e.ln, err = lc.Listen(ctx, "tcp", net.JoinHostPort(cmp.Or(e.Near.Host, "127.0.0.1"), "0")); err != nil {
			return err
		}
		me.TCP = e.ln.Addr().String()
	}
	if err := e.talk.send(me); err != nil {
		return err
	}
	var other introduction
	if err := e.talk.receive(ctx, &other); err != nil {
		return err
	}
	if e.node, err = e.p.NameToNode(other.Node); err != nil {
		return err
	}
	e.pid, e.farSocket = other.PID, other.Socket
	if e.out, err = e.p.Import(ctx, e.node, e.pid, inboxID); err != nil {
		return err
	}
	if e.addr, err = e.dest.Add(e.out); err != nil {
		return err
	}
	if e.dials = other.TCP; e.Path == Remote {
		return e.join(ctx)
	}
	return nil
}

// join makes a raw TCP connection in place of the one before. Both ends do it, the far one first:
// no time says that it will not come, but the context ends with it.
func (e *end) join(ctx context.Context) error {
	if e.tcp != nil {
		e.tcp.Close()
		e.tcp = nil
	}
	var c net.Conn
	var err error
	if e.ln != nil {
		stop := context.AfterFunc(ctx, func() { _ = e.ln.Close() })
		if c, err = e.ln.Accept(); err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		stop()
	} else {
		d := net.Dialer{Control: unix.BeginUnpaced}
		c, err = d.DialContext(ctx, "tcp", e.dials)
	}
	if err != nil {
		return err
	}
	e.tcp, err = baseline.NewTCP(c.(*net.TCPConn))
	return err
}

// await waits until the last word of a message that ends at an offset of the inbox is v.
func (e *end) await(ctx context.Context, end int, v uint32) error {
	w, err := e.in.Word(end - 4)
	if err != nil {
		return err
	}
	for have := w.Load(); have != v; {
		if have, err = w.Wait(ctx, have); err != nil {
			return err
		}
	}
	return nil
}

// next reserves n values for last words; none is used twice in a run.
func (e *end) next(n int) (first uint32) {
	first = e.seq
	e.seq += uint32(n)
	return first
}
