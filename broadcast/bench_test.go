package broadcast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
)

var benchWays = []way{ways[0], ways[2]}

// BenchmarkAppend is an append alone, beside a plain copy of the entry.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{64, 4096} {
		src := make([]byte, n)
		b.Run(fmt.Sprintf("%d bytes/no reader", n), func(b *testing.B) {
			_, log := ways[0].start(b, 1<<20)
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, err := log.Append(src); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d bytes/raw copy", n), func(b *testing.B) {
			dst, at := make([]byte, 1<<20), 0
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(dst[at:], src)
				at = (at + n) & (len(dst) - 1)
			}
		})
	}
}

// BenchmarkRead is the reading of entries that are there, beside gets of as many bytes.
func BenchmarkRead(b *testing.B) {
	const ring = 1 << 20
	for _, w := range benchWays {
		for _, n := range []int{64, 4096} {
			nodes, log := w.start(b, ring)
			p := nodes[len(nodes)-1].Open(b)
			r := newReader(b, p, broadcast.Oldest)
			for range ring / 2 / (n + 8) {
				if _, err := log.Append(make([]byte, n)); err != nil {
					b.Fatal(err)
				}
			}
			_, tail := log.Bounds()
			ctx, buf := context.Background(), make([]byte, n)
			b.Run(fmt.Sprintf("%s/%d bytes", w.name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					if r.Pos() == tail {
						r.Reset(0, true)
					}
					if _, _, err := r.Next(ctx, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("%s/raw get of %d bytes of entries", w.name, r.Chunk()), func(b *testing.B) {
				dst := make([]byte, r.Chunk())
				b.SetBytes(int64(len(dst)))
				for b.Loop() {
					if err := r.Log().Get(ctx, dst, broadcast.LogHeader); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLatency is an entry of 64 bytes to a reader that waits, and one back, beside a message
// each way. The reader has made its request when the next entry comes between nodes, too.
func BenchmarkLatency(b *testing.B) {
	for _, w := range benchWays {
		nodes, there := w.start(b, 1<<16)
		far := nodes[len(nodes)-1].Open(b)
		back, err := broadcast.NewWriter(within(b), far, "n"+itoa(len(nodes))+"/back", 1<<16)
		if err != nil {
			b.Fatal(err)
		}
		defer back.Close(ended())
		to := newReader(b, far, broadcast.Newest)
		from, err := broadcast.NewReader(within(b), there.Process(), "n"+itoa(len(nodes))+"/back", broadcast.Newest)
		if err != nil {
			b.Fatal(err)
		}
		defer from.Close()
		ctx, stop := context.WithCancel(context.Background())
		entry := make([]byte, 64)
		echoed := make(chan struct{})
		defer func() {
			stop()
			<-echoed
		}()
		go func() {
			defer close(echoed)
			buf := make([]byte, 64)
			for {
				if _, _, err := to.Next(ctx, buf); err != nil {
					return
				}
				if _, err := back.Append(entry); err != nil {
					return
				}
			}
		}()
		b.Run(w.name+"/round trip", func(b *testing.B) {
			buf := make([]byte, 64)
			for b.Loop() {
				if _, err := there.Append(entry); err != nil {
					b.Fatal(err)
				}
				if _, _, err := from.Next(ctx, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(w.name+"/raw messages", func(b *testing.B) { rawRoundTrip(b, there.Process(), far) })
	}
}

// rawRoundTrip sends a message of 64 bytes each way.
func rawRoundTrip(b *testing.B, p, q *vmmc.Process) {
	ends := [2]*vmmc.Process{p, q}
	var words [2]vmmc.Word
	var ims [2]*vmmc.Import
	for i, o := range ends {
		mem, err := o.Alloc(64)
		if err != nil {
			b.Fatal(err)
		}
		e, err := o.Export(77, mem.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close() // before the memory's end with the process
		if words[i], err = e.Word(60); err != nil {
			b.Fatal(err)
		}
		if ims[1-i], err = ends[1-i].Import(within(b), o.Node(), o.PID(), 77); err != nil {
			b.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		src := make([]byte, 64)
		for last := uint32(0); ; {
			v, err := words[1].Wait(ctx, last)
			if err != nil {
				return
			}
			src[60], src[61], src[62], src[63] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
			if ims[1].Send(ctx, src, 0) != nil {
				return
			}
			last = v
		}
	}()
	src, n := make([]byte, 64), uint32(0)
	for b.Loop() {
		last := words[0].Load()
		n++
		src[60], src[61], src[62], src[63] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
		if err := ims[0].Send(ctx, src, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := words[0].Wait(ctx, last); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	<-done
}

// BenchmarkStream is a writer that appends entries of 64 bytes, one after the other, and a reader
// that reads beside it. The reader's bytes and losses are reported.
func BenchmarkStream(b *testing.B) {
	for _, w := range benchWays {
		b.Run(w.name, func(b *testing.B) {
			nodes, log := w.start(b, 16<<20)
			r := newReader(b, nodes[len(nodes)-1].Open(b), broadcast.Oldest)
			ctx, src, buf := context.Background(), make([]byte, 64), make([]byte, 64)
			done := make(chan struct{})
			var got, lost uint64
			go func() {
				defer close(done)
				for {
					_, _, err := r.Next(ctx, buf)
					var over *broadcast.Overrun
					switch {
					case err == nil:
						got++
					case errors.As(err, &over):
						lost += over.Lost / 72
					default:
						return
					}
				}
			}()
			for b.Loop() {
				if _, err := log.Append(src); err != nil {
					b.Fatal(err)
				}
			}
			if err := log.Close(within(b)); err != nil {
				b.Fatal(err)
			}
			<-done
			b.ReportMetric(float64(got)/float64(got+lost), "read/entry")
		})
	}
}
