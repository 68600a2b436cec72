package via

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Direct RDMA: on one node, a region that is whole pages of the library's allocator is exported, and
// a VI of a peer that may both write and read it does so by Send and Get of the import. All other
// RDMA goes by messages, and so does what a direct operation cannot do.
//
// The owner of a region exports it when the first RDMA message for it arrives, for the processes that
// have a connected VI with the rights then. It grants it to the VIs of these whose RDMA messages
// arrive later.
//
//	owner                                   peer
//	                                     <- an RDMA message
//	exports the region
//	                                     <- an RDMA message
//	grants it to the VI: GRANT           -> imports it
//	                                     <- Send, Get
//
// Only a close of the export takes a region away, from a process that bypasses the library too: the
// owner's pages are replaced by others (vmmc.Export.Close). Each call of the owner that ends rights of
// a process therefore closes the exports that let that process in, before it returns. These calls are
// Disconnect, Deregister, SetAttributes of a region and the NIC's Close. Other processes get a new
// export with their next RDMA messages. The owner believes nothing that the peer says of its
// operations.
//
// The call that closes an export holds NIC.mu, and the mu of each other NIC of the program that has a
// part of such a region registered (lockToRevoke). So nothing that these NICs store in the region is
// lost between the copy of the pages and their replacement, and no other call sees a region half
// closed. Other calls of these NICs wait meanwhile: for a fraction of a millisecond and about one for
// each MiB, and for ten seconds at most where the daemon hangs. So does a call of any NIC that
// registers a part of such a region. Other NICs do not wait, unless they close exports too: only one
// call of the program does that at a time.

// grantSize is the data of a GRANT: base address and size of the region, its handle, the export's id.
const grantSize = 24

// maxGrants bounds what a peer can have this side remember: the grants of a link that wait to be
// imported, its imports, and the regions of each VI. What is beyond it goes by messages.
const maxGrants = 1024

// directChunk is the most that one Send moves: it does not look at its context within that.
const directChunk = 256 << 10

// share is a region's export for direct RDMA.
type share struct {
	allowed []vmmc.ProcessID
	done    chan struct{} // closed when the export was made, or has failed
	export  *vmmc.Export  // nil if it has failed. Set before done is closed.

	// The rest is guarded by NIC.mu.
	granted []uint32 // the connections whose VIs were told of it
	closing bool     // reports whether a close has begun. If it fails, no VI is told of it any more.
}

// ready returns the export, or nil.
func (s *share) ready() *vmmc.Export {
	select {
	case <-s.done:
		return s.export
	default:
		return nil
	}
}

// isWholePages reports whether memory could be mapped by peers.
func isWholePages(b []byte) bool {
	return (uint64(len(b))|shm.Addr(b, 0))%uint64(shm.PageSize) == 0
}

// offer has a region shared with the peer's VI, if it may both write and read it. mu is held.
func (vi *VI) offer(m *Memory) {
	l := vi.link
	switch {
	case !m.attr.Direct || !vi.enables(m, true) || !vi.enables(m, false) || !isWholePages(m.data):
		return
	case l.im.Path() != vmmc.PathMapped:
		return
	case m.share == nil:
		s := &share{done: make(chan struct{}), allowed: vi.n.allowed(m)}
		m.share = s
		vi.n.shared[m] = struct{}{}
		vi.n.wg.Go(func() { s.open(vi.n, m.data) })
		return
	}
	e := m.share.ready()
	if e == nil || m.share.closing || !slices.Contains(m.share.allowed, l.key.process) ||
		slices.Contains(m.share.granted, vi.conn) {
		return
	}
	m.share.granted = append(m.share.granted, vi.conn)
	b := binary.LittleEndian.AppendUint64(nil, shm.Addr(m.data, 0))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(m.data)))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.handle))
	b = binary.LittleEndian.AppendUint32(b, e.ID())
	l.tell(header{kind: kindGrant, conn: vi.peer}, b)
}

