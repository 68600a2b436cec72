package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Three senders and the receiver have every fourth word of one buffer each. None
// overwrites the words of another.
func TestInterleavedWords(t *testing.T) {
	const n = 64 << 10
	everyBinding(t, n, func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		rounds := scaled(t, 300)
		var all sync.WaitGroup
		step := func(mem []byte, who int, r int) {
			for i := 16 * (r % 16); i < n; i += 256 {
				shm.Word(mem, i+4*who).Store(uint32(r<<2 | who))
			}
		}
		for who := range 3 {
			p, im := s.a, s.im
			if who == 2 { // one that is neither on the exporter's node nor its only importer
				p = s.b
				var err error
				if im, err = p.Import(within(t), s.b.Node(), s.b.PID(), 7); err != nil {
					t.Fatal(err)
				}
			}
			mem := alloc(t, p, n)
			b := bind(t, im, mem, 0, opts...)
			all.Go(func() {
				for r := range rounds {
					step(mem, who, r+1)
					if r%50 == 0 {
						if err := b.Flush(within(t)); err != nil {
							t.Error(err)
						}
					}
				}
				if err := b.Flush(within(t)); err != nil {
					t.Error(err)
				}
			})
		}
		for r := range rounds {
			step(s.exp.Bytes(), 3, r+1)
		}
		all.Wait()
		for i := 0; i < n; i += 4 {
			who, last := i/4%4, 0
			for r := max(1, rounds-15); r <= rounds; r++ {
				if r%16 == i/16%16 {
					last = r
				}
			}
			if v := shm.Word(s.exp.Bytes(), i).Load(); v != uint32(last<<2|who) {
				t.Fatalf("word %d of %d is round %d of %d, want %d", i, who, v>>2, v&3, last)
			}
		}
	})
}

// What the receiver writes over a word that arrived stays.
func TestWordsAreCarriedOverOnce(t *testing.T) {
	everyBinding(t, 128<<10, func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		mem := alloc(t, s.a, 128<<10)
		b := bind(t, s.im, mem, 0, append(slices.Clone(opts), vmmc.FlagWords(8))...)
		for i := range uint32(200) {
			shm.Word(mem, 0).Store(i + 1)
			shm.Word(mem, 8).Store(i + 1)
			shm.Word(mem, 64<<10).Store(i + 1)
			if err := b.Store(within(t), 4, i+1); err != nil {
				t.Fatal(err)
			}
			flush(t, b)
			for _, off := range []int{0, 4, 8, 64 << 10} {
				if v := shm.Word(s.exp.Bytes(), off).Swap(99); v != i+1 {
					t.Fatalf("word %d is %d, want %d", off, v, i+1)
				}
			}
			shm.Word(mem, 4096).Store(i + 1)
			flush(t, b)
			for _, off := range []int{0, 4, 8, 64 << 10} {
				if v := shm.Word(s.exp.Bytes(), off).Load(); v != 99 {
					t.Fatalf("word %d is %d again", off, v)
				}
			}
		}
	})
}

// Store sends what is there already, too, and is waited for.
func TestStoreOfABoundWord(t *testing.T) {
	everyBinding(t, size, func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		mem := alloc(t, s.a, size)
		b := bind(t, s.im, mem, 0, opts...)
		w, err := s.exp.Word(12)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(100) {
			v := i/2 + 1
			w.Store(0)
			if err := b.Store(within(t), 12, v); err != nil {
				t.Fatal(err)
			}
			if got, err := w.Wait(within(t), 0); err != nil || got != v {
				t.Fatalf("%d, %v, want %d", got, err, v)
			}
			if got := shm.Word(mem, 12).Load(); got != v {
				t.Fatalf("%d here, want %d", got, v)
			}
			w.Store(7777)
			flush(t, b)
			if got := w.Load(); got != 7777 {
				t.Fatalf("%d was carried over a second time", got)
			}
		}
	})
}

// Consecutive words are one message, with one notification about its last word.
func TestNotificationsOfUpdates(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			type note struct {
				off  int
				word uint32
			}
			notes := make(chan note, 1000)
			s := exported(t, way, vmmc.WithHandler(func(n vmmc.Notification) { notes <- note{n.Offset, n.Word} }))
			clear(s.exp.Bytes())
			mem := alloc(t, s.a, size)
			b := bind(t, s.im, mem, 0, vmmc.NotifyUpdates())
			for i := range 200 { // more than there are credits
				off := 256 + 16*i%4096
				shm.Word(mem, off).Store(uint32(i) + 1)
				flush(t, b)
				select {
				case n := <-notes:
					if n != (note{off, uint32(i) + 1}) {
						t.Fatalf("notified of %+v", n)
					}
				case <-time.After(bound):
					t.Fatal("not notified")
				}
			}
			before := b.Stats()
			copy(mem[64:128], bytes.Repeat([]byte{1, 2, 3, 4}, 16))
			flush(t, b)
			last := note{}
			for last.off != 124 { // it may have been seen in its middle
				select {
				case last = <-notes:
				case <-time.After(bound):
					t.Fatal("not notified of a run's last word")
				}
			}
			if n := b.Stats().Words - before.Words; n != 16 || last.word != 0x04030201 {
				t.Errorf("%d words, the last %#x", n, last.word)
			}
		})
	}
}

// Nothing is written to the far side that is as it was, whatever is flushed.
func TestFlushOfNothing(t *testing.T) {
	everyBinding(t, 1<<20, func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		mem := alloc(t, s.a, 1<<20)
		for i := range mem {
			mem[i] = 7
		}
		b := bind(t, s.im, mem, 0, opts...)
		for range 10 {
			flush(t, b)
		}
		copy(mem, mem[4096:8192]) // what is there already
		flush(t, b)
		if st := b.Stats(); st.Messages != 0 || shm.Word(s.exp.Bytes(), 0).Load() != 0 {
			t.Errorf("nothing was changed, and %+v", st)
		}
	})
}

