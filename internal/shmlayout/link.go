package shmlayout

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Credits is how many notifications may be under way on one link: sent and not
// yet returned from their handler.
const Credits = 64

// Notification is a notification on its way: the export, and the message's last word
// as it was sent, so that a later message cannot change what the handler sees.
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

// Importer is the page that the importing side of a link writes: a ring of
// notifications about mapped sends.
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

// offered is 1 until the importer has the link, of which it may never hear: its node's daemon
// can end in between.
func (p Importer) offered() *atomic.Uint32 { return shm.Word(p.Bytes(), offeredAt) }

const offeredAt = 16

// Accept says that the importer has the link.
func (p Importer) Accept() { p.offered().Store(0) }

// Accepted says whether it has had it.
func (p Importer) Accepted() bool { return p.offered().Load() != 1 }

// tail counts the entries ever put.
func (p Importer) tail() *atomic.Uint32 { return shm.Word(p.Bytes(), cacheLine) }

// Put appends a note. The caller holds a credit, so there is room, and is the
// only one to put. The entry is written plainly; the atomic store of its stamp
// makes it visible to who polls, that of the tail to who looks now and then. A
// reader may be ahead of the tail by the one that is between the two.
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

// stampAt is where an entry says itself that it is there, so that who polls for the
// next one has all of it with one cache line. The tail says the same of all, and
// an error in a writer that does not count right.
const stampAt = 24

// Stamp is the word that becomes head+1 with the note after the first head ones. An
// exporter that sleeps for this note sleeps on it.
func (p Importer) Stamp(head uint32) *atomic.Uint32 {
	return shm.Word(p.Bytes(), ringAt+int(head%Credits)*noteSize+stampAt)
}

// Ready says whether the note after the first head ones is in the ring.
func (p Importer) Ready(head uint32) bool { return p.Stamp(head).Load() == head+1 }

// Peek reads the note after the first head ones, if there is one. A tail that
// no honest writer could have is an error.
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

// exporterSize leaves the pair of lines of Awake to itself: processors fetch lines in
// pairs, and importers load that word with each note.
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

// Head counts the notes taken out of the importer's ring, as far as it matters: it is
// right while Awake is [Rings]. The importer, having moved the tail, loads it: if all
// before was taken, the exporter may sleep and is rung. The exporter, having moved the
// head, loads the tail again. Both are sequentially consistent, so one of the two sees
// the other.
func (p Exporter) Head() *atomic.Uint32 { return shm.Word(p.Bytes(), cacheLine) }

// Returned is the total of credits returned on the link, modulo 2^32.
func (p Exporter) Returned() *atomic.Uint32 { return shm.Word(p.Bytes(), 2*cacheLine) }

// What Awake says. Anything else counts as Rings.
const (
	Rings  = 0 // the exporter is to be rung by the link's socket
	Polls  = 1 // it polls the ring: a note needs nothing more
	Sleeps = 2 // its thread sleeps on the stamp of the next note, and is to be roused
)

// Awake is what the exporter does, and with it what a note needs. The importer puts its
// note and then loads this word. The exporter stores Sleeps or Rings and then looks into
// the ring once more; Head it stores before Rings. All of it is sequentially consistent,
// so one of the two sees the other. An exporter that sees nothing and sleeps leaves it
// to the kernel to compare the stamp again (docs/models: notes).
func (p Exporter) Awake() *atomic.Uint32 { return shm.Word(p.Bytes(), 4*cacheLine) }