// allowed returns the processes that may write and read a region by a VI. mu is held.
func (n *NIC) allowed(m *Memory) (ps []vmmc.ProcessID) {
	for _, vi := range n.conns {
		if vi != nil && vi.state == Connected && vi.enables(m, true) && vi.enables(m, false) &&
			!slices.Contains(ps, vi.link.key.process) {
			ps = append(ps, vi.link.key.process)
		}
	}
	return ps
}

// open makes the export. It fails for memory that is not the allocator's or is exported already.
func (s *share) open(n *NIC, data []byte) {
	defer close(s.done)
	permit := vmmc.Permit(vmmc.Permission{Processes: s.allowed})
	s.export, _ = pair.Export(func(id uint32) (*vmmc.Export, error) {
		return n.p.Export(id, data, vmmc.GlobalSpace(), vmmc.SharePages(), permit)
	})
	pair.At("direct.exported")
}

// closeShare takes a region's export away from all peers. After an error the region still has it, and the
// next close goes on. mu is held.
func (m *Memory) closeShare(op string) error {
	s := m.share
	if s == nil {
		return nil
	}
	s.closing = true
	<-s.done
	if s.export != nil {
		if err := s.export.Close(); err != nil {
			return &Error{Op: op, Code: ErrResource, Err: err}
		}
	}
	m.share = nil
	delete(m.n.shared, m)
	return nil
}

// openNICs are the NICs of this program.
var openNICs nicSet

type nicSet struct {
	mu   sync.Mutex
	nics map[*NIC]struct{}

	// revoking is held by the one goroutine that has several NICs locked. It is locked before any
	// NIC.mu.
	revoking sync.Mutex

	// revoked is the memory that a call may be replacing the pages of, or nil. Guarded by mu, which is
	// locked after NIC.mu.
	revoked *revocation
}

// revocation is the memory of all regions that a NIC shares, while one call may take them away.
type revocation struct {
	regions [][]byte
	over    chan struct{} // closed when the call has unlocked the NICs
}

func (s *nicSet) add(n *NIC) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nics == nil {
		s.nics = map[*NIC]struct{}{}
	}
	s.nics[n] = struct{}{}
}

func (s *nicSet) remove(n *NIC) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nics, n)
}

func (s *nicSet) list() []*NIC {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.nics))
}

// beginRevocation has NICs register no part of the regions until the returned function was called.
// revoking is held.
func (s *nicSet) beginRevocation(regions [][]byte) (end func()) {
	r := &revocation{regions: regions, over: make(chan struct{})}
	s.mu.Lock()
	s.revoked = r
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.revoked = nil
		s.mu.Unlock()
		close(r.over)
	}
}

// revocationOf returns the channel that is closed when the pages of data are not being replaced any
// more, or nil if they are not now.
func (s *nicSet) revocationOf(data []byte) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked == nil {
		return nil
	}
	for _, region := range s.revoked.regions {
		if overlap(region, data) {
			return s.revoked.over
		}
	}
	return nil
}

// lockToRegister locks mu for a call that registers data. It waits while another call may be replacing
// the pages of data: that call has not locked this NIC, so what the NIC stored there would be lost.
//
// lockToRevoke names the memory before it looks for NICs that have it registered, and it locks each NIC
// to look. So either it finds the new region, or this finds the memory named.
func (n *NIC) lockToRegister(data []byte) {
	for {
		n.mu.Lock()
		over := openNICs.revocationOf(data)
		if over == nil {
			return
		}
		n.mu.Unlock()
		<-over
	}
}

// lockToRevoke locks mu for a call that may take regions away. Where peers use regions directly it also
// locks the other NICs that have the same memory registered, since what these store there while the pages
// are replaced would be lost.
func (n *NIC) lockToRevoke() (unlock func()) {
	n.mu.Lock()
	if len(n.shared) == 0 {
		return n.mu.Unlock
	}
	n.mu.Unlock()
	openNICs.revoking.Lock()
	n.mu.Lock()
	regions := make([][]byte, 0, len(n.shared))
	for m := range n.shared {
		regions = append(regions, m.data)
	}
	end := openNICs.beginRevocation(regions)
	locked := []*NIC{n}
	for _, o := range openNICs.list() {
		if o == n {
			continue
		}
		if o.mu.Lock(); o.storesTo(n) {
			locked = append(locked, o)
		} else {
			o.mu.Unlock()
		}
	}
	return func() {
		for _, o := range locked {
			o.mu.Unlock()
		}
		end()
		openNICs.revoking.Unlock()
	}
}

