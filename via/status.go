package via

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// A NIC exports a table of its VIs, read-only, under a name that processes of its user and session
// find. [ReadStatus] gets the table from the memory itself: the program with the NIC has no part in
// it. The NIC stores plainly, under NIC.mu, so that a descriptor costs a few stores.

// StatusName is the name under which all NICs of a node publish what they show of themselves.
//
// Experimental: it may change in any release.
const StatusName = ".via.nics"

// The table: a head, then a slot for each VI. Numbers have the machine's byte order.
const (
	statusMagic = "vmmcviat"
	statusHead  = 64
	statusSize  = statusHead + maxVIs*slotSize

	statusNumberOff = len(statusMagic)
	statusDeviceOff = statusNumberOff + 4 // a length, then the name
)

// A slot. It is a sequence lock: slotSeq is odd while the NIC stores anything but queues and counts,
// and changes with each such store. The NIC changes slotSeq by atomic additions, which keep the order:
// no store goes before the first one nor behind the second one. A reader gets slotSeq, the slot, and
// slotSeq again, each by a Get of its own, because a Get promises no order within what it copies. The
// slot is whole if both are equal and even.
const (
	slotSeq      = 0
	slotNumber   = 4 // of the VI, from 1; 0: the slot is free
	slotState    = 8
	slotLevel    = 12
	slotQueues   = 16 // pending and completed SENDs, pending and completed receives
	slotSent     = 32 // two words of 8 bytes each: descriptors, bytes
	slotReceived = 48
	slotErrors   = 64
	slotPeer     = 72 // the peer's process number
	slotLocal    = 80 // host, length of the discriminator, discriminator
	slotRemote   = slotLocal + slotAddress
	slotNode     = slotRemote + slotAddress // a length, then the name of the peer's node
	slotAddress  = len(HostAddress{}) + 1 + maxDiscriminator
	slotSize     = 256
)

// NICStatus is what a NIC shows of itself to processes of its user and session.
//
// Experimental: it may change in any release.
type NICStatus struct {
	Process vmmc.ProcessID
	Device  string
	Number  uint32 // among the NICs that the process has opened
	VIs     []VIReport
}

// VIReport is what a NIC shows of a VI.
//
// Experimental: it may change in any release.
type VIReport struct {
	Number        uint32 // among the VIs that the NIC has made
	State         State
	Level         Level
	Local, Remote Address
	// Peer and PeerNode are the process at the other end and its node's name, of a connected VI.
	Peer     vmmc.PID
	PeerNode string
	// How many descriptors each queue has: not completed, and completed but not taken.
	SendPending, SendCompleted       int
	ReceivePending, ReceiveCompleted int
	// What was completed without an error: descriptors and bytes. Sent are those of the send queue.
	Sent, SentBytes         uint64
	Received, ReceivedBytes uint64
	Errors                  uint64 // descriptors that were completed in error, flushed ones too
}

// statusTable is a NIC's table. mem is set by Open, the rest is guarded by NIC.mu.
type statusTable struct {
	mem    *vmmc.Memory
	free   []uint16 // slots
	last   uint32   // number of a VI
	export *vmmc.Export
	done   chan struct{} // closed when the table was exported, or that has failed
}

func (n *NIC) newStatus() (err error) {
	if n.status.mem, err = n.p.Alloc(statusSize); err != nil {
		return err
	}
	for i := range uint16(maxVIs) {
		n.status.free = append(n.status.free, maxVIs-1-i)
	}
	b := n.status.mem.Bytes()
	copy(b, statusMagic)
	binary.NativeEndian.PutUint32(b[statusNumberOff:], n.number)
	putText(b[statusDeviceOff:statusHead], n.device)
	n.status.done = make(chan struct{})
	n.wg.Go(n.publishStatus)
	return nil
}

// statusReaders lets in processes of the NIC's user and session, and root, which lists the NICs of all.
var statusReaders = vmmc.Permit(
	vmmc.Permission{},
	vmmc.Permission{Users: []string{"root"}, Sessions: []string{"*"}},
)

