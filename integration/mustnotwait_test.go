package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// A send whose context has ended refuses its message if it would have to wait. A link that resumes keeps each
// message that it has taken when the connection breaks: libvmmc tells its program that such a one was sent.
func TestSendsThatMustNotWait(t *testing.T) {
	const message, slots = 64 << 10, 64
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended, end := context.WithCancel(ctx)
	end()
	nodes := vmmctest.Nodes(t, 2)
	events := make(chan vmmc.Event, 64)
	p := nodes[0].Open(t, vmmc.WithResume(time.Minute), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
	await := func(kind vmmc.EventKind) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e.Kind == kind {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no event %v", kind)
			}
		}
	}
	q := nodes[1].Open(t, vmmc.WithResume(time.Minute))
	mem, err := q.Alloc(message * slots)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Export(1, mem.Bytes()); err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(ctx, q.Node(), q.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for round := range uint32(4) {
		nodes[0].Delay(100 * time.Millisecond) // The socket has room, but nothing is acknowledged.
		want := make([]uint32, slots)
		data := make([]byte, message)
		for i := range slots {
			v := round*slots + uint32(i) + 1
			for off := 0; off < message; off += 4 {
				binary.NativeEndian.PutUint32(data[off:], v)
			}
			switch err := im.Send(ended, data, i*message); {
			case err == nil || errors.Is(err, vmmc.ErrOutcomeUnknown):
				want[i] = v
			case errors.Is(err, vmmc.ErrCanceled):
				refused++
			default:
				t.Fatal(err)
			}
			clear(data) // What is taken is a copy.
		}
		nodes[0].Cut()
		await(vmmc.LinkDown)
		nodes[0].Delay(0)
		nodes[0].Heal()
		await(vmmc.LinkResumed)
		if err := im.Fence(ctx); err != nil {
			t.Fatal(err)
		}
		for i, v := range want {
			got := mem.Bytes()[i*message : (i+1)*message]
			if v == 0 {
				v = binary.NativeEndian.Uint32(got) // of an earlier round, or 0
				if v > round*slots {
					t.Errorf("round %d: message %d has arrived, though it was refused", round, i)
				}
			}
			if first := binary.NativeEndian.AppendUint32(nil, v); !bytes.Equal(got, bytes.Repeat(first, message/4)) {
				t.Fatalf("round %d: message %d is not there as a whole: its first word is %d, want %d", round, i, binary.NativeEndian.Uint32(got), v)
			}
		}
	}
	if refused == 0 {
		t.Error("no send was refused: the send buffer was never full")
	}
}