// storesTo reports whether a region of the NIC has memory of one that another NIC shares. Both are
// locked.
func (n *NIC) storesTo(shares *NIC) bool {
	for _, m := range n.regions {
		for s := range shares.shared {
			if overlap(m.data, s.data) {
				return true
			}
		}
	}
	return false
}

// overlap reports whether a and b have memory in common. Neither is empty.
func overlap(a, b []byte) bool {
	atA, atB := shm.Addr(a, 0), shm.Addr(b, 0)
	return atA < atB+uint64(len(b)) && atB < atA+uint64(len(a))
}

// revokes reports whether revoke would close the region's share. mu is held.
func (m *Memory) revokes(p vmmc.ProcessID) bool {
	s := m.share
	select {
	case <-s.done:
		if s.export == nil { // it has failed, and would again
			return false
		}
	default:
	}
	return s.closing || slices.Contains(s.allowed, p)
}

// checkRevoke refuses to take regions away in a handler, where no export can be closed. mu is held.
func (n *NIC) checkRevoke(op string, p vmmc.ProcessID) error {
	if !vmmc.InHandler() {
		return nil
	}
	for m := range n.shared {
		if m.revokes(p) {
			return &Error{Op: op, Code: ErrInvalidState, Err: vmmc.ErrNotInHandler}
		}
	}
	return nil
}

// revoke takes away all regions that a process may use directly, and those whose close has failed.
// mu is held.
func (n *NIC) revoke(op string, p vmmc.ProcessID) (err error) {
	for m := range n.shared {
		if m.revokes(p) {
			err = errors.Join(err, m.closeShare(op))
		}
	}
	return err
}

// What follows is the peer's side.

// directRegion is a region of the peer that a VI may use directly.
type directRegion struct {
	im   *vmmc.Import
	base uint64
	size uint64
}

// grant is a GRANT that is to be imported.
type grant struct {
	vi     *VI
	conn   uint32
	id     uint32 // of the export
	handle Handle
	directRegion
}

// grantArrived takes a GRANT. An unreliable VI takes none: its writes by messages are not acknowledged,
// so a direct one would pass those that are under way. It reports whether the peer keeps to the protocol. mu is held.
func (vi *VI) grantArrived(data []byte) bool {
	l := vi.link
	if len(data) != grantSize {
		return false
	}
	g := grant{
		vi: vi, conn: vi.conn,
		handle: Handle(binary.LittleEndian.Uint32(data[16:])), id: binary.LittleEndian.Uint32(data[20:]),
		directRegion: directRegion{
			base: binary.LittleEndian.Uint64(data), size: binary.LittleEndian.Uint64(data[8:]),
		},
	}
	if len(l.toImport) >= maxGrants || !vi.reliable() {
		return true // it goes by messages
	}
	l.toImport = append(l.toImport, g)
	l.updateImports()
	return true
}

// updateImports has a goroutine import what was granted, and close what was revoked. mu is held.
func (l *link) updateImports() {
	if !l.importing && !l.over {
		l.importing = true
		l.n.wg.Go(l.importGrants)
	}
}