// publishStatus exports the table. The daemon is not waited for by Open, and the NIC works without.
func (n *NIC) publishStatus() {
	defer close(n.status.done)
	for n.ctx.Err() == nil {
		e, err := pair.Export(func(id uint32) (*vmmc.Export, error) {
			return n.p.Export(id, n.status.mem.Bytes(), vmmc.ReadOnly(), statusReaders)
		})
		if err == nil {
			if err = e.PublishAs(n.ctx, StatusName, vmmc.InSet()); err == nil {
				n.status.export = e
				return
			}
			_ = e.Close()
		}
		if !errors.Is(err, vmmc.ErrNoDaemon) && !errors.Is(err, vmmc.ErrTimeout) {
			return
		}
		select { // the daemon is away
		case <-n.ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// closeStatus gives the table back. Where the daemon is away the process does when it ends. NIC.mu is
// not held, and no VI is left.
func (n *NIC) closeStatus() {
	<-n.status.done
	if e := n.status.export; e != nil && e.Close() != nil {
		return
	}
	_ = n.status.mem.Close()
}

func putText(b []byte, s string) {
	b[0] = byte(copy(b[1:], s))
}

func text(b []byte) string { return string(b[1:][:min(int(b[0]), len(b)-1)]) }

func putAddress(b []byte, a Address) {
	copy(b, a.Host[:])
	putText(b[len(a.Host):slotAddress], a.Discriminator)
}

func addressOf(b []byte) (a Address) {
	copy(a.Host[:], b)
	a.Discriminator = text(b[len(a.Host):slotAddress])
	return a
}

// What follows is called with NIC.mu held.

// newSlot gives a VI its slot.
func (vi *VI) newSlot() {
	s := &vi.n.status
	vi.slot = s.free[len(s.free)-1] // there are as many as VIs
	s.free = s.free[:len(s.free)-1]
	at := statusHead + int(vi.slot)*slotSize
	vi.report = s.mem.Bytes()[at : at+slotSize]
	s.last++
	vi.reportConnection(s.last)
}

// freeSlot takes the slot back.
func (vi *VI) freeSlot() {
	seq := beginChange(vi.report)
	clear(vi.report[slotNumber:])
	endChange(seq)
	vi.n.status.free = append(vi.n.status.free, vi.slot)
	vi.report = vi.n.unseen[:]
}

// beginChange makes a slot's sequence odd. The stores that follow stay behind that.
func beginChange(slot []byte) *atomic.Uint32 {
	seq := shm.Word(slot, slotSeq)
	seq.Add(1)
	return seq
}

// endChange makes the sequence even, behind all stores since beginChange.
func endChange(seq *atomic.Uint32) {
	pair.At("status.changed")
	seq.Add(1)
}

// reportConnection stores what a connection changes. number is not 0 if the slot begins.
func (vi *VI) reportConnection(number uint32) {
	b := vi.report
	seq := beginChange(b)
	defer endChange(seq)
	if number != 0 {
		binary.NativeEndian.PutUint32(b[slotNumber:], number)
	}
	binary.NativeEndian.PutUint32(b[slotState:], uint32(vi.state))
	binary.NativeEndian.PutUint32(b[slotLevel:], uint32(vi.attr.Level))
	clear(b[slotPeer:])
	if vi.state != Idle {
		putAddress(b[slotLocal:], vi.local)
		putAddress(b[slotRemote:], vi.remote)
	}
	if vi.state == Connected {
		peer := vi.link.key.process
		name, _ := vi.n.p.NodeToName(peer.Node) // a peer of no node is shown without
		binary.NativeEndian.PutUint32(b[slotPeer:], uint32(peer.PID))
		putText(b[slotNode:], name)
	}
}

// reportQueue stores how many descriptors a queue has.
func (vi *VI) reportQueue(q *queue) {
	b := vi.report[slotQueues:]
	if q == &vi.recv {
		b = b[8:]
	}
	binary.NativeEndian.PutUint64(b, queueWord(q.pending.n, q.ready.n))
}

// queueWord has two numbers as two words of 4 bytes each, in the machine's order.
func queueWord(pending, ready int) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint32(b[:], uint32(pending))
	binary.NativeEndian.PutUint32(b[4:], uint32(ready))
	return binary.NativeEndian.Uint64(b[:])
}

// reportCompletion counts a descriptor.
func (vi *VI) reportCompletion(q *queue, d *Descriptor) {
	b := vi.report
	if d.Status&ErrorMask != 0 {
		add(b[slotErrors:], 1)
		return
	}
	at := slotSent
	if q == &vi.recv {
		at = slotReceived
	}
	add(b[at:], 1)
	add(b[at+8:], uint64(d.Length))
}

func add(b []byte, n uint64) {
	binary.NativeEndian.PutUint64(b, binary.NativeEndian.Uint64(b)+n)
}

// What follows is the reader's side.

// readAgain bounds how often ReadStatus gets a slot that changes. One that is never whole is left out.
const readAgain = 100

// listAtOnce bounds how many tables ListNICs reads at a time. The process of one may be stopped, and
// must not hold up the others.
const listAtOnce = 16

// ListNICs finds the NICs of this process's user and session on a node. One that cannot be read does
// not hide the others: they are returned beside an error that names it. Errors: those of
// [vmmc.Process.Names]; [ErrTimeout] for a NIC whose process does not answer within 5 s; others of
// [ReadStatus].
//
// Experimental: it may change in any release.
func ListNICs(ctx context.Context, p *vmmc.Process, node vmmc.NodeID) (all []NICStatus, err error) {
	const op = "list NICs"
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	name, err := p.NodeToName(node)
	if err != nil {
		return nil, &Error{Op: op, Code: ErrNameService, Err: err}
	}
	found, err := publishedNICs(ctx, p, name)
	failures := []error{err}
	tables, errs := make([]NICStatus, len(found)), make([]error, len(found))
	var reads sync.WaitGroup
	slots := make(chan struct{}, listAtOnce)
	for i, info := range found {
		reads.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			tables[i], errs[i] = ReadStatus(ctx, p, info.Process, info.Buffer)
		})
	}
	reads.Wait()
	if still := found; errors.Join(errs...) != nil {
		// A NIC that was closed meanwhile is not published any more.
		if now, err := publishedNICs(ctx, p, name); err == nil {
			still = now
		}
		for i, err := range errs {
			if err != nil && !hasEnded(err) && slices.Contains(still, found[i]) {
				failures = append(failures, err)
			}
		}
	}
	for i := range tables {
		if errs[i] == nil {
			all = append(all, tables[i])
		}
	}
	return all, errors.Join(failures...)
}

