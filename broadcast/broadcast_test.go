package broadcast_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// starts are positions at which logs begin: also where a half of the position carries.
var starts = map[string]uint64{
	"from 0": 0, "over a carry": 1<<32 - 40_000, "over a sign": 1<<63 - 20_000, "far": 1<<63 + 1<<33 + 4,
}

// Several readers get all entries whole and in order, over many rounds of the ring, or are told what
// they have lost.
func TestReaders(t *testing.T) {
	const n, readers = 4000, 3
	for _, w := range ways {
		nodes := vmmctest.Nodes(t, w.nodes)
		for about, start := range starts {
			t.Run(w.name+"/"+about, func(t *testing.T) {
				log := w.writer(t, nodes[0].Open(t), ringSize, broadcast.StartAt(start))
				ctx := within(t)
				tracks := make([]*track, readers)
				var wg sync.WaitGroup
				for i := range tracks {
					r, s := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest), newTrack(start)
					s.next, s.begun = start, true
					tracks[i] = s
					wg.Go(func() {
						for buf := []byte(nil); ; {
							b, pos, err := r.Next(ctx, buf)
							if errors.Is(err, broadcast.ErrEnded) {
								return
							}
							if err := s.add(b, pos, err); err != nil {
								t.Error(err)
								return
							}
							buf = b
						}
					})
				}
				appendAll(t, log, 0, n)
				_, tail := log.Bounds()
				if err := log.Close(ctx); err != nil {
					t.Error(err)
				}
				wg.Wait()
				for i, s := range tracks {
					if s.next != tail || s.got == 0 {
						t.Errorf("reader %d is at %d of %d, with %d entries", i, s.next, tail, s.got)
					}
				}
			})
		}
	}
}

// A reader that is fast enough loses nothing.
func TestNothingLost(t *testing.T) {
	const n = 3000
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			r, s := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest), newTrack(0)
			for i := 0; i < n; {
				run := 1 + i%13
				appendAll(t, log, i, run)
				read(t, r, s, run)
				i += run
			}
			if s.loss != 0 || s.got < n {
				t.Errorf("%d entries, %d bytes lost", s.got, s.loss)
			}
		})
	}
}

// A reader that waits gets what is appended, each time.
func TestReaderThatWaits(t *testing.T) {
	const n = 200
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			r, s := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Newest), newTrack(0)
			var pushed atomic.Int32
			sleeps := make(chan struct{}, 1)
			steps.On(t, func(step string) {
				switch step {
				case "next.sleeps":
					select {
					case sleeps <- struct{}{}:
					default:
					}
				case "append.pushed":
					pushed.Add(1)
				}
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				read(t, r, s, n)
			}()
			for i := range n {
				<-sleeps
				appendAll(t, log, i, 1)
			}
			<-done
			if k := pushed.Load(); k == 0 {
				t.Errorf("%d entries were pushed", k)
			}
		})
	}
}

// Entries of all lengths are read, into buffers of all capacities. A longer one is refused.
func TestLengths(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, 4<<20, broadcast.StartAt(1<<32-100_000))
			r := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest)
			most := log.MaxEntry()
			if most != 4<<20/8-8 {
				t.Errorf("an entry has at most %d bytes", most)
			}
			lengths := []int{0, 1, 2, 3, 4, 5, 4087, 4088, 4089, 64<<10 - 8, 64<<10 - 7, 256<<10 - 8, 256<<10 - 7, most - 1, most}
			for i, n := range lengths {
				want := entryOf(i, n)
				at, err := log.Append(want)
				if err != nil {
					t.Fatal(err)
				}
				got, pos, err := r.Next(within(t), make([]byte, 5, 5+n/2*(i%3)))
				if err != nil || pos != at || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes at %d: %d bytes at %d, %v", n, at, len(got), pos, err)
				}
			}
			if _, err := log.Append(make([]byte, most+1)); !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Readers begin with the oldest entry, with a position, or with what is appended later.
