package via_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc/via"
)

// enable lets peers write and read all memory of a NIC.
func (d *device) enable(t testing.TB, write, read bool) {
	t.Helper()
	want(t, "set attributes", d.mem.SetAttributes(via.MemoryAttributes{
		Tag: d.tag, EnableRDMAWrite: write, EnableRDMARead: read,
	}), 0)
}

// rdmaCouple connects VIs, of which the first lets the other side write and read.
func rdmaCouple(t testing.TB, a, b *device, level via.Level, write, read bool) (x, y *via.VI) {
	t.Helper()
	x, y = a.vi(t, level), b.vi(t, level)
	attr := a.attr(level)
	attr.EnableRDMAWrite, attr.EnableRDMARead = write, read
	want(t, "set attributes", x.SetAttributes(attr), 0)
	l := a.listen(t, fmt.Sprint("rdma", couples.Add(1)))
	connect(t, l, x, y)
	want(t, "close", l.Close(), 0)
	return x, y
}

func TestRDMAReadIsNotOffered(t *testing.T) {
	a, _ := start(t, ways[0])
	attr := a.attr(via.Unreliable)
	attr.EnableRDMARead = true
	_, err := a.NewVI(attr, nil, nil)
	want(t, "a VI", err, via.ErrInvalidRDMARead)
	want(t, "set attributes", a.vi(t, via.ReliableDelivery).SetAttributes(attr), via.ErrInvalidRDMARead)
}

func TestRDMA(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		a.enable(t, true, true)
		for _, level := range levels {
			t.Run(fmt.Sprint(level), func(t *testing.T) {
				x, y := rdmaCouple(t, a, b, level, true, level != via.Unreliable)
				for i, n := range []int{0, 1, 64, 32 << 10, 32<<10 + 1, 1 << 20} {
					clear(a.mem.Bytes())
					src := b.mem.Bytes()[7 : 7+n]
					fill(src, byte(i))
					post(t, x.PostReceive(a.at(3<<20, 100)))
					// A write gathers. It has immediate data, which tells when it is there.
					d := &via.Descriptor{
						Control:       via.OpRDMAWrite | via.Immediate,
						Segments:      []via.Segment{b.mem.Segment(7, n/3), b.mem.Segment(7+n/3, n-n/3)},
						Remote:        a.mem.Remote(51),
						ImmediateData: uint32(i),
					}
					post(t, y.PostSend(d))
					sent(t, y, via.OpWrite)
					r, err := x.ReceiveWait(within(t))
					if err != nil || r.Status != via.Done|via.OpRemoteWrite|via.ImmediateArrived ||
						r.Length != n || r.ImmediateData != uint32(i) {
						t.Fatalf("%d bytes: %+v, %v", n, r, err)
					}
					got := a.mem.Bytes()
					if !bytes.Equal(got[51:51+n], src) || got[50] != 0 || got[51+n] != 0 {
						t.Fatalf("%d bytes differ", n)
					}
					if level == via.Unreliable {
						continue
					}
					// A read scatters.
					clear(b.mem.Bytes()[2<<20:])
					d = &via.Descriptor{
						Control:  via.OpRDMARead,
						Segments: []via.Segment{b.mem.Segment(2<<20+1, n/2), b.mem.Segment(2<<20+1+n/2, n-n/2)},
						Remote:   a.mem.Remote(51),
					}
					post(t, y.PostSend(d))
					if d := sent(t, y, via.OpRead); d.Length != n {
						t.Fatalf("%d bytes of %d were read", d.Length, n)
					}
					x.State() // behind the accesses of x's NIC, for the race detector
					got = b.mem.Bytes()[2<<20:]
					if !bytes.Equal(got[1:1+n], a.mem.Bytes()[51:51+n]) || got[0] != 0 || got[1+n] != 0 {
						t.Fatalf("%d bytes differ", n)
					}
				}
				// A write without immediate data consumes no receive; a later SEND tells that it is there.
				clear(a.mem.Bytes()[:100])
				post(t, x.PostReceive(a.at(3<<20, 100)))
				post(t, y.PostSend(&via.Descriptor{
					Control: via.OpRDMAWrite, Segments: []via.Segment{b.mem.Segment(7, 64)}, Remote: a.mem.Remote(1),
				}))
				sent(t, y, via.OpWrite)
				if d, err := x.ReceiveDone(); d != nil {
					t.Fatalf("%+v, %v", d, err)
				}
				post(t, y.PostSend(b.at(0, 1)))
				sent(t, y, 0)
				received(t, x, 0)
				if !bytes.Equal(a.mem.Bytes()[1:65], b.mem.Bytes()[7:71]) {
					t.Error("the write is not there")
				}
				a.silent(t)
				b.silent(t)
			})
		}
	})
}

