package vrpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
)

// meetTime bounds what a client's letter may keep the server waiting for.
const meetTime = 5 * time.Second

// meetAtOnce is how many letters are answered at once. Others are written again.
const meetAtOnce = meetingPlaces

// vmmcListener is a server in a process.
type vmmcListener struct {
	s      *Server
	p      *vmmc.Process
	mem    *vmmc.Memory
	places chan struct{}
	meets  chan struct{}

	mu      sync.Mutex
	clients map[clientName]struct{}
	work    sync.WaitGroup
	ended   bool
}

// clientName names a connection.
type clientName struct {
	peer   vmmc.ProcessID
	buffer uint32
}

// ServeVMMC serves clients that connect by remote memory to a process, under the number of a
// buffer, mostly [Meeting], until the server is closed. opts are the buffer's: [vmmc.Permit] names
// the clients that may connect. By default those of the same user and session may. Close the server
// before p. The error is never nil; after Close it is ErrClosed.
func (s *Server) ServeVMMC(p *vmmc.Process, number uint32, opts ...vmmc.ExportOption) error {
	mem, err := p.Alloc(meetingPlaces * meetingSize)
	if err != nil {
		return err
	}
	defer mem.Close()
	h := &vmmcListener{
		s: s, p: p, mem: mem, clients: map[clientName]struct{}{},
		places: make(chan struct{}, s.connections), meets: make(chan struct{}, meetAtOnce),
	}
	exp, err := p.Export(number, mem.Bytes(), append(opts[:len(opts):len(opts)], vmmc.WithHandler(h.letter))...)
	if err != nil {
		return fmt.Errorf("vrpc: serve by remote memory: %w", err)
	}
	over := make(chan struct{})
	if err := s.track(presence(over)); err != nil {
		_ = exp.Close()
		return err
	}
	defer s.untrack(presence(over))
	<-s.acceptCtx.Done()
	_ = exp.Close()
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.work.Wait()
	return ErrClosed
}

// presence stands in the list of what a server closes for a goroutine that ends with the server's
// context.
type presence chan struct{}

// Close does nothing.
func (presence) Close() error { return nil }

// letter takes one out of its place. It is a handler of notifications, so it only starts what
// answers.
func (h *vmmcListener) letter(n vmmc.Notification) {
	at := n.Offset / meetingSize * meetingSize
	if at+meetingSize > len(h.mem.Bytes()) {
		return
	}
	l, ok := parseConnectMessage(h.mem.Bytes()[at+4 : at+meetingSize])
	if w, err := n.Export.Word(at); err == nil {
		w.Store(0)
	}
	if !ok {
		return
	}
	select {
	case h.meets <- struct{}{}:
	default:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		<-h.meets
		return
	}
	h.work.Go(func() { h.meet(&l) })
}

// meet answers a letter and serves its writer.
func (h *vmmcListener) meet(l *connectMessage) {
	release := sync.OnceFunc(func() { <-h.meets })
	defer release()
	node, err := h.p.NameToNode(l.node)
	if err != nil {
		return
	}
	name := clientName{vmmc.ProcessID{Node: node, PID: vmmc.PID(l.pid)}, l.buffer}
	if !h.add(name) {
		return // it was impatient
	}
	defer h.remove(name)
	ctx, stop := context.WithTimeout(h.s.acceptCtx, meetTime)
	defer stop()
	r, err := h.p.Import(ctx, node, name.peer.PID, name.buffer)
	if err != nil {
		h.s.logger.Error("vrpc: client's buffer", "peer", name.peer, "err", err)
		return
	}
	defer r.Close()
	out := clientLayout(int(l.slots), int(l.area))
	has, want := [8]byte{}, l.proof()
	if r.Size() < proofAt+len(has) {
		return
	}
	if err := r.Get(ctx, has[:], proofAt); err != nil || has != want {
		h.s.logger.Error("vrpc: a client's buffer has no proof", "peer", name.peer, "err", err)
		return
	}
	if !out.right(r.Size()) {
		_ = hello(ctx, r, helloBad, &inbox{}, 0)
		return
	}
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	default:
		h.s.logger.Error("vrpc: too many connections", "peer", name.peer)
		_ = hello(ctx, r, helloFull, &inbox{}, 0)
		return
	}
	in, err := newInbox(h.p, serverLayout(min(out.entries, h.s.perCaller), h.s.area), name.peer, rand.Uint32, h.s.exports)
	if err != nil {
		h.s.logger.Error("vrpc: buffer for a client", "peer", name.peer, "err", err)
		return
	}
	defer in.close()
	c := newRemote(h.s, r, out, in)
	if err := h.s.track(c); err != nil {
		return
	}
	defer h.s.untrack(c)
	if err := hello(ctx, r, helloWelcome, in, in.exp.ID()); err != nil {
		return
	}
	release()
	c.serve()
}

// hello answers a letter.
func hello(ctx context.Context, r *vmmc.Import, answer uint32, in *inbox, number uint32) error {
	b := make([]byte, 0, helloSize)
	for _, v := range [...]uint32{letterVersion, number, uint32(in.entries), uint32(in.area), answer} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return r.Send(ctx, b, 0)
}

func (h *vmmcListener) add(n clientName) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.clients[n]; ok {
		return false
	}
	h.clients[n] = struct{}{}
	return true
}

func (h *vmmcListener) remove(n clientName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, n)
}