func TestStart(t *testing.T) {
	const n = 500
	for _, w := range ways {
		nodes := vmmctest.Nodes(t, w.nodes)
		for about, start := range starts {
			t.Run(w.name+"/"+about, func(t *testing.T) {
				log := w.writer(t, nodes[0].Open(t), ringSize, broadcast.StartAt(start))
				p := nodes[len(nodes)-1].Open(t)
				var all []uint64
				for i := range n {
					pos, err := log.Append(entry(i))
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, pos)
				}
				first, tail := log.Bounds()
				if all[0] != start || tail-first > ringSize || tail-first < ringSize/2 {
					t.Fatalf("the log from %d to %d begins at %d", all[0], tail, first)
				}
				next := func(from broadcast.Start) (uint64, error) {
					r := newReader(t, p, from)
					defer r.Close()
					b, pos, err := r.Next(within(t), nil)
					if err != nil {
						return pos, err
					}
					s := newTrack(start)
					return pos, s.add(b, pos, err)
				}
				if pos, err := next(broadcast.Oldest); pos != first || err != nil {
					t.Errorf("the oldest entry: %d, %v, want %d", pos, err, first)
				}
				for _, at := range all {
					if at < first {
						continue
					}
					if pos, err := next(broadcast.At(at)); pos != at || err != nil {
						t.Errorf("at %d: %d, %v", at, pos, err)
					}
					if at > first+400 {
						break
					}
				}
				var over *broadcast.Overrun
				if _, err := next(broadcast.At(start)); !errors.As(err, &over) || over.Lost != first-start {
					t.Errorf("what was overwritten: %v", err)
				}
				newest := newReader(t, p, broadcast.Newest)
				atTail := newReader(t, p, broadcast.At(tail))
				if _, err := log.Append(entry(n)); err != nil {
					t.Fatal(err)
				}
				for _, r := range []*broadcast.Reader{newest, atTail} {
					b, pos, err := r.Next(within(t), nil)
					if pos != tail || !bytes.Equal(b, entry(n)) || err != nil {
						t.Errorf("%x at %d, %v", b, pos, err)
					}
				}
				for _, at := range []uint64{tail + 1<<20, first + 1, first + 2, 1<<64 - 3, 1<<64 - 2, 1<<64 - 1} {
					_, err := broadcast.NewReader(within(t), p, name, broadcast.At(at))
					if !errors.Is(err, vmmc.ErrBadArg) {
						t.Errorf("at %d: %v", at, err)
					}
				}
				_, end := log.Bounds()
				for _, at := range []uint64{tail - 4, end - 4} {
					if _, err := next(broadcast.At(at)); !errors.Is(err, vmmc.ErrBadArg) {
						t.Errorf("within an entry, at %d of %d: %v", at, end, err)
					}
				}
			})
		}
	}
}

// A reader that is overrun learns how many bytes it has lost, goes on with the oldest entry, and
// gets what it had copied before.
func TestOverrun(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			r, s := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest), newTrack(0)
			appendAll(t, log, 0, 10)
			read(t, r, s, 3)
			appendAll(t, log, 10, 1000)
			read(t, r, s, 7)
			first, tail := log.Bounds()
			b, pos, err := r.Next(within(t), nil)
			var over *broadcast.Overrun
			if !errors.As(err, &over) || over.Lost != first-s.next || b != nil || pos != 0 {
				t.Fatalf("%d bytes, %d, %v, want an overrun of %d bytes", len(b), pos, err, first-s.next)
			}
			if err := s.add(b, pos, err); err != nil {
				t.Fatal(err)
			}
			for s.next < tail {
				read(t, r, s, 1)
			}
			if s.loss != over.Lost {
				t.Errorf("%d bytes lost, then %d", over.Lost, s.loss-over.Lost)
			}
		})
	}
}

// What is overwritten while a reader copies it is dropped: no entry is torn, and the loss is told.
func TestOverwrittenWhileCopied(t *testing.T) {
	for _, w := range ways {
		nodes := vmmctest.Nodes(t, w.nodes)
		for about, start := range starts {
			t.Run(w.name+"/"+about, func(t *testing.T) {
				log := w.writer(t, nodes[0].Open(t), ringSize, broadcast.StartAt(start))
				r, s := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest), newTrack(start)
				s.next, s.begun = start, true
				last := 0
				more := func(n int) {
					appendAll(t, log, last, n)
					last += n
				}
				more(40)
				copies := 0
				steps.On(t, func(step string) {
					if step == "next.copied" && copies < 20 {
						copies++
						more(1 + 37*copies)
					}
				})
				overruns := 0
				for {
					if _, tail := log.Bounds(); s.next == tail {
						break
					}
					b, pos, err := r.Next(within(t), nil)
					if errors.As(err, new(*broadcast.Overrun)) {
						overruns++
					}
					if err := s.add(b, pos, err); err != nil {
						t.Fatal(err)
					}
				}
				if overruns < 10 || copies != 20 {
					t.Errorf("%d overruns of %d copies", overruns, copies)
				}
			})
		}
	}
}

