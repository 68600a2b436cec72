package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"

	"github.com/vmmc-go/vmmc"
)

const (
	senders = 4
	slots   = 256
	message = 64
)

// fill makes the message that sender s sends as its n-th: every word tells both.
func fill(b []byte, s, n uint32) {
	for i := 0; i < message-4; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], n*2654435761+s<<24+uint32(i))
	}
	binary.LittleEndian.PutUint32(b[message-4:], n)
}

// collect receives from all senders into a buffer for each, in a ring of slots,
// and checks every word. Args: number of messages.
func collect(ctx context.Context, p *vmmc.Process, args []string) error {
	total, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	var exps [senders]*vmmc.Export
	for s := range exps {
		m, err := p.Alloc(slots * message)
		if err != nil {
			return err
		}
		if exps[s], err = p.Export(uint32(s), m.Bytes()); err != nil {
			return err
		}
	}
	// Each sender writes its process id into a hello buffer, for the way back.
	m, err := p.Alloc(senders * 8)
	if err != nil {
		return err
	}
	hello, err := p.Export(senders, m.Bytes())
	if err != nil {
		return err
	}
	var back [senders]*vmmc.Import
	for s := range back {
		w, err := hello.Word(s*8 + 4)
		if err != nil {
			return err
		}
		pid, err := w.Wait(ctx, 0)
		if err != nil {
			return err
		}
		node := p.AllHosts()[binary.LittleEndian.Uint32(m.Bytes()[s*8:])]
		if back[s], err = p.Import(ctx, node, vmmc.PID(pid), 1); err != nil {
			return err
		}
	}
	var got [senders]uint32
	want := make([]byte, message)
	ack := make([]byte, 4)
	for done := 0; done < senders; {
		moved := false
		for s := range exps {
			for n := 0; n < slots/2 && got[s] < uint32(total); n++ {
				next := got[s] + 1
				at := int(next%slots) * message
				w, err := exps[s].Word(at + message - 4)
				if err != nil {
					return err
				}
				if v := w.Load(); v != next {
					if v > next {
						return fmt.Errorf("sender %d: message %d came before %d", s, v, next)
					}
					break
				}
				fill(want, uint32(s), next)
				if b := exps[s].Bytes()[at : at+message]; string(b) != string(want) {
					return fmt.Errorf("sender %d, message %d: %x, want %x", s, next, b, want)
				}
				got[s], moved = next, true
				if next%(slots/4) == 0 || next == uint32(total) {
					binary.LittleEndian.PutUint32(ack, next)
					if err := back[s].Send(ctx, ack, 0); err != nil {
						return err
					}
				}
				if next == uint32(total) {
					done++
				}
			}
		}
		if !moved && done < senders {
			if err := p.WaitUntil(ctx, func() bool {
				for s := range exps {
					next := got[s] + 1
					if w, err := exps[s].Word(int(next%slots)*message + message - 4); err == nil && got[s] < uint32(total) && w.Load() == next {
						return true
					}
				}
				return false
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// produce sends to a collector. Args: node and pid of it, own number, messages,
// own node's place.
func produce(ctx context.Context, p *vmmc.Process, args []string) error {
	node, pid, err := target(p, args[0], args[1])
	if err != nil {
		return err
	}
	var n [3]uint64
	for i := range n {
		if n[i], err = strconv.ParseUint(args[2+i], 10, 32); err != nil {
			return err
		}
	}
	s, total := uint32(n[0]), uint32(n[1])
	m, err := p.Alloc(4)
	if err != nil {
		return err
	}
	e, err := p.Export(1, m.Bytes())
	if err != nil {
		return err
	}
	acked, err := e.Word(0)
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, node, pid, s)
	if err != nil {
		return err
	}
	hello, err := p.Import(ctx, node, pid, senders)
	if err != nil {
		return err
	}
	b := make([]byte, message)
	binary.LittleEndian.PutUint32(b, uint32(n[2]))
	binary.LittleEndian.PutUint32(b[4:], uint32(p.PID()))
	if err := hello.Send(ctx, b[:8], int(s)*8); err != nil {
		return err
	}
	for i := uint32(1); i <= total; i++ {
		for a := acked.Load(); i-a > slots/2; {
			if a, err = acked.Wait(ctx, a); err != nil {
				return err
			}
		}
		fill(b, s, i)
		if err := im.Send(ctx, b, int(i%slots)*message); err != nil {
			return err
		}
	}
	for a := acked.Load(); a != total; { // the collector is done with all
		if a, err = acked.Wait(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func TestFourSendersOneReceiver(t *testing.T) {
	for _, c := range []struct {
		path string
		node int // of the senders
		each int
	}{{"mapped", 0, 500_000}, {"stream", 1, 250_000}} {
		t.Run(c.path, func(t *testing.T) {
			each := scaled(c.each)
			cl := up(t, 2, nil, nil)
			pid, rx, _ := spawn(t, cl, 0, "collect", strconv.Itoa(each))
			for s := range senders {
				_, tx, _ := spawn(t, cl, c.node, "produce", "n0", number(pid), strconv.Itoa(s), strconv.Itoa(each), strconv.Itoa(c.node))
				defer finish(t, tx)
			}
			finish(t, rx)
			t.Logf("%s: %d messages from each of %d senders, all in order and whole", c.path, each, senders)
		})
	}
}
