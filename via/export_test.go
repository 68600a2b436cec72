package via

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Unmap has the links that the NIC makes later go by the stream.
func (n *NIC) Unmap() { n.export = append(n.export, vmmc.Unmapped()) }

// WhileRevoking calls f while the NIC is locked as for a call that takes regions away.
func (n *NIC) WhileRevoking(f func()) {
	defer n.lockToRevoke()()
	f()
}

// Links is how many other NICs it is joined with.
func (n *NIC) Links() int { return len(n.linkList()) }

// Poke lets f write to the peer's buffer of the NIC's first link, as a false peer can. end is the
// position behind the last message that the NIC has sent.
func (n *NIC) Poke(f func(im *vmmc.Import, end uint32) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.linkList()) == 0 {
		return errors.New("there is no link")
	}
	l := n.linkList()[0]
	return f(l.im, l.sent)
}

// The layout that a false peer writes to.
const (
	HeadOff    = headOff
	TakenOff   = takenOff
	RingOff    = ringOff
	RingSize   = ringSize
	HeaderSize = headerSize
	Kinds      = kindGrant + 1
	MaxGrants  = maxGrants
)

// Message encodes a message of a kind with any other fields.
func Message(kind, flags uint8, conn, size, total, number, taken uint32) []byte {
	b := make([]byte, headerSize)
	h := header{
		kind: kind, flags: flags, conn: conn, size: size, total: total, immediate: number,
		number: number, taken: taken, status: number,
	}
	h.encode(b)
	return b
}

// Forge sends a false message, after those that the NIC has sent. It returns false when there is no
// room for it.
func (n *NIC) Forge(ctx context.Context, message []byte) error {
	return n.Poke(func(im *vmmc.Import, end uint32) error {
		at := int(end % ringSize)
		size := padded(len(message))
		if at+size > ringSize {
			return errors.New("the ring ends")
		}
		b := make([]byte, size)
		copy(b, message)
		if err := im.SendSignal(ctx, b, ringOff+at, end+uint32(size), headOff); err != nil {
			return err
		}
		n.linkList()[0].sent = end + uint32(size)
		return nil
	})
}

// The layout of the table that a NIC shows.
const (
	StatusHead = statusHead
	SlotSize   = slotSize
)

// Word encodes a word.
func Word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// Conns are the numbers of the VI's connection, here and there.
func (vi *VI) Conns() (own, peer uint32) {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	return vi.conn, vi.peer
}

// WalkStates walks the table of a VI's states.
func WalkStates(n *NIC) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return transitions.Walk(Failed, func(from, to State) State {
		vi := VI{n: n, state: from, report: n.unseen[:], link: &link{}}
		vi.setState(to)
		return vi.state
	})
}

// Sleepers is how many goroutines and handlers wait.
func (n *NIC) Sleepers() int { return int(n.sleepers.Load()) }

// Entries is how many entries the queue has.
func (c *CompletionQueue) Entries() int { return int(c.count.Load()) }

// Direct is how many regions of the other side the VI may use directly.
func (vi *VI) Direct() int {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	return len(vi.direct)
}

// Changed reports whether a region's first word is not 0.
func (m *Memory) Changed() bool { return shm.Word(m.data, 0).Load() != 0 }

// Regions are the imports of the regions of the other side that the VI may use directly.
func (vi *VI) Regions() (ims []*vmmc.Import) {
	vi.n.mu.Lock()
	defer vi.n.mu.Unlock()
	for _, g := range vi.direct {
		ims = append(ims, g.im)
	}
	return ims
}

// Grant sends a GRANT of an export by the NIC's first link, as a false owner can.
func (n *NIC) Grant(peer uint32, base, size uint64, h Handle, id uint32) {
	b := binary.LittleEndian.AppendUint64(nil, base)
	b = binary.LittleEndian.AppendUint64(b, size)
	b = binary.LittleEndian.AppendUint32(b, uint32(h))
	b = binary.LittleEndian.AppendUint32(b, id)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkList()[0].tell(header{kind: kindGrant, conn: peer}, b)
}

// Importing reports whether grants that have arrived wait to be imported.
func (n *NIC) Importing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.linkList() {
		if l.importing {
			return true
		}
	}
	return false
}

// Pretend has the NIC request in the name of another node, as a false peer can.
func (n *NIC) Pretend(h HostAddress) { n.addr = h }

// Imports is how many regions of other NICs are imported.
func (n *NIC) Imports() (imports int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.linkList() {
		imports += len(l.imports)
	}
	return imports
}