// A log goes on over lost connections, in order and without a gap that is not told.
func TestOverCuts(t *testing.T) {
	const cuts, run = 12, 150
	nodes := vmmctest.Nodes(t, 2)
	log := newWriter(t, nodes[0].Open(t, vmmc.WithResume(bound)), ringSize)
	ctx := within(t)
	var wg sync.WaitGroup
	tracks, at := [2]*track{}, [2]atomic.Uint64{}
	for i := range tracks {
		r := newReader(t, nodes[1].Open(t, vmmc.WithResume(bound)), broadcast.Oldest)
		s := newTrack(0)
		s.begun, tracks[i] = true, s
		wg.Go(func() {
			for buf := []byte(nil); ; {
				b, pos, err := r.Next(ctx, buf)
				if errors.Is(err, broadcast.ErrEnded) {
					return
				}
				if err := s.add(b, pos, err); err != nil {
					t.Error(err)
					return
				}
				buf = b
				at[i].Store(s.next)
			}
		})
	}
	for k := range cuts {
		for i := range run {
			if i == run/(k+1) {
				nodes[0].Cut()
			}
			appendAll(t, log, k*run+i, 1)
			if i == run-1-k {
				nodes[0].Heal()
			}
		}
		_, tail := log.Bounds()
		for i := range at {
			eventually(t, "the reader goes on", func() bool { return at[i].Load() == tail })
		}
	}
	if err := log.Close(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for i, s := range tracks {
		if s.got < cuts || s.n != cuts*run {
			t.Errorf("reader %d: %d entries up to %d, %d bytes lost", i, s.got, s.n, s.loss)
		}
	}
}

// Appends go on while the link with a reader that waits is away, and that reader gets all later.
func TestAppendBesideALostLink(t *testing.T) {
	const n = 100
	nodes := vmmctest.Nodes(t, 2)
	down := make(chan struct{}, 64)
	log := newWriter(t, nodes[0].Open(t, vmmc.WithResume(10*bound), vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.LinkDown {
			down <- struct{}{}
		}
	})), 1<<16)
	far := newReader(t, nodes[1].Open(t, vmmc.WithResume(10*bound)), broadcast.Oldest)
	near := newReader(t, nodes[0].Open(t), broadcast.Oldest)
	sleeps := make(chan struct{}, 1)
	steps.On(t, func(step string) {
		if step == "next.sleeps" {
			select {
			case sleeps <- struct{}{}:
			default:
			}
		}
	})
	s := newTrack(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		read(t, far, s, n)
	}()
	<-sleeps
	nodes[0].Cut()
	<-down
	<-down // its link with the reader, and the reader's with it
	appendAll(t, log, 0, n)
	read(t, near, newTrack(0), n)
	nodes[0].Heal()
	<-done
}