// What may not be written or read is not, to the byte.
func TestRDMARefused(t *testing.T) {
	a, b := start(t, ways[0])
	tag, err := a.NewTag()
	if err != nil {
		t.Fatal(err)
	}
	region := func(tag *via.ProtectionTag, write, read bool) *via.Memory {
		m, err := a.Register(make([]byte, 300)[100:200], via.MemoryAttributes{
			Tag: tag, EnableRDMAWrite: write, EnableRDMARead: read,
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	good := region(a.tag, true, true)
	gone := region(a.tag, true, true)
	want(t, "deregister", gone.Deregister(), 0)
	for _, c := range []struct {
		name     string
		remote   via.Remote
		vi, fine bool
	}{
		{"the whole region", good.Remote(0), true, true},
		{"a byte behind it", good.Remote(1), true, false},
		{"a byte before it", good.Remote(-1), true, false},
		{"far behind it", good.Remote(1 << 40), true, false},
		{"address 0", via.Remote{Handle: good.Handle()}, true, false},
		{"the last address", via.Remote{Address: 1<<64 - 1, Handle: good.Handle()}, true, false},
		{"no region", via.Remote{Address: good.Remote(0).Address}, true, false},
		{"another region", via.Remote{Address: good.Remote(0).Address, Handle: a.mem.Handle()}, true, false},
		{"a region that is gone", gone.Remote(0), true, false},
		{"another tag", region(tag, true, true).Remote(0), true, false},
		{"a region that does not enable it", region(a.tag, false, false).Remote(0), true, false},
		{"a VI that does not enable it", good.Remote(0), false, false},
	} {
		for _, level := range levels {
			for _, control := range []via.Control{via.OpRDMAWrite, via.OpRDMAWrite | via.Immediate, via.OpRDMARead} {
				t.Run(fmt.Sprint(c.name, "/", level, "/", control), func(t *testing.T) {
					reads := control == via.OpRDMARead
					x, y := rdmaCouple(t, a, b, level, c.vi, c.vi && level != via.Unreliable)
					post(t, x.PostReceive(a.at(0, 8)))
					before := bytes.Clone(good.Bytes())
					x.State() // before the accesses of x's NIC, for the race detector
					fill(b.mem.Bytes()[:100], before[0]+1)
					d := &via.Descriptor{Control: control, Segments: b.at(0, 100).Segments, Remote: c.remote}
					post(t, y.PostSend(d))
					if reads && level == via.Unreliable {
						d, err := y.SendWait(within(t))
						checked(t, d, err, via.OpRead|via.FormatError)
						return
					}
					op := via.OpWrite
					if reads {
						op = via.OpRead
					}
					switch {
					case c.fine:
						sent(t, y, op)
						want(t, "disconnect", x.Disconnect(), 0)
						if level != via.Unreliable && !bytes.Equal(good.Bytes(), b.mem.Bytes()[:100]) {
							t.Error("the region differs")
						}
						b.told(t, via.ConnectionLost)
						return
					case level == via.Unreliable:
						sent(t, y, op)
					default:
						sent(t, y, op|via.RDMAError)
					}
					switch {
					case reads:
						a.told(t, via.ReadProtection)
					case control&via.Immediate == 0:
						a.told(t, via.WriteProtection)
					default:
						d, err := x.ReceiveWait(within(t))
						checked(t, d, err, via.OpRemoteWrite|via.RDMAError)
					}
					if level != via.Unreliable {
						a.told(t, via.ConnectionLost)
						b.told(t, via.ConnectionLost)
					}
					if !bytes.Equal(good.Bytes(), before) {
						t.Error("the region was changed")
					}
				})
			}
		}
	}
}

// Reads, writes and SENDs of one queue are completed in their order, with and without fences.
func TestFence(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		a.enable(t, true, true)
		for _, level := range levels[1:] {
			x, y := rdmaCouple(t, a, b, level, true, true)
			const rounds, size = 20, 40 << 10
			var all []*via.Descriptor
			for i := range rounds {
				post(t, x.PostReceive(a.at(3<<20, 8)))
				fence := via.Control(i%2) * via.QFence
				fill(b.mem.Bytes()[i*size:(i+1)*size], byte(i))
				all = append(all,
					&via.Descriptor{Control: via.OpRDMAWrite, Remote: a.mem.Remote(i * size), Segments: b.at(i*size, size).Segments},
					&via.Descriptor{Control: via.OpRDMARead, Remote: a.mem.Remote(i * size), Segments: b.at(2<<20+i*size, size).Segments},
					&via.Descriptor{Control: fence, Segments: b.at(0, 8).Segments})
			}
			for _, d := range all {
				post(t, y.PostSend(d))
			}
			for i, d := range all {
				if got, err := y.SendWait(within(t)); got != d || err != nil {
					t.Fatalf("descriptor %d: %v", i, err)
				}
			}
			for range rounds {
				received(t, x, 0)
			}
			if !bytes.Equal(b.mem.Bytes()[:rounds*size], b.mem.Bytes()[2<<20:2<<20+rounds*size]) {
				t.Error("what was read is not what was written")
			}
		}
	})
}

// Rights that are taken away hold when the call returns.
func TestRDMARightsTakenAway(t *testing.T) {
	each(t, func(t *testing.T, w way) {
		a, b := start(t, w)
		for i, take := range []func(m *via.Memory) error{
			(*via.Memory).Deregister,
			func(m *via.Memory) error { return m.SetAttributes(via.MemoryAttributes{Tag: a.tag}) },
			(*via.Memory).Deregister,
			func(m *via.Memory) error { return m.SetAttributes(via.MemoryAttributes{Tag: a.tag}) },
		} {
			for _, op := range []via.Control{via.OpRDMAWrite, via.OpRDMARead} {
				x, y := rdmaCouple(t, a, b, via.ReliableReception, true, true)
				var m *via.Memory
				if i < 2 {
					var err error
					m, err = a.Register(make([]byte, 1<<20), via.MemoryAttributes{
						Tag: a.tag, EnableRDMAWrite: true, EnableRDMARead: true,
					})
					if err != nil {
						t.Fatal(err)
					}
				} else if m = a.region(t, 1<<20); w == ways[0] {
					direct(t, y, m, b)
				}
				fill(b.mem.Bytes()[:1<<20], 1)
				operation := func() {
					post(t, y.PostSend(&via.Descriptor{Control: op, Remote: m.Remote(0), Segments: b.at(0, 1<<20).Segments}))
				}
				const n = 100
				for range n {
					operation()
				}
				eventually(t, "an operation is complete", func() bool {
					d, err := y.SendDone()
					return d != nil && err == nil
				})
				want(t, "take away", take(m), 0)
				clear(m.Bytes())
				operation() // those before may all be complete
				a.told(t, map[via.Control]via.ErrorCode{
					via.OpRDMAWrite: via.WriteProtection, via.OpRDMARead: via.ReadProtection,
				}[op])
				a.told(t, via.ConnectionLost)
				b.told(t, via.ConnectionLost)
				if !bytes.Equal(m.Bytes(), make([]byte, 1<<20)) {
					t.Error("it was written afterwards")
				}
				want(t, "disconnect", x.Disconnect(), 0)
			}
		}
	})
}
