package via

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// peerKey names a NIC.
type peerKey struct {
	process vmmc.ProcessID
	number  uint32
}

// link is what a NIC has of another one. The fields behind the words are guarded by NIC.mu.
type link struct {
	n     *NIC
	key   peerKey
	own   *vmmc.Export
	mem   *vmmc.Memory
	im    *vmmc.Import
	head  vmmc.Word
	taken vmmc.Word
	ring  []byte

	seenHead, seenTaken atomic.Uint32 // of the words. Stored under mu, behind what follows from it.
	timed               atomic.Bool   // reports whether the goroutine looks now and then
	attention           chan struct{} // wakes it

	ctx  context.Context //nolint:containedctx // ends with the link
	stop context.CancelFunc
	over bool

	next uint32 // behind the last message that was taken
	told uint32 // next when the peer was told
	owes bool   // reports whether the peer wants to be told

	sent    uint32 // behind the last message that was sent
	acked   uint32 // how far the peer has taken them
	last    message
	stalled bool // reports whether a send would wait
	again   bool // reports whether last must be sent again. Only while stalled.
	pumping bool // reports whether pump runs
	errs    []control
	ctrl    []control
	backlog []*VI // those with a SEND that has not left, in turn
	expects []expected
	served  int // of expects
	stage   []byte
	word    [4]byte // what tellTaken sends: here it is not allocated each time

	requests map[uint32]*Request // of the peer, that wait for an answer

	toImport  []grant                 // of the peer
	importing bool                    // reports whether a goroutine imports them
	imports   map[uint32]*vmmc.Import // of regions of the peer, by the exports' ids
}

// newLink makes a link with a buffer for a process.
func (n *NIC) newLink(peer vmmc.ProcessID) (*link, error) {
	mem, err := n.p.Alloc(bufferSize)
	if err != nil {
		return nil, err
	}
	l := &link{
		n: n, mem: mem, stage: make([]byte, padded(headerSize+targetSize+maxFragment)),
		attention: make(chan struct{}, 1), key: peerKey{process: peer},
		requests: map[uint32]*Request{}, imports: map[uint32]*vmmc.Import{},
	}
	info := mem.Bytes()[infoOff:]
	copy(info, magic)
	binary.LittleEndian.PutUint32(info[numberOff:], n.number)
	binary.LittleEndian.PutUint32(info[ringSizeOff:], ringSize)
	opts := append(slices.Clip(n.export), pair.For(peer))
	l.own, err = pair.Export(func(id uint32) (*vmmc.Export, error) {
		return n.p.Export(id, mem.Bytes(), opts...)
	})
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	for off, w := range map[int]*vmmc.Word{headOff: &l.head, takenOff: &l.taken} {
		if *w, err = l.own.Word(off); err != nil {
			return nil, errors.Join(err, l.closeBuffer())
		}
	}
	l.ring = mem.Bytes()[ringOff:]
	return l, nil
}

func (l *link) closeBuffer() error {
	if err := l.own.Close(); err != nil {
		return err
	}
	return l.mem.Close()
}

// join reads what the peer says of itself.
func (l *link) join(ctx context.Context, im *vmmc.Import) error {
	if im.Size() != bufferSize {
		return fmt.Errorf("the peer's buffer has %d bytes, want %d: its version differs", im.Size(), bufferSize)
	}
	var b [infoSize]byte
	if err := im.Get(ctx, b[:], infoOff); err != nil {
		return err
	}
	if string(b[:len(magic)]) != magic || binary.LittleEndian.Uint32(b[ringSizeOff:]) != ringSize {
		return errors.New("the peer's buffer is not one of a NIC of this version")
	}
	l.im, l.key.number = im, binary.LittleEndian.Uint32(b[numberOff:])
	return nil
}

// start makes the link one of the NIC's.
func (l *link) start() error {
	n := l.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errNICClosed("connect to a NIC")
	}
	l.ctx, l.stop = context.WithCancel(n.ctx)
	n.setLinks(append(slices.Clip(n.linkList()), l))
	if l.im.Path() != vmmc.PathMapped {
		n.streams.Store(true)
	}
	n.wg.Go(l.run)
	return nil
}

// hasNews reports whether the peer has sent something that was not taken yet.
func (l *link) hasNews() bool {
	return l.head.Load() != l.seenHead.Load() || l.taken.Load() != l.seenTaken.Load()
}

// lookAgain is how often the link's goroutine looks while the program polls.
const lookAgain = time.Millisecond

// run takes what arrives while the program calls nothing, and ends the link.
func (l *link) run() {
	defer func() {
		l.n.awaitLookers()
		l.closeImports()
		_ = l.im.Close() // the peer sees it end
		l.release()
	}()
	n := l.n
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	ws := []vmmc.Watch{{Word: l.head, From: l.im}, {Word: l.taken, From: l.im}}
	for polls := n.polls(); ; {
		n.mu.Lock()
		l.progress()
		over := l.over
		ws[0].Old, ws[1].Old = l.seenHead.Load(), l.seenTaken.Load()
		n.mu.Unlock()
		if over {
			return
		}
		l.timed.Store(true)
		now := n.polls()
		if now != polls && n.sleepers.Load() == 0 && l.im.Err() == nil {
			polls = now
			timer.Reset(lookAgain)
			select {
			case <-timer.C:
			case <-l.attention:
			case <-l.ctx.Done():
			}
			l.timed.Store(false)
			continue
		}
		l.timed.Store(false)
		if _, err := n.p.WaitAny(l.ctx, ws...); err != nil {
			n.mu.Lock()
			l.progress() // what has arrived before the end
			if why := l.im.Err(); why != nil {
				err = why
			}
			l.finish(err)
			n.mu.Unlock()
			return
		}
	}
}

// attend has the goroutine wait for the words.
func (l *link) attend() {
	if l.timed.Load() {
		select {
		case l.attention <- struct{}{}:
		default:
		}
	}
}

// String names the link in errors.
func (l *link) String() string { return fmt.Sprintf("NIC %d of %v", l.key.number, l.key.process) }

// All that follows is called with mu held.

// finish ends the link. cause is nil if the NIC is closed.
func (l *link) finish(cause error) {
	if l.over {
		return
	}
	l.over = true
	l.n.setLinks(slices.DeleteFunc(slices.Clone(l.n.linkList()), func(o *link) bool { return o == l }))
	for _, vi := range l.n.conns {
		if vi == nil || vi.link != l {
			continue
		}
		switch vi.state {
		case Connected:
			vi.broken(cause)
		case ConnectPending:
			vi.outcome = &connectResult{code: ErrNotReachable, err: cause}
			vi.connecting.wake()
		case Idle, Failed: // they have no link
		}
	}
	for _, o := range l.n.listeners {
		o.forget(l)
	}
	l.stop()
}

// violate ends the link with a peer that breaks the protocol.
func (l *link) violate(format string, args ...any) {
	l.finish(&vmmc.Error{
		Op: "take messages", Peer: l.key.process.String(), Code: vmmc.ErrProtocol,
		Err: fmt.Errorf(format, args...),
	})
}

// progress takes what has arrived, and transmits what there is room for.
func (l *link) progress() {
	if l.over {
		return
	}
	taken := l.taken.Load() // before head: an error that goes before it is among the messages
	head := l.head.Load()
	l.take(head)
	if !l.over {
		l.acknowledge(taken)
	}
	if l.over {
		return
	}
	l.pump()
	l.seenTaken.Store(taken)
	l.seenHead.Store(head)
}