// A call that its context has ended leaves the binding as it was, and loses nothing.
func TestCancelledCallsOfABinding(t *testing.T) {
	const n = 1 << 20
	everyBinding(t, n, func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		mem := alloc(t, s.a, n)
		b := bind(t, s.im, mem, 0, opts...)
		for i := range 30 {
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
			for at := 0; at < n; at += 256 {
				shm.Word(mem, at).Add(1)
			}
			if err := b.Store(ctx, 4, uint32(i)); err != nil && !errors.Is(err, vmmc.ErrTimeout) {
				t.Fatal(err)
			}
			if err := b.Flush(ctx); err != nil && !errors.Is(err, vmmc.ErrTimeout) {
				t.Fatal(err)
			}
			stop()
			flush(t, b)
			if !bytes.Equal(s.exp.Bytes(), mem) {
				t.Fatalf("they differ in round %d: %+v", i, b.Stats())
			}
		}
	})
}

// A stopped reader of the stream holds up a flush, and nothing else.
func TestFlushEndsWithItsContext(t *testing.T) {
	w := newVictim(t)
	y := newHostileExporter(t, w.socket, honestly)
	p := join(t, w.socket)
	im, err := p.Import(t.Context(), p.Node(), vmmc.PID(y.id.PID), 7)
	if err != nil {
		t.Fatal(err)
	}
	mem := alloc(t, p, im.Size())
	b := bind(t, im, mem, 0)
	for i := 0; i < len(mem); i += 4 {
		shm.Word(mem, i).Add(1)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := b.Flush(ctx); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("%v, want %v", err, vmmc.ErrTimeout)
	}
	if b.Err() != nil {
		t.Error("a flush that took too long has ended the binding")
	}
	for i := 0; i < len(mem); i += 4 {
		shm.Word(mem, i).Add(1)
	}
}

// The memory is the far buffer, both ways, and an ordinary one again afterwards.
func TestAliasPages(t *testing.T) {
	for _, n := range []int{vmmc.PageSize(), 256 << 10, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := exportedSize(t, "mapped", n)
			mem := alloc(t, s.a, n)
			b := bind(t, s.im, mem, 0, vmmc.AliasPages())
			if mem[n-1] != guard {
				t.Error("what is there is not seen")
			}
			w, err := s.exp.Word(8)
			if err != nil {
				t.Fatal(err)
			}
			was := w.Load()
			asleep := make(chan error)
			go func() {
				_, err := w.Wait(within(t), was)
				asleep <- err
			}()
			shm.Word(mem, 8).Store(1)
			if w.Load() != 1 {
				t.Error("a store is not seen")
			}
			flush(t, b)
			if err := <-asleep; err != nil {
				t.Error(err)
			}
			w.Store(2)
			if shm.Word(mem, 8).Load() != 2 {
				t.Error("what the receiver writes is not seen")
			}
			if err := b.Store(within(t), 12, 3); err != nil || shm.Word(s.exp.Bytes(), 12).Load() != 3 {
				t.Error("Store: ", err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			shm.Word(mem, 8).Add(1)
			if w.Load() != 2 || shm.Word(mem, 8).Load() != 3 || shm.Word(mem, 12).Load() != 3 {
				t.Error("it is the far buffer still, or what was in it is gone")
			}
			if st := b.Stats(); st.Mode != vmmc.BindAlias || st.Path != vmmc.PathMapped {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Several bindings of one allocation, to different imports, one beside the other
// in one page.
func TestBindingsBesideEachOther(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, 256<<10)
			clear(s.exp.Bytes())
			other, im := s.another(t, 8)
			clear(other.Bytes())
			half := 128<<10 + 64
			mem := alloc(t, s.a, 2*half)
			x := bind(t, s.im, mem[:half], 16)
			y := bind(t, im, mem[half:][:size-16], 4)
			for i := range uint32(30) {
				for at := 0; at < len(mem); at += 4 * (1 + int(i)) {
					shm.Word(mem, at).Add(1)
				}
				flush(t, x)
				flush(t, y)
				if !bytes.Equal(s.exp.Bytes()[16:16+half], mem[:half]) || !bytes.Equal(other.Bytes()[4:size-12], mem[half:][:size-16]) {
					t.Fatalf("they differ in round %d: %+v, %+v", i, x.Stats(), y.Stats())
				}
			}
			if shm.Word(s.exp.Bytes(), 16+half).Load() != 0 || shm.Word(other.Bytes(), 0).Load() != 0 {
				t.Error("one has reached into the other's")
			}
		})
	}
}

// A process may be closed at any time while memory is being bound.
func TestProcessClosedWhileBinding(t *testing.T) {
	s := exportedSize(t, "mapped", 64<<10)
	for range 30 {
		p := join(t, strings.TrimPrefix(s.a.Environ()[0], nodeproto.Env+"="))
		im, err := p.Import(within(t), s.b.Node(), s.b.PID(), 7)
		if err != nil {
			t.Fatal(err)
		}
		mem := alloc(t, p, 64<<10)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				b, err := im.Bind(mem[i*16<<10:(i+1)*16<<10], 0)
				if err != nil && !errors.Is(err, vmmc.ErrClosed) {
					t.Error(err)
				}
				if err == nil {
					b.Stats()
				}
			})
		}
		all.Go(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	}
}
