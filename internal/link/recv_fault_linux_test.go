package link

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// A message whose memory cannot be written is lost. Those behind it are not stored either, although
// their memory can be and the export has not ended yet.
func TestNothingIsStoredBehindAFault(t *testing.T) {
	const page = 4096
	mem, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	if err := syscall.Mprotect(mem[:page], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	e, fd, far := halfLink(t)
	faults := make(chan error, 2)
	target := &Target{Handle: 1, Mem: mem, Read: true, Write: true, MayFault: true, Fault: func(err error) { faults <- err }}
	rs, err := NewResponder(e, fd, nil, Terms{}, []*Target{target}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	sendRaw(t, far, wire.Header{Type: wire.Data, Flags: wire.Last, Handle: 1, Seq: 1, Size: 64, Chunk: 60}, bytes.Repeat([]byte{1}, 60))
	sendRaw(t, far, wire.Header{Type: wire.Data, Flags: wire.Last, Handle: 1, Seq: 2, Off: page, Size: 4, Word: 7}, nil)
	count := wire.Header{Type: wire.Atomic, Handle: 1, Seq: 3, Off: page + 4, Size: 4}
	count.SetOperands(wire.FetchAdd, 5, 0)
	sendRaw(t, far, count, nil)
	sendRaw(t, far, wire.Header{Type: wire.Data, Flags: wire.Last | wire.AckNow, Handle: 1, Seq: 4, Off: page, Size: 4, Word: 7}, nil)
	if h := recvRaw(t, far); h.Type != wire.Revoke || h.Ack != 0 {
		t.Fatalf("in the place of the notice is %+v", h)
	}
	for acked, refused := false, false; !acked || !refused; {
		switch h := recvRaw(t, far); {
		case h.Type == wire.Ack && h.Ack < 4 || h.Type == wire.Revoke: // repeated unless it was still queued
		case h.Type == wire.Ack && h.Ack == 4:
			acked = true
		case h.Type == wire.Nak && h.Seq == 3 && h.Word == wire.CodeRevoked:
			refused = true
		default:
			t.Fatalf("in the place of the acknowledgement or the atomic's refusal is %+v", h)
		}
	}
	if err := <-faults; !errors.Is(err, shm.ErrForbidden) {
		t.Errorf("the fault: %v", err)
	}
	rs.rmu.Lock()
	defer rs.rmu.Unlock()
	if w, n := loadLast(mem, page), loadLast(mem, page+4); w != 0 || n != 0 || len(faults) > 0 {
		t.Errorf("the word is %d, the counter %d, and %d more faults are told", w, n, len(faults))
	}
}