// hasEnded reports whether a table could not be read because the NIC or its process has ended.
func hasEnded(err error) bool {
	return errors.Is(err, vmmc.ErrRevoked) || errors.Is(err, vmmc.ErrPeerGone) || errors.Is(err, vmmc.ErrNoSuchProcess)
}

// publishedNICs lists the tables that NICs of a node have published.
func publishedNICs(ctx context.Context, p *vmmc.Process, node string) (found []vmmc.NameInfo, err error) {
	for info, err := range p.Names(ctx, node+"/"+StatusName) {
		if err != nil {
			return found, &Error{Op: "list NICs", Code: codeOf(ctx, err), Err: err}
		}
		found = append(found, info)
	}
	return found, nil
}

// ReadStatus reads what the NIC says that has published an export under [StatusName]. It disturbs no
// process. Processes of the NIC's user and session may read it, and those of root in any session.
// Errors: [ErrNoMatch] if the NIC or its process has ended, or has another version; [ErrTimeout] when
// ctx ends, and if the process does not answer within 5 s, since it is stopped or has just closed the NIC.
//
// Experimental: it may change in any release.
func ReadStatus(ctx context.Context, p *vmmc.Process, of vmmc.ProcessID, buffer uint32) (s NICStatus, err error) {
	const op = "read what a NIC says"
	if err := checkCall(ctx, op); err != nil {
		return s, err
	}
	soon, stop := context.WithTimeout(ctx, staleTime)
	defer stop()
	im, err := p.Import(soon, of.Node, of.PID, buffer)
	if err == nil {
		s, err = readTable(soon, im)
		err = errors.Join(err, im.Close())
	}
	if err == nil {
		return s, nil
	}
	e := &Error{Op: op, Code: codeOf(soon, err), Err: fmt.Errorf("the NIC of %v: %w", of, err)}
	switch {
	case errors.Is(err, ErrNoMatch):
		e.Code = ErrNoMatch
	case soon.Err() != nil && ctx.Err() == nil:
		e.Err = fmt.Errorf("the NIC of %v does not answer within %v: is its process stopped? %w", of, staleTime, err)
	}
	return s, e
}

