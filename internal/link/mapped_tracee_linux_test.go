//go:build amd64 && !race

package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

func init() { testutil.RegisterRole("traced sender", tracedSender) }

// tracedSender is the process whose sender TestMappedTraces traces.
func tracedSender() int {
	traces, err := parseTraces(testutil.Args()[0])
	if err == nil {
		err = runTraced(traces)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runTraced makes all calls on a thread of its own. There is one processor for all goroutines and
// no collection, so no other goroutine runs during a call.
func runTraced(traces []*trace) error {
	runtime.LockOSThread() // so that the next goroutine gets another thread than the process's first
	defer runtime.UnlockOSThread()
	runtime.GC()
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(1)
	over := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		th := unix.OwnThread()
		say := json.NewEncoder(os.Stdout)
		err := say.Encode(th.ID())
		if err == nil {
			_, err = os.Stdin.Read(make([]byte, 1)) // the tracer is there
		}
		for _, tr := range traces {
			if err == nil {
				if err = tr.run(th, say); err != nil {
					err = fmt.Errorf("%s: trace %s: %w", tr.description, tr.name, err)
				}
			}
		}
		if err == nil {
			th.Mark() // the tracer lets the thread go here
		}
		over <- err
		if err != nil {
			select {} // else the tracer would see the thread's end before it hears why
		}
	}()
	return <-over
}

// sender is the importing side of a link, whose exporting side nobody runs: its pages are what a
// trace says, and what the tracer stores. All of it lives as long as the process.
type sender struct {
	*trace
	e      *Engine
	rq     *Requester
	m      *Mapped
	far    int // The exporter's socket.
	areas  map[string][]byte
	source []byte
	buffer []byte
	owners []*shm.Region
}

// mine maps a page that the peer made, as its link would.
func mine[T any](r *shm.Region, open func(int) (T, error)) (v T, err error) {
	fd, err := r.Descriptor()
	if err != nil {
		return v, err
	}
	return open(fd)
}

func (tr *trace) newSender() (s *sender, err error) {
	s = &sender{trace: tr}
	own, err := shmlayout.NewProcess()
	if err != nil {
		return nil, err
	}
	if s.e, err = NewEngine(own.Board()); err != nil {
		return nil, err
	}
	peer, err := shmlayout.NewProcess()
	if err != nil {
		return nil, err
	}
	exporter, err := shmlayout.NewExporter()
	if err != nil {
		return nil, err
	}
	export, err := shm.New("traced", tr.size, false)
	if err == nil {
		err = export.Seal(false)
	}
	if err != nil {
		return nil, err
	}
	p := &Pages{}
	if p.Ring, err = shmlayout.NewImporter(); err != nil {
		return nil, err
	}
	if p.Peer, err = mine(peer.Region, shmlayout.OpenProcess); err != nil {
		return nil, err
	}
	if p.Back, err = mine(exporter.Region, shmlayout.OpenExporter); err != nil {
		return nil, err
	}
	pages, err := mine(export, func(fd int) (*shm.Region, error) { return shm.Open(fd, shm.RoundUp(tr.size), true) })
	if err != nil {
		return nil, err
	}
	s.source, s.buffer = aligned(pattern(tr.n)), aligned(make([]byte, tr.n))
	s.owners = []*shm.Region{own.Region, peer.Region, exporter.Region, export}
	s.areas = map[string][]byte{
		"export": export.Bytes()[:tr.size], "process": peer.Bytes(), "exporter": exporter.Bytes(),
		"importer": p.Ring.Bytes()[:shmlayout.ImporterSize], "buffer": s.buffer,
	}
	peer.State(tr.slot).Store(tr.alive)
	for _, p := range tr.puts {
		copy(s.areas[p.area][p.off:], p.b)
	}
	var fd int
	if fd, s.far, err = unix.StreamPair(); err != nil {
		return nil, err
	}
	if s.rq, err = NewRequester(s.e, fd, p, Terms{}, func(uint32, uint64, error) {}, func(error) {}); err != nil {
		return nil, err
	}
	s.rq.Describe(shmlayout.LinkPeer{Node: "peer", PID: 1})
	s.m = NewMapped(s.rq, tr.handle, pages, 0, tr.size, tr.slot, tr.alive, tr.addr)
	s.m.Ended, s.m.Fast, s.m.FastNotify = new(atomic.Bool), true, true
	return s, s.setWords()
}

// aligned returns the bytes where a copy of them takes no other path for the sake of alignment.
func aligned(b []byte) []byte {
	c := make([]byte, len(b)+64)
	at := (64 - int(shm.Addr(c, 0)%64)) % 64
	return append(c[at:at], b...)
}

// setWords gives the sender's own words the values that the trace says.
func (s *sender) setWords() error {
	for name, v := range s.words {
		switch name {
		case "last_seq":
			s.rq.lastSeq.Store(v)
		case "acked_seq":
			s.rq.ackedSeq.Store(v)
		case "pending":
			s.rq.backlog.pending.Store(int32(v))
		case "link_ended":
			err := Gone("the trace has ended the link")
			s.rq.cause.Store(&err)
			s.rq.failed.Store(true)
		case "credits_taken":
			s.rq.creditsTaken.Store(uint32(v))
		case "credits_seen":
			s.rq.creditsSeen.Store(uint32(v))
		case "last_serial":
			s.rq.lastSerial = uint32(v)
		case "closed":
			s.m.closed.Store(true)
		case "import_ended":
			s.m.Ended.Store(true)
		default:
			return fmt.Errorf("unknown word %q", name)
		}
	}
	return nil
}

// context has ended if the call would wait for the stream: it gives up.
func (s *sender) context() context.Context {
	if s.rq.AllApplied() {
		return context.Background()
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}

// run makes the call, between two marks.
func (tr *trace) run(th unix.Thread, say *json.Encoder) error {
	s, err := tr.newSender()
	if err != nil {
		return err
	}
	r := ready{Areas: map[string]area{}, Socket: s.rq.fd}
	for name, b := range s.areas {
		r.Areas[name] = area{shm.Addr(b, 0), len(b)}
	}
	if err := say.Encode(r); err != nil {
		return err
	}
	call, err := s.call()
	if err != nil {
		return err
	}
	ctx := s.context()
	runtime.Gosched()
	th.Mark()
	err = call(ctx)
	th.Mark()
	d := done{Result: result(err)}
	if d.After, err = s.after(); err != nil {
		return err
	}
	if d.Frames, err = s.frames(); err != nil {
		return err
	}
	runtime.KeepAlive(s.owners)
	return say.Encode(d)
}

// call is what the trace calls, as [vmmc.Import] does it.
func (s *sender) call() (func(context.Context) error, error) {
	m, off, at := s.m, s.off, s.at
	slow := func(try, whole func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := try(ctx); err != ErrSlowPath { //nolint:errorlint // nothing wraps it
				return err
			}
			return whole(ctx)
		}
	}
	trySend := func(context.Context) error { return m.TrySend(off, s.source) }
	tryNotify := func(context.Context) error { return m.TrySendNotify(off, s.source) }
	trySignal := func(context.Context) error { return m.TrySignal(off, s.source, at, signalWord) }
	switch s.op {
	case "try-send":
		return trySend, nil
	case "send":
		return slow(trySend, func(ctx context.Context) error { return m.Send(ctx, off, s.source) }), nil
	case "try-notify":
		return tryNotify, nil
	case "notify":
		return slow(tryNotify, func(ctx context.Context) error { return m.SendNotify(ctx, off, s.source) }), nil
	case "try-signal":
		return trySignal, nil
	case "signal":
		return slow(trySignal, func(ctx context.Context) error { return m.SendSignal(ctx, off, s.source, at, signalWord) }), nil
	case "write":
		return func(ctx context.Context) error { return m.Write(ctx, off, s.source) }, nil
	case "get":
		return func(ctx context.Context) error { return m.Get(ctx, off, s.buffer, false) }, nil
	case "read":
		return func(ctx context.Context) error { return m.Get(ctx, off, s.buffer, true) }, nil
	}
	return nil, fmt.Errorf("unknown call %q", s.op)
}

// signalWord is the word of all signals.
const signalWord = 0xd4c3b2a1

// result names what a call returned.
func result(err error) string {
	unknown := ""
	if errors.Is(err, ErrUnknown) {
		unknown = "unknown-"
	}
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrSlowPath):
		return "slow"
	case errors.Is(err, context.Canceled):
		return unknown + "waits"
	case errors.Is(err, ErrRevoked):
		return unknown + "revoked"
	case errors.Is(err, ErrGone):
		return unknown + "gone"
	case errors.Is(err, ErrClosed):
		return unknown + "closed"
	}
	return fmt.Sprintf("%v", err)
}

