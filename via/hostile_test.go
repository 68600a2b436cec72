package via_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
)

// A peer that breaks the protocol ends its link, and changes nothing besides.
func TestFalseMessages(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		ctx := within(t)
		for name, forge := range map[string]func(x, y *via.VI) []byte{
			"an unknown kind": func(x, _ *via.VI) []byte {
				c, _ := x.Conns()
				return via.Message(via.Kinds, 0, c, 0, 0, 0, 0)
			},
			"a SEND without a beginning": func(x, _ *via.VI) []byte {
				c, _ := x.Conns()
				return via.Message(1, 0, c, 0, 8, 0, 0)
			},
			"a SEND that is too long": func(x, _ *via.VI) []byte {
				c, _ := x.Conns()
				return via.Message(1, 1, c, 0, 1<<20+1, 0, 0)
			},
			"a fragment without data": func(x, _ *via.VI) []byte {
				c, _ := x.Conns()
				return via.Message(1, 1, c, 0, 8, 0, 0)
			},
			"a fragment that is longer than the SEND": func(x, _ *via.VI) []byte {
				c, _ := x.Conns()
				return append(via.Message(1, 1, c, 16, 8, 0, 0), make([]byte, 16)...)
			},
			"a size beyond the message": func(x, _ *via.VI) []byte {
				c, _ := x.Conns()
				return via.Message(1, 1, c, 4096, 4096, 0, 0)
			},
			"a size beyond all": func(x, _ *via.VI) []byte {
				c, _ := x.Conns()
				return via.Message(1, 1, c, 0xFFFFFFFF, 4096, 0, 0)
			},
			"an acknowledgement of what was not sent": func(_, _ *via.VI) []byte {
				return via.Message(1, 1, 0, 0, 0, 0, 1<<30)
			},
			"a request without an address": func(_, _ *via.VI) []byte {
				return append(via.Message(4, 0, 0, 8, 0, 0, 0), make([]byte, 8)...)
			},
			"an answer without attributes": func(_, _ *via.VI) []byte {
				return via.Message(6, 0, 0, 0, 0, 0, 0)
			},
		} {
			t.Run(name, func(t *testing.T) {
				x, y := couple(t, a, b, via.Unreliable)
				post(t, x.PostReceive(a.at(0, 8)))
				if err := b.Forge(ctx, forge(x, y)); err != nil {
					t.Fatal(err)
				}
				a.told(t, via.ConnectionLost)
				b.told(t, via.ConnectionLost)
				flushed(t, x.ReceiveDone, 1)
				eventually(t, "the links end", func() bool { return a.Links() == 0 && b.Links() == 0 })
			})
		}
	})
}

// Whatever a peer writes into the buffer that it may write: memory beside posted receives stays as
// it is, no descriptor is completed that was not posted, and other peers are served.
func TestRandomWriter(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 1))
		fill(a.mem.Bytes(), 9)
		clear(a.mem.Bytes()[4096:8192]) // where receives are
		before := bytes.Clone(a.mem.Bytes())
		rounds := 60
		if race || testing.Short() {
			rounds = 20
		}
		for range rounds {
			x, y := couple(t, a, b, levels[r.IntN(3)])
			const posted = 3
			for i := range posted {
				post(t, x.PostReceive(a.at(4096+1000*i, 1000)))
			}
			conn, _ := x.Conns()
			for range 20 {
				if b.Poke(func(im *vmmc.Import, end uint32) error { return writeSome(r, im, conn, end) }) != nil {
					break // the link has ended
				}
			}
			_ = b.Poke(func(im *vmmc.Import, end uint32) error { // it may have ended
				return im.Send(context.Background(), via.Word(end|1), via.HeadOff)
			})
			eventually(t, "the links end", func() bool { return a.Links() == 0 && b.Links() == 0 })
			want(t, "disconnect", y.Disconnect(), 0)
			want(t, "disconnect", x.Disconnect(), 0)
			done := 0
			for d, _ := x.ReceiveDone(); d != nil; d, _ = x.ReceiveDone() {
				done++
			}
			if done != posted {
				t.Fatalf("%d descriptors of %d", done, posted)
			}
			want(t, "destroy", x.Destroy(), 0)
		}
		got := a.mem.Bytes()
		if !bytes.Equal(got[:4096], before[:4096]) || !bytes.Equal(got[7096:], before[7096:]) {
			t.Error("memory beside the receives was changed")
		}
	})
}

