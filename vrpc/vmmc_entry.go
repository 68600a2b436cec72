package vrpc

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc"
)

// An entry is a message of the VMMC transport or says where one is. It lies at the end of its place
// of entrySize bytes, so that its last word, which is stored last, is where its reader waits for
// it:
//
//	message | length | where | slot | number
//
// where is where the message lies in the area if it is not before the rest.
const (
	entrySize   = 256
	trailerSize = 16
	inline      = entrySize - trailerSize
	here        = 1<<32 - 1 // of where: before the rest
)

var errEntry = errors.New("the peer broke the protocol of the VMMC transport")

// entry is one without its message.
type entry struct {
	length, where, slot, number uint32
}

// append appends it to its message, if that is before it.
func (e *entry) append(b []byte) []byte {
	for _, v := range [...]uint32{e.length, e.where, e.slot, e.number} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// read reads the entry of a place, whose number has come.
func (e *entry) read(place []byte, number uint32) {
	t := place[inline:]
	*e = entry{
		binary.LittleEndian.Uint32(t), binary.LittleEndian.Uint32(t[4:]), binary.LittleEndian.Uint32(t[8:]), number,
	}
}

// message is that of the entry which lies in place; false if it cannot be where the entry says. It
// is the peer's to write.
func (b *inbox) message(e *entry, place []byte) ([]byte, bool) {
	if e.where == here {
		if e.length > inline {
			return nil, false
		}
		return place[inline-e.length : inline], true
	}
	area := b.data()
	from, n := uint64(e.where), uint64(e.length)
	if from > uint64(len(area)) || n > uint64(len(area))-from {
		return nil, false
	}
	return area[from : from+n : from+n], true
}

// layout is how a buffer is divided: head bytes, then entries, then the area.
type layout struct{ head, entries, area int }

// The buffer of a client begins with the server's hello, that of a server with a word for each
// slot: the number of the last call whose reply in the area the client is done with.
func clientLayout(slots, area int) layout { return layout{64, slots, area} }

func serverLayout(slots, area int) layout { return layout{4 * slots, slots, area} }

func (l layout) at(i int) int { return l.head + i*entrySize }

func (l layout) data() int { return (l.at(l.entries) + unit - 1) / unit * unit }

func (l layout) size() int { return l.data() + l.area }

// inbox is a buffer that messages come to.
type inbox struct {
	layout
	mem   *vmmc.Memory
	exp   *vmmc.Export
	words []vmmc.Word // the last one of each entry
	heads []vmmc.Word // those before the entries
}

func (b *inbox) place(i int) []byte { return b.mem.Bytes()[b.at(i):][:entrySize] }

func (b *inbox) data() []byte { return b.mem.Bytes()[b.layout.data():] }

// newInbox exports a buffer to one process, under a number that is free.
func newInbox(
	p *vmmc.Process, l layout, peer vmmc.ProcessID, number func() uint32, opts []vmmc.ExportOption,
) (*inbox, error) {
	mem, err := p.Alloc(l.size())
	if err != nil {
		return nil, err
	}
	b := &inbox{layout: l, mem: mem}
	opts = append(slices.Clip(opts), vmmc.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{peer}}))
	for {
		if b.exp, err = p.Export(number(), mem.Bytes(), opts...); !errors.Is(err, vmmc.ErrBufAlreadyExists) {
			break
		}
	}
	if err != nil {
		_ = mem.Close()
		return nil, err
	}
	for i := range l.entries {
		last, err := b.exp.Word(l.at(i) + entrySize - 4)
		head, err2 := b.exp.Word(4 * min(i, l.head/4-1))
		if err := errors.Join(err, err2); err != nil {
			b.close()
			return nil, err
		}
		b.words, b.heads = append(b.words, last), append(b.heads, head)
	}
	return b, nil
}

// close gives the memory back. It must not be used any more.
func (b *inbox) close() {
	_ = b.exp.Close()
	_ = b.mem.Close()
}