// importGrants imports what was granted. Imports of revoked regions are closed first, because they
// keep the pages that the peer has replaced.
func (l *link) importGrants() {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.dropRevoked()
	for len(l.toImport) > 0 && !l.over {
		g := l.toImport[0]
		l.toImport = append(l.toImport[:0], l.toImport[1:]...)
		im := l.imports[g.id]
		if im != nil && im.Err() != nil { // revoked: the id may be that of a new export
			delete(l.imports, g.id)
			_ = im.Close()
			im = nil
		}
		if im == nil {
			if l.dropRevoked(); len(l.imports) >= maxGrants {
				continue
			}
			l.n.mu.Unlock()
			im = l.importRegion(g)
			l.n.mu.Lock()
			if im == nil {
				continue
			}
			if l.over {
				_ = im.Close()
				break
			}
			l.imports[g.id] = im
		}
		if g.vi.link == l && g.vi.conn == g.conn && uint64(im.Size()) == g.size && g.vi.admits(g.handle) {
			if g.vi.direct == nil {
				g.vi.direct = map[Handle]directRegion{}
			}
			g.im = im
			g.vi.direct[g.handle] = g.directRegion
		}
	}
	l.importing = false
}

// admits reports whether there is room for one more region that the VI may use directly. Those that
// were revoked make room. mu is held.
func (vi *VI) admits(h Handle) bool {
	if _, ok := vi.direct[h]; ok || len(vi.direct) < maxGrants {
		return true
	}
	for o, g := range vi.direct {
		if g.im.Err() != nil {
			delete(vi.direct, o)
		}
	}
	return len(vi.direct) < maxGrants
}

// importRegion imports one region, or returns nil if it cannot be used.
func (l *link) importRegion(g grant) *vmmc.Import {
	ctx, stop := context.WithTimeout(l.ctx, staleTime)
	defer stop()
	im, err := l.n.p.Import(ctx, l.key.process.Node, l.key.process.PID, g.id)
	if err != nil {
		return nil
	}
	pair.At("direct.imported")
	if im.Path() != vmmc.PathMapped || uint64(im.Size()) != g.size {
		_ = im.Close()
		return nil
	}
	return im
}

// dropRevoked closes imports of regions that the peer has taken away. mu is held.
func (l *link) dropRevoked() {
	for id, im := range l.imports {
		if im.Err() != nil {
			delete(l.imports, id)
			_ = im.Close()
		}
	}
}

// closeImports ends the imports of a link that is over.
func (l *link) closeImports() {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for id, im := range l.imports {
		delete(l.imports, id)
		_ = im.Close()
	}
}

// goDirect does the current RDMA operation directly. It reports whether it has; otherwise it goes by
// messages. It may not pass an RDMA operation of the VI that is under way. mu is held.
func (vi *VI) goDirect(d *Descriptor) bool {
	if vi.direct == nil || vi.reading > 0 || vi.writing > 0 || d.Control&opBits == OpSendReceive {
		return false
	}
	g, ok := vi.direct[d.Remote.Handle]
	total := uint64(vi.left)
	if !ok || d.Remote.Address < g.base || d.Remote.Address-g.base > g.size ||
		total > g.size-(d.Remote.Address-g.base) || !isWords(d) ||
		vi.n.protected(d.Segments, vi.attr.Tag) {
		return false
	}
	pair.At("direct.begun")
	err := g.move(d)
	if err != nil && g.im.Err() != nil { // revoked
		delete(vi.direct, d.Remote.Handle)
		vi.link.updateImports()
	}
	return err == nil
}

// isWords reports whether an operation is one of whole words, as Send and Get are.
func isWords(d *Descriptor) bool {
	n := int(d.Remote.Address)
	for i := range d.Segments {
		n |= len(d.Segments[i].Data)
	}
	return n%vmmcWord == 0
}

// vmmcWord is the size of a word of package vmmc.
const vmmcWord = 4

// move does the operation.
func (g *directRegion) move(d *Descriptor) error {
	off := int(d.Remote.Address - g.base)
	for i := range d.Segments {
		b := d.Segments[i].Data
		if d.Control&opBits == OpRDMARead {
			if err := g.im.Get(pair.NoWait, b, off); err != nil {
				return err
			}
			off += len(b)
			continue
		}
		for len(b) > 0 {
			n := min(len(b), directChunk)
			if err := g.im.Send(pair.NoWait, b[:n], off); err != nil {
				return err
			}
			b, off = b[n:], off+n
		}
	}
	return nil
}