// A reader that waits again while it is rung late is rung by the goroutine that rings: an append
// leaves it to that.
func TestAppendWhileRungLater(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	down := make(chan struct{}, 64)
	log := newWriter(t, nodes[0].Open(t, vmmc.WithResume(10*bound), vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.LinkDown {
			down <- struct{}{}
		}
	})), 1<<16)
	far := newReader(t, nodes[1].Open(t, vmmc.WithResume(10*bound)), broadcast.Oldest)
	var once sync.Once
	sleeps := make(chan struct{}, 1)
	later := make(chan struct{})
	steps.On(t, func(s string) {
		switch s {
		case "next.sleeps":
			select {
			case sleeps <- struct{}{}:
			default:
			}
		case "append.later":
			once.Do(func() {
				eventually(t, "the reader waits again", func() bool { return log.Waiting() == 1 })
				appendAll(t, log, 1, 1)
				close(later)
			})
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		read(t, far, newTrack(0), 2)
	}()
	<-sleeps
	nodes[0].Cut()
	<-down
	<-down // its link with the reader, and the reader's with it
	appendAll(t, log, 0, 1)
	nodes[0].Heal()
	<-later
	<-done
}

// A position that is got while its low half carries over is got again, or taken for lower than it
// is. A log that is closed meanwhile does not seem to have ended before.
func TestCarryWhileGot(t *testing.T) {
	const start = 1<<32 - 12 // of an entry that ends where the high half changes
	for _, w := range ways {
		nodes := vmmctest.Nodes(t, w.nodes)
		p := nodes[len(nodes)-1].Open(t)
		for _, nth := range []int32{1, 2} { // between the gets of high, low and high
			t.Run(fmt.Sprintf("%s/begin after %d gets", w.name, nth), func(t *testing.T) {
				log := w.writer(t, nodes[0].Open(t), ringSize, broadcast.StartAt(start))
				var n atomic.Int32
				steps.On(t, func(s string) {
					if s == "position.got" && n.Add(1) == nth {
						if _, err := log.Append([]byte("last")); err != nil {
							t.Error(err)
						}
					}
				})
				if r := newReader(t, p, broadcast.Newest); r.Pos() != 1<<32 {
					t.Errorf("the reader begins at %#x", r.Pos())
				}
				if n.Load() < 6 {
					t.Errorf("after %d gets", n.Load())
				}
			})
		}
		t.Run(w.name+"/closed", func(t *testing.T) {
			log := w.writer(t, nodes[0].Open(t), ringSize, broadcast.StartAt(start))
			r := newReader(t, p, broadcast.Oldest)
			if _, err := log.Append([]byte("last")); err != nil {
				t.Fatal(err)
			}
			log.StoreTail(0, true) // the new low half, and the old high one
			var once sync.Once
			steps.On(t, func(s string) {
				if s == "tail.got" {
					once.Do(func() { log.StoreTail(1<<32, true) })
				}
			})
			b, _, err := r.Next(within(t), nil)
			if string(b) != "last" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			if _, _, err := r.Next(within(t), nil); !errors.Is(err, broadcast.ErrEnded) {
				t.Errorf("behind the last one: %v", err)
			}
		})
	}
}

// A position of one log is none of the next one under the name.
func TestPositionOfAnEarlierLog(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p := node.Open(t)
	var earlier []uint64
	for range 4 {
		log, err := broadcast.NewWriter(within(t), node.Open(t), name, ringSize)
		if err != nil {
			t.Fatal(err)
		}
		for _, pos := range earlier {
			_, err := broadcast.NewReader(within(t), p, name, broadcast.At(pos))
			if !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("position %d of an earlier log: %v", pos, err)
			}
		}
		appendAll(t, log, 0, 300)
		first, tail := log.Bounds()
		earlier = append(earlier, first, tail)
		for _, pos := range []uint64{first, tail} {
			r, err := broadcast.NewReader(within(t), p, name, broadcast.At(pos))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := log.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader joins while the log is written, and others leave.
func TestReadersComeAndGo(t *testing.T) {
	const readers, each = 8, 20
	nodes, log := ways[0].start(t, 1<<16)
	p := nodes[0].Open(t)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if _, err := log.Append(entry(i)); err != nil {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
	})
	var all sync.WaitGroup
	for k := range readers {
		all.Go(func() {
			from := broadcast.Oldest
			if k%2 == 0 {
				from = broadcast.Newest
			}
			r, err := broadcast.NewReader(within(t), p, name, from)
			if err != nil {
				t.Error(err)
				return
			}
			s := newTrack(0)
			for s.got < each {
				b, pos, err := r.Next(within(t), nil)
				if errors.As(err, new(*broadcast.Overrun)) && !s.begun {
					continue // where it began is not known here
				}
				if err := s.add(b, pos, err); err != nil {
					t.Error(err)
					break
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	stop.Store(true)
	wg.Wait()
	eventually(t, "the writer forgets the readers", func() bool { return log.Readers() == 0 })
}

// A writer that is closed waits until its readers have read all, and they are told the end.
func TestClose(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			p := nodes[len(nodes)-1].Open(t)
			behind, waits, left := newReader(t, p, broadcast.Oldest), newReader(t, p, broadcast.Oldest), newReader(t, p, broadcast.Oldest)
			appendAll(t, log, 0, 20)
			ctx := within(t)
			sleeps := make(chan struct{}, 64)
			closes := make(chan struct{}, 64)
			steps.On(t, func(step string) {
				switch step {
				case "next.sleeps":
					sleeps <- struct{}{}
				case "close.waits":
					closes <- struct{}{}
				}
			})
			ends := make(chan error, 1)
			go func() {
				s := newTrack(0)
				for {
					b, pos, err := waits.Next(ctx, nil)
					if err := s.add(b, pos, err); err != nil {
						if s.got != 20 {
							t.Errorf("%d entries", s.got)
						}
						ends <- err
						return
					}
				}
			}()
			<-sleeps
			closed := make(chan error, 1)
			go func() { closed <- log.Close(ctx) }()
			<-closes
			if err := <-ends; !errors.Is(err, broadcast.ErrEnded) {
				t.Errorf("a reader that waits: %v", err)
			}
			if _, err := log.Append(nil); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("an append: %v", err)
			}
			s := newTrack(0)
			read(t, behind, s, 20)
			select {
			case err := <-closed:
				t.Errorf("the close does not wait: %v", err)
			default:
			}
			if err := left.Close(); err != nil {
				t.Error(err)
			}
			for range 2 {
				if _, _, err := behind.Next(ctx, nil); !errors.Is(err, broadcast.ErrEnded) {
					t.Errorf("a reader behind: %v", err)
				}
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
			if _, _, err := behind.Next(ctx, nil); !errors.Is(err, broadcast.ErrEnded) {
				t.Errorf("a reader afterwards: %v", err)
			}
			if err := log.Close(ctx); err != nil {
				t.Error(err)
			}
			// The name is free again.
			newWriter(t, nodes[0].Open(t), ringSize)
		})
	}
}

// A close that does not wait says how many readers have not read all, and these are told.
func TestCloseGivenUp(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			r := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest)
			appendAll(t, log, 0, 3)
			if err := log.Close(ended()); !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("%v", err)
			}
			if _, _, err := r.Next(within(t), nil); !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A read that waits ends with its context, and with the reader.
func TestReadGivenUp(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			r, s := newReader(t, nodes[len(nodes)-1].Open(t), broadcast.Oldest), newTrack(0)
			sleeps := make(chan struct{}, 64)
			steps.On(t, func(step string) {
				if step == "next.sleeps" {
					sleeps <- struct{}{}
				}
			})
			for i := range 5 {
				ctx, stop := context.WithCancel(within(t))
				got := make(chan error, 1)
				go func() {
					_, _, err := r.Next(ctx, nil)
					got <- err
				}()
				<-sleeps
				stop()
				if err := <-got; !errors.Is(err, vmmc.ErrCanceled) {
					t.Errorf("%v", err)
				}
				if _, _, err := r.Next(ended(), nil); !errors.Is(err, vmmc.ErrCanceled) {
					t.Errorf("%v", err)
				}
				appendAll(t, log, i, 1)
				read(t, r, s, 1)
			}
			for len(sleeps) > 0 {
				<-sleeps
			}
			got := make(chan error, 1)
			ctx := within(t)
			go func() {
				_, _, err := r.Next(ctx, nil)
				got <- err
			}()
			<-sleeps
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if err := <-got; !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("%v", err)
			}
			if _, _, err := r.Next(ctx, nil); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("%v", err)
			}
			eventually(t, "the writer forgets the reader", func() bool { return log.Readers() == 0 })
		})
	}
}

