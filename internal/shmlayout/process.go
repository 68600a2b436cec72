package shmlayout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Every page begins with its kind, version and size.
const (
	version = 1

	kindProcess  = 0x50434d56 // "VMCP"
	kindImporter = 0x49434d56 // "VMCI"
	kindExporter = 0x45434d56 // "VMCE"
	kindPost     = 0x50524d56 // "VMRP"
	kindClaim    = 0x43524d56 // "VMRC"
	kindCounters = 0x4c434d56 // "VMCL"
)

// cacheLine keeps words that different CPUs write off one another's cache lines.
const cacheLine = 64

// ErrLayout is the error of a page with an unknown layout.
var ErrLayout = errors.New("shared page of an unknown layout")

// create makes a page. Without private the process it is sent to may write it.
func create(name string, kind uint32, size int, private bool) (*shm.Region, error) {
	r, err := shm.NewSparse(name, size, private)
	if err == nil {
		err = r.Seal(private)
	}
	if err != nil {
		if r != nil {
			r.Retire()
		}
		return nil, err
	}
	binary.LittleEndian.PutUint32(r.Bytes(), kind)
	binary.LittleEndian.PutUint32(r.Bytes()[4:], version)
	binary.LittleEndian.PutUint64(r.Bytes()[8:], uint64(r.Size()))
	return r, nil
}

// open maps a received page. It owns the descriptor also when it fails.
func open(fd int, kind uint32, size int, write bool) (*shm.Region, error) {
	r, err := shm.OpenSparse(fd, shm.RoundUp(size), write)
	if err != nil {
		return nil, err
	}
	k, v := binary.LittleEndian.Uint32(r.Bytes()), binary.LittleEndian.Uint32(r.Bytes()[4:])
	if k != kind || v != version {
		r.Retire()
		return nil, fmt.Errorf("%w: kind %#x version %d, want %#x version %d",
			ErrLayout, k, v, kind, version)
	}
	return r, nil
}

// Slots is how many exports a process can have at a time.
const Slots = 1 << 16

const processSize = 4096 + Slots*cacheLine

// Process is the page of a process, mapped by all processes on its node that it has links with: how
// many of its goroutines sleep, and the state of each export. Its pages appear as slots are used.
type Process struct{ *shm.Region }

// NewProcess makes this process's own.
func NewProcess() (Process, error) {
	r, err := create("vmmc-process", kindProcess, processSize, true)
	return Process{r}, err
}

// OpenProcess maps a peer's.
func OpenProcess(fd int) (Process, error) {
	r, err := open(fd, kindProcess, processSize, false)
	return Process{r}, err
}

// Board returns the board that shows how many goroutines sleep, and for which words. Senders look
// at it after their last word.
func (p Process) Board() wait.Board {
	b := wait.Board{Count: shm.Word(p.Bytes(), cacheLine), Any: shm.Word(p.Bytes(), cacheLine+4), Of: p.Region}
	for i := range b.Words {
		b.Words[i] = shm.Word64(p.Bytes(), cacheLine+8+8*i)
	}
	return b
}

// State returns the word of export slot s. An even value means that there is no export. Each export
// has another odd value, so a slot's next user is not mistaken for the previous one.
func (p Process) State(s uint32) *atomic.Uint32 {
	return shm.Word(p.Bytes(), 4096+int(s)*cacheLine)
}
