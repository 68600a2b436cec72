package shmlayout

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Credits is how many notifications may be in flight on one link: sent, and their handlers not yet
// returned.
const Credits = 64

// Notification is a notification in flight: the export, and the message's last word as it was sent,
// so a later message cannot change what the handler sees.
type Notification struct {
	Handle uint32
	Serial uint32
	Off    uint64 // byte offset of the last word in the export
	Word   uint32
	Redir  uint32 // the redirection that took the last word, 0 for none
}

const (
	noteSize = 32
	ringAt   = 2 * cacheLine
	linkSize = ringAt + Credits*noteSize
)

// ImporterSize is the length in bytes of an [Importer]'s page up to the end of the ring.
const ImporterSize = linkSize

// Importer is the page that the importing side of a link writes: a ring of notifications of mapped
// sends.
type Importer struct{ *shm.Region }

// NewImporter makes one.
func NewImporter() (Importer, error) {
	r, err := create("vmmc-importer", kindImporter, linkSize, true)
	if err == nil {
		Importer{r}.offered().Store(1)
	}
	return Importer{r}, err
}

// OpenImporter maps a peer's.
func OpenImporter(fd int) (Importer, error) {
	r, err := open(fd, kindImporter, linkSize, false)
	return Importer{r}, err
}

// offered is 1 until the importer has received the link, which may never happen: its node's daemon
// can end in between.
func (p Importer) offered() *atomic.Uint32 { return shm.Word(p.Bytes(), offeredAt) }

const offeredAt = 16

// Accept records that the importer has received the link.
func (p Importer) Accept() { p.offered().Store(0) }

// Accepted reports whether the importer has received it.
func (p Importer) Accepted() bool { return p.offered().Load() != 1 }

// tail counts the entries ever put.
func (p Importer) tail() *atomic.Uint32 { return shm.Word(p.Bytes(), cacheLine) }

// Put appends a notification. The caller holds a credit, so there is room, and is the only one to
// put. The entry is written by plain stores. The atomic store of its stamp makes it visible to a
// reader that polls; that of the tail, to one that looks occasionally. A reader may be ahead of the
// tail by the entry between the two stores.
func (p Importer) Put(n Notification) (tail uint32) {
	tails := p.tail()
	t := tails.Load()
	at := ringAt + int(t%Credits)*noteSize
	b := p.Bytes()[at : at+noteSize : at+noteSize]
	binary.LittleEndian.PutUint32(b, n.Handle)
	binary.LittleEndian.PutUint32(b[4:], n.Serial)
	binary.LittleEndian.PutUint64(b[8:], n.Off)
	binary.LittleEndian.PutUint32(b[16:], n.Word)
	binary.LittleEndian.PutUint32(b[20:], n.Redir)
	shm.Word(b, stampAt).Store(t + 1)
	tails.Store(t + 1)
	return t
}

// stampAt is where an entry says by itself that it is there, so a reader that polls for the next
// one gets all of it with one cache line. The tail says the same of all entries, and reveals a
// writer that miscounts.
const stampAt = 24

// Stamp returns the word that becomes head+1 with the notification after the first head ones. An
// exporter that sleeps for it sleeps on this word.
func (p Importer) Stamp(head uint32) *atomic.Uint32 {
	return shm.Word(p.Bytes(), ringAt+int(head%Credits)*noteSize+stampAt)
}

// Ready reports whether the notification after the first head ones is in the ring.
func (p Importer) Ready(head uint32) bool { return p.Stamp(head).Load() == head+1 }

// Peek reads the notification after the first head ones, if there is one. A tail that no honest
// writer could have is an error.
func (p Importer) Peek(head uint32) (n Notification, ok bool, err error) {
	if !p.Ready(head) {
		t := p.tail().Load()
		if t == head || t+1 == head { // or the writer has not moved the tail yet for what was read
			return Notification{}, false, nil
		}
		if t-head > Credits {
			return Notification{}, false, fmt.Errorf("%w: notification ring at %d, read to %d", ErrLayout, t, head)
		}
	}
	b := p.Bytes()[ringAt+int(head%Credits)*noteSize:]
	return Notification{
		Handle: binary.LittleEndian.Uint32(b),
		Serial: binary.LittleEndian.Uint32(b[4:]),
		Off:    binary.LittleEndian.Uint64(b[8:]),
		Word:   binary.LittleEndian.Uint32(b[16:]),
		Redir:  binary.LittleEndian.Uint32(b[20:]),
	}, true, nil
}

// Exporter is the page that the exporting side of a link writes.
type Exporter struct{ *shm.Region }

// exporterSize leaves the pair of lines of Awake to itself: CPUs fetch lines in pairs, and
// importers load that word with each notification.
const exporterSize = 6 * cacheLine

// NewExporter makes one.
func NewExporter() (Exporter, error) {
	r, err := create("vmmc-exporter", kindExporter, exporterSize, true)
	return Exporter{r}, err
}

// OpenExporter maps a peer's.
func OpenExporter(fd int) (Exporter, error) {
	r, err := open(fd, kindExporter, exporterSize, false)
	return Exporter{r}, err
}

// Head counts the notifications taken out of the importer's ring. It is valid while Awake is
// [Rings]. The importer moves the tail and then loads Head: if all before was taken, the exporter
// may sleep and is rung. The exporter moves Head and then loads the tail again. Both are
// sequentially consistent, so one of the two sees the other.
func (p Exporter) Head() *atomic.Uint32 { return shm.Word(p.Bytes(), cacheLine) }

// Returned is the total of credits returned on the link, modulo 2^32.
func (p Exporter) Returned() *atomic.Uint32 { return shm.Word(p.Bytes(), 2*cacheLine) }

// Values of Awake. Any other counts as Rings.
const (
	Rings = 0 // The exporter is to be rung by the link's socket.
	// It polls the ring: a notification needs nothing more.
	Polls = 1
	// Its thread sleeps on the next stamp and must be roused.
	Sleeps = 2
)

// Awake is what the exporter does, and so what a notification needs. The importer puts its
// notification and then loads this word. The exporter stores Sleeps or Rings and then checks the
// ring once more; it stores Head before Rings. All of it is sequentially consistent, so one of the
// two sees the other. An exporter that sees nothing and sleeps relies on the kernel to compare the
// stamp again (docs/models: notes).
func (p Exporter) Awake() *atomic.Uint32 { return shm.Word(p.Bytes(), 4*cacheLine) }