// The iterator goes on after an overrun, and ends with the log.
func TestAll(t *testing.T) {
	nodes, log := ways[0].start(t, ringSize)
	first, _ := log.Bounds()
	r := newReader(t, nodes[0].Open(t), broadcast.At(first))
	appendAll(t, log, 0, 300)
	ctx := within(t)
	closed := make(chan error, 1)
	go func() { closed <- log.Close(ctx) }()
	s, overruns := newTrack(0), 0
	for e, err := range r.All(ctx) {
		if errors.As(err, new(*broadcast.Overrun)) {
			overruns++
		}
		if err := s.add(e.Data, e.Pos, err); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if overruns != 1 || s.got == 0 || s.n != 300 {
		t.Errorf("%d overruns, %d entries up to %d", overruns, s.got, s.n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	n := 0
	for _, err := range r.All(ctx) {
		if n++; !errors.Is(err, vmmc.ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d pairs of a reader that is closed", n)
	}
}

// Appends are made in a handler too; other calls fail there.
func TestInHandler(t *testing.T) {
	nodes, log := ways[0].start(t, ringSize)
	p := log.Process()
	r := newReader(t, p, broadcast.Oldest)
	done, ctx := make(chan struct{}), within(t)
	_, err := p.Export(1, make([]byte, 4), vmmc.WithHandler(func(vmmc.Notification) {
		defer close(done)
		for name, call := range map[string]func() error{
			"NewWriter":    func() error { _, err := broadcast.NewWriter(ctx, p, "other", 1); return err },
			"NewReader":    func() error { _, err := broadcast.NewReader(ctx, p, name, broadcast.Oldest); return err },
			"Next":         func() error { _, _, err := r.Next(ctx, nil); return err },
			"Close":        func() error { return log.Close(ctx) },
			"Reader.Close": r.Close,
		} {
			if err := call(); !errors.Is(err, vmmc.ErrNotInHandler) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := log.Readers(); n != 1 {
			t.Errorf("%d readers", n)
		}
		appendAll(t, log, 0, 1)
	}))
	if err != nil {
		t.Fatal(err)
	}
	im, err := nodes[0].Open(t).Import(ctx, p.Node(), p.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.SendNotify(ctx, make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	read(t, r, newTrack(0), 1)
	<-done
}

func TestRefused(t *testing.T) {
	ctx := within(t)
	nodes, log := ways[0].start(t, 1)
	if n := log.MaxEntry(); n != ringSize/8-8 {
		t.Errorf("an entry of the smallest ring has at most %d bytes", n)
	}
	p := nodes[0].Open(t)
	for _, n := range []int{-1, 0, 1<<30 + 1} {
		if _, err := broadcast.NewWriter(ctx, p, "size", n); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := broadcast.NewWriter(ctx, p, "none", 1, broadcast.MaxReaders(0)); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("no readers: %v", err)
	}
	if _, err := broadcast.NewWriter(ctx, p, "nil", 1, nil); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil option: %v", err)
	}
	if _, err := broadcast.NewWriter(ctx, p, name, 1); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("a second writer: %v", err)
	}
	for i, n := range []int{64, 4096} {
		id := "other" + itoa(i)
		if _, err := p.Publish(ctx, id, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := broadcast.NewReader(ctx, nodes[0].Open(t), id, broadcast.Oldest); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("no log, of %d bytes: %v", n, err)
		}
	}
	var none context.Context
	if _, err := broadcast.NewReader(none, p, name, broadcast.Oldest); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	if _, _, err := newReader(t, p, broadcast.Oldest).Next(none, nil); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	if _, err := broadcast.NewReader(ended(), p, name, broadcast.Oldest); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("a reader that was given up: %v", err)
	}
}

// A log has no more readers than it may have. One that has ended makes room for another one.
func TestMaxReaders(t *testing.T) {
	nodes, log := ways[0].start(t, ringSize, broadcast.MaxReaders(2))
	p := nodes[0].Open(t)
	first := newReader(t, p, broadcast.Oldest)
	newReader(t, p, broadcast.Oldest)
	if _, err := broadcast.NewReader(within(t), p, name, broadcast.Oldest); !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("a third reader: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the writer forgets the reader", func() bool { return log.Readers() == 1 })
	newReader(t, p, broadcast.Oldest)
}

// Only those that are permitted read: neither the name nor the log lets others in.
func TestPermit(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p, other := node.Open(t), node.Open(t)
	only := broadcast.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{p.ID()}})
	log := newWriter(t, node.Open(t), ringSize, only)
	if _, err := broadcast.NewReader(within(t), other, name, broadcast.Oldest); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("%v", err)
	}
	w := log.Process()
	if _, err := other.Import(within(t), w.Node(), w.PID(), log.LogID()); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("%v", err)
	}
	appendAll(t, log, 0, 1)
	read(t, newReader(t, p, broadcast.Oldest), newTrack(0), 1)
}