// writeSome writes a random message, head or acknowledgement.
func writeSome(r *rand.Rand, im *vmmc.Import, conn, end uint32) error {
	ctx := context.Background()
	at := int(end % via.RingSize)
	size := uint32(r.IntN(64)) * 32
	b := via.Message(uint8(r.IntN(via.Kinds+1)), uint8(r.IntN(8)), conn, uint32(r.IntN(3000)),
		uint32(r.IntN(3000)), r.Uint32N(3), end)
	switch r.IntN(8) {
	case 0:
		b = via.Message(uint8(r.Uint32()), uint8(r.Uint32()), r.Uint32(), r.Uint32(), r.Uint32(), r.Uint32(), r.Uint32())
	case 1:
		return im.Send(ctx, via.Word(r.Uint32()), via.TakenOff)
	case 2:
		return im.Send(ctx, via.Word(r.Uint32()), via.HeadOff)
	case 3:
		for i := range 8 {
			b[r.IntN(len(b))] ^= byte(1 << i)
		}
	default:
	}
	if at+via.HeaderSize <= via.RingSize {
		if err := im.Send(ctx, b, via.RingOff+at); err != nil {
			return err
		}
	}
	return im.Send(ctx, via.Word(end+size), via.HeadOff)
}

// A write of which the connection loses the rest, and one that is corrupt, are told: in the receive
// that one with immediate data consumes, and by an asynchronous error otherwise.
func TestWriteLost(t *testing.T) {
	const (
		write            = 7
		first, immediate = 1, 2
	)
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		a.enable(t, true, true)
		for _, level := range levels {
			for _, c := range []struct {
				name   string
				flags  uint8
				data   int // of 64 bytes, or none and no target
				code   via.ErrorCode
				status via.Status
			}{
				{"a part", first, 32, via.WriteAborted, 0},
				{"a part, immediate data", first | immediate, 32, 0, via.PartialError},
				{"corrupt", first, 0, via.WriteData, 0},
				{"corrupt, immediate data", first | immediate, 0, 0, via.FormatError},
			} {
				t.Run(fmt.Sprint(c.name, "/", level), func(t *testing.T) {
					x, y := rdmaCouple(t, a, b, level, true, level != via.Unreliable)
					post(t, x.PostReceive(a.at(4096, 64)))
					post(t, x.PostReceive(a.at(4096, 64)))
					conn, _ := x.Conns()
					var data []byte
					if c.data > 0 {
						to := a.mem.Remote(0)
						data = binary.LittleEndian.AppendUint64(nil, to.Address)
						data = binary.LittleEndian.AppendUint32(data, uint32(to.Handle))
						data = append(data, make([]byte, 4+c.data)...)
					}
					m := append(via.Message(write, c.flags, conn, uint32(len(data)), 64, 0, 0), data...)
					if err := b.Forge(within(t), m); err != nil {
						t.Fatal(err)
					}
					if c.data > 0 {
						if err := b.Forge(within(t), via.Message(via.Kinds, 0, conn, 0, 0, 0, 0)); err != nil {
							t.Fatal(err) // which ends the link
						}
					}
					left := 2
					if c.status == 0 {
						a.told(t, c.code)
					} else {
						d, err := x.ReceiveWait(within(t))
						checked(t, d, err, via.OpRemoteWrite|c.status)
						left--
					}
					a.told(t, via.ConnectionLost)
					b.told(t, via.ConnectionLost)
					flushed(t, x.ReceiveDone, left)
					want(t, "disconnect", errorsOf(x.Disconnect(), y.Disconnect()), 0)
					eventually(t, "the links end", func() bool { return a.Links() == 0 && b.Links() == 0 })
				})
			}
		}
		a.silent(t)
	})
}

// An owner that grants one export under handles without end, and with sizes that it has not, takes a
// bounded amount of the peer's memory and reaches none of it.
func TestGrantsWithoutEnd(t *testing.T) {
	const size, grants = 1 << 16, 5000
	a, b := start(t, ways[0])
	m := b.region(t, size)
	x, y := rdmaCouple(t, b, a, via.ReliableDelivery, true, true)
	direct(t, y, m, a)
	id := y.Regions()[0].ID()
	_, peer := x.Conns()
	grant := func(base, size uint64, h via.Handle) {
		b.Grant(peer, base, size, h, id)
		y.State() // the grants are taken while they are sent
		_, _ = y.SendDone()
	}
	for _, n := range []uint64{0, size - 4096, size + 4096, 1 << 40} {
		grant(0, n, via.Handle(100000+n%4099))
	}
	settled := func() { // all grants before it were taken
		want := y.Direct()
		eventually(t, "the grants are imported", func() bool {
			rdma(t, y, via.OpRDMAWrite, m.Remote(0), a.at(0, 5).Segments...)
			last := want
			want = y.Direct()
			return last == want && !a.Importing()
		})
	}
	settled()
	if n := y.Direct(); n != 1 {
		t.Errorf("%d regions after grants of another size", n)
	}
	for i := range grants {
		grant(0, size, via.Handle(1000+i))
	}
	settled()
	if n := y.Direct(); n != via.MaxGrants {
		t.Errorf("%d regions after %d grants, want %d", n, grants, via.MaxGrants)
	}
	if s := y.State(); s != via.Connected {
		t.Errorf("the VI is in state %v", s)
	}
}