// after are the sender's words and counters that are not 0.
func (s *sender) after() (lines []string, err error) {
	add := func(name string, n uint64) {
		if n != 0 {
			lines = append(lines, fmt.Sprintf("after %s %d", name, n))
		}
	}
	add("credits_taken", uint64(s.rq.creditsTaken.Load()))
	add("credits_seen", uint64(s.rq.creditsSeen.Load()))
	add("last_serial", uint64(s.rq.lastSerial))
	fd, err := s.e.Counters()
	if err != nil {
		return nil, err
	}
	r, err := shmlayout.OpenCounters(fd)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	links, _, err := r.Read()
	if err != nil || len(links) != 1 {
		return nil, fmt.Errorf("%d links are counted: %w", len(links), err)
	}
	c := links[0].Counts
	add("messages", c[shmlayout.Messages])
	add("bytes", c[shmlayout.Bytes])
	add("notifications", c[shmlayout.Notifications])
	add("gets", c[shmlayout.Gets])
	add("get_bytes", c[shmlayout.GetBytes])
	return lines, nil
}

// frames are those that the exporter has received.
func (s *sender) frames() (names []string, err error) {
	var in unix.IO
	for n := uint32(0); ; n++ {
		b := make([]byte, wire.HeaderSize)
		got, err := in.Recv(s.far, b, nil)
		if err != nil || got == 0 {
			return names, err
		}
		var h wire.Header
		if err := h.Parse(b[:got], n); err != nil {
			return nil, err
		}
		switch h.Type {
		case wire.Bell:
			names = append(names, "bell")
		case wire.Ping:
			names = append(names, "ping")
		default:
			return nil, fmt.Errorf("a frame of type %d", h.Type)
		}
	}
}