// No reader can write to the log, and no third process to what a writer and a reader have of each
// other.
func TestRights(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, ringSize)
			last := nodes[len(nodes)-1]
			p, third := last.Open(t), last.Open(t)
			r := newReader(t, p, broadcast.Oldest)
			if err := r.Log().Send(within(t), make([]byte, 4), 0); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("a send to the log: %v", err)
			}
			if _, err := r.Log().FetchAdd32(within(t), 0, 1); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("an atomic on the log: %v", err)
			}
			wp := log.Process()
			if _, err := third.Import(within(t), wp.Node(), wp.PID(), r.Desk().ID()); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("the desk: %v", err)
			}
			if _, err := third.Import(within(t), p.Node(), p.PID(), r.Own().ID()); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("the reader's export: %v", err)
			}
		})
	}
}

// A reader that requests what it likes disturbs neither the writer nor other readers.
func TestFalseReader(t *testing.T) {
	nodes, log := ways[0].start(t, 1<<16)
	liar, r, s := newReader(t, nodes[0].Open(t), broadcast.Oldest), newReader(t, nodes[0].Open(t), broadcast.Oldest), newTrack(0)
	for i := range 500 {
		b := binary.NativeEndian.AppendUint32(nil, uint32(i)*0x9E3779B9)
		if err := liar.Desk().Send(within(t), b, i%(broadcast.DeskSize/4)*4); err != nil {
			t.Fatal(err)
		}
		if err := liar.Desk().Send(within(t), b, broadcast.ArmedOff); err != nil {
			t.Fatal(err)
		}
		appendAll(t, log, i, 1)
		read(t, r, s, 1)
	}
	if log.Readers() != 2 {
		t.Errorf("%d readers", log.Readers())
	}
}

