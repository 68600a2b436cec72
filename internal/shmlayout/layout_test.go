package shmlayout

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// kinds makes one page of each kind, by how it is opened.
func kinds(t *testing.T) map[string]*shm.Region {
	t.Helper()
	p, err := NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	i, err := NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewExporter()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*shm.Region{"process": p.Region, "importer": i.Region, "exporter": e.Region}
	for _, r := range all {
		t.Cleanup(r.Retire)
	}
	return all
}

func opened(t *testing.T, r *shm.Region, as string) error {
	t.Helper()
	fd, err := r.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	var got *shm.Region
	switch as {
	case "process":
		p, oerr := OpenProcess(fd)
		got, err = p.Region, oerr
	case "importer":
		p, oerr := OpenImporter(fd)
		got, err = p.Region, oerr
	default:
		p, oerr := OpenExporter(fd)
		got, err = p.Region, oerr
	}
	if err == nil {
		got.Retire()
	}
	return err
}

func TestOpenTakesItsOwnKindOnly(t *testing.T) {
	all := kinds(t)
	for is, r := range all {
		for as := range all {
			if err := opened(t, r, as); (err == nil) != (is == as) {
				t.Errorf("the page of a %s opened as that of a %s: %v", is, as, err)
			}
		}
	}
	r := all["exporter"]
	r.Bytes()[4]++ // its version
	if err := opened(t, r, "exporter"); !errors.Is(err, ErrLayout) {
		t.Errorf("another version: %v", err)
	}
	for _, sealed := range []bool{true, false} {
		m, err := shm.NewSparse("test", linkSize, sealed)
		if err != nil {
			t.Fatal(err)
		}
		if err := opened(t, m, "importer"); err == nil {
			t.Errorf("empty memory (sealed: %v) passes as a page", sealed)
		}
		m.Retire()
	}
}

func TestRing(t *testing.T) {
	fd, err := kinds(t)["importer"].Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	far, err := OpenImporter(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Retire()
	own, err := NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Retire()
	if n, ok, err := far.Peek(0); ok || err != nil {
		t.Errorf("an empty ring has %+v (%v)", n, err)
	}
	for i := range uint32(3 * Credits) { // around more than once
		want := Notification{Handle: i, Serial: i + 1, Off: uint64(i) << 33, Word: ^i}
		if at := own.Put(want); at != i {
			t.Errorf("note %d was put at %d", i, at)
		}
		if n, ok, err := own.Peek(i); n != want || !ok || err != nil {
			t.Fatalf("note %d is %+v, %v, %v", i, n, ok, err)
		}
	}
	for head, bad := range map[uint32]bool{3 * Credits: false, 2 * Credits: false, 2*Credits - 1: true, 3*Credits + 1: false, 3*Credits + 2: true} {
		if _, ok, err := own.Peek(head); errors.Is(err, ErrLayout) != bad || head > 3*Credits && ok {
			t.Errorf("read to %d of %d: %v, %v", head, 3*Credits, ok, err)
		}
	}
}

// The last slot's word lies within the page.
func TestStates(t *testing.T) {
	p := Process{kinds(t)["process"]}
	p.State(Slots - 1).Store(7)
	p.Board().Count.Store(3)
	if p.State(Slots-1).Load() != 7 || p.State(0).Load() != 0 || p.Board().Count.Load() != 3 {
		t.Error("words of the page overlap")
	}
}

// A sleeper removes its entry when the process may be closed and collected already.
func TestBoardKeepsItsPage(t *testing.T) {
	p, err := NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	b := p.Board()
	p.Retire()
	for range 4 { // a cleanup follows its collection some time later
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	b.Count.Add(1)
	runtime.KeepAlive(b)
}

// A reader that polls while notifications are put, by the stamps and by the tail, finds each of
// them once and in order, and never an impossible tail.
func TestRingIsReadWhileItIsWritten(t *testing.T) {
	p, err := NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Retire()
	const notes = 50_000
	var read atomic.Uint32
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint32(0); i < notes && !over.Load(); {
			if i-read.Load() < Credits {
				p.Put(Notification{Serial: i, Off: uint64(i)})
				i++
			} else {
				runtime.Gosched()
			}
		}
	})
	for head := uint32(0); head < notes; {
		n, ok, err := p.Peek(head)
		if err != nil {
			t.Error(err)
			break
		}
		if ok {
			if n.Serial != head || n.Off != uint64(head) {
				t.Errorf("note %d is %+v", head, n)
			}
			head++
			read.Store(head)
		}
	}
	over.Store(true)
	wg.Wait()
}