func readTable(ctx context.Context, im *vmmc.Import) (s NICStatus, err error) {
	if im.Size() != statusSize {
		return s, fmt.Errorf("its table has %d bytes, want %d: its version differs: %w", im.Size(), statusSize, ErrNoMatch)
	}
	before, b, after := make([]byte, statusSize), make([]byte, statusSize), make([]byte, statusSize)
	for _, to := range [][]byte{before, b, after} {
		if err := im.Get(ctx, to, 0); err != nil {
			return s, err
		}
		pair.At("status.got")
	}
	if !strings.HasPrefix(string(b[:statusHead]), statusMagic) {
		return s, fmt.Errorf("its table has another version: %w", ErrNoMatch)
	}
	s.Process = im.Exporter()
	s.Number = binary.NativeEndian.Uint32(b[statusNumberOff:])
	s.Device = text(b[statusDeviceOff:statusHead])
	for at := statusHead; at < statusSize; at += slotSize {
		slot := b[at : at+slotSize]
		whole := isWhole(before[at+slotSeq:], after[at+slotSeq:])
		for i := 0; !whole && i < readAgain; i++ {
			if whole, err = getSlot(ctx, im, slot, at); err != nil {
				return s, err
			}
		}
		if whole && binary.NativeEndian.Uint32(slot[slotNumber:]) != 0 {
			s.VIs = append(s.VIs, reportOf(slot))
		}
	}
	slices.SortFunc(s.VIs, func(a, b VIReport) int { return int(a.Number) - int(b.Number) })
	return s, nil
}

// getSlot gets a slot. It reports whether the slot is whole.
func getSlot(ctx context.Context, im *vmmc.Import, slot []byte, at int) (bool, error) {
	var before, after [4]byte
	if err := im.Get(ctx, before[:], at+slotSeq); err != nil {
		return false, err
	}
	if err := im.Get(ctx, slot, at); err != nil {
		return false, err
	}
	if err := im.Get(ctx, after[:], at+slotSeq); err != nil {
		return false, err
	}
	return isWhole(before[:], after[:]), nil
}

// isWhole reports whether a slot is whole that was got between these two words of its sequence.
func isWhole(before, after []byte) bool {
	seq := binary.NativeEndian.Uint32(before)
	return seq&1 == 0 && seq == binary.NativeEndian.Uint32(after)
}

func reportOf(b []byte) VIReport {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	return VIReport{
		Number: u32(slotNumber), State: State(u32(slotState)), Level: Level(u32(slotLevel)),
		Local: addressOf(b[slotLocal:]), Remote: addressOf(b[slotRemote:]),
		Peer: vmmc.PID(u32(slotPeer)), PeerNode: text(b[slotNode:]),
		SendPending: int(u32(slotQueues)), SendCompleted: int(u32(slotQueues + 4)),
		ReceivePending: int(u32(slotQueues + 8)), ReceiveCompleted: int(u32(slotQueues + 12)),
		Sent: u64(slotSent), SentBytes: u64(slotSent + 8),
		Received: u64(slotReceived), ReceivedBytes: u64(slotReceived + 8), Errors: u64(slotErrors),
	}
}