// A process that dials with another buffer than a reader's is refused.
func TestFalseDial(t *testing.T) {
	nodes, log := ways[0].start(t, ringSize)
	p := nodes[0].Open(t)
	box, err := p.ImportName(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{64, broadcast.ReaderSize - 4, 1 << 20} {
		e, err := pair.Export(func(id uint32) (*vmmc.Export, error) { return p.Export(id, make([]byte, n)) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Dial(within(t), p, box, broadcast.BellOff, e); !errors.Is(err, pair.ErrRefused) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if n := log.Readers(); n != 0 {
		t.Errorf("%d readers", n)
	}
}

func TestAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the library's own checks allocate")
	}
	for _, w := range ways[:2] { // the wire between nodes allocates
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, 1<<16)
			r := newReader(t, nodes[0].Open(t), broadcast.Oldest)
			ctx, b, buf := within(t), make([]byte, 64), make([]byte, 64)
			for name, f := range map[string]func() error{
				"Append": func() error {
					_, err := log.Append(b)
					return err
				},
				"Append and Next": func() error {
					_, err := log.Append(b)
					_, _, err2 := r.Next(ctx, buf)
					if err2 != nil && errors.As(err2, new(*broadcast.Overrun)) { // of the appends alone
						_, _, err2 = r.Next(ctx, buf)
					}
					return errors.Join(err, err2)
				},
			} {
				if err := f(); err != nil { // the overrun
					t.Fatal(err)
				}
				if n := testing.AllocsPerRun(200, func() {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s: %v allocations", name, n)
				}
			}
			read := func() {
				if _, _, err := r.Next(ctx, buf); err != nil && !errors.As(err, new(*broadcast.Overrun)) {
					t.Fatal(err)
				}
			}
			for _, tail := log.Bounds(); r.Pos() != tail; {
				read()
			}
			pushed := 0
			steps.On(t, func(step string) {
				switch step {
				case "next.sleeps":
					if _, err := log.Append(b); err != nil {
						t.Error(err)
					}
				case "append.pushed":
					pushed++
				}
			})
			if n := testing.AllocsPerRun(200, read); n != 0 || pushed < 200 {
				t.Errorf("a Next that waits, and an Append that rings: %v allocations, %d pushed", n, pushed)
			}
		})
	}
}
