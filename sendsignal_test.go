package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/simnet"
)

// signalSizes are lengths of data on either side of each change of the path.
var signalSizes = []int{4, 8, 12, 64, 380, 384, 388, 448, 452, 4096, 65472, 65476, 64 << 10, 64<<10 + 4, 256 << 10, 256<<10 + 4, 1 << 20}

// A receiver that finds the word finds all of the data, wherever the two lie, and nothing else has
// changed.
func TestSendSignal(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			const longest, gap = 1 << 20, 4096
			s := exportedSize(t, way, longest+2*gap)
			ctx := within(t)
			mem := s.exp.Bytes()
			var salt uint32
			for _, n := range signalSizes {
				for _, wordOff := range []int{0, gap - 4, gap + n, len(mem) - 4} {
					salt++
					clear(mem)
					w, err := s.exp.Word(wordOff)
					if err != nil {
						t.Fatal(err)
					}
					src := pattern(n, salt)
					arrived := make(chan string, 1)
					go func() {
						v, err := w.Wait(ctx, 0)
						switch {
						case err != nil || v != salt:
							arrived <- fmt.Sprintf("the word is %d, want %d, %v", v, salt, err)
						case !bytes.Equal(mem[gap:gap+n], src):
							arrived <- "the word is there before the data"
						default:
							arrived <- ""
						}
					}()
					if err := s.im.SendSignal(ctx, src, gap, salt, wordOff); err != nil {
						t.Fatal(err)
					}
					if bad := <-arrived; bad != "" {
						t.Fatalf("%d bytes, the word at %d: %s", n, wordOff, bad)
					}
					clear(mem[gap : gap+n])
					binary.LittleEndian.PutUint32(mem[wordOff:], 0)
					if bytes.ContainsFunc(mem, func(r rune) bool { return r != 0 }) {
						t.Fatalf("%d bytes, the word at %d: something else has changed", n, wordOff)
					}
				}
			}
		})
	}
}

func TestSendSignalBadly(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, size)
			clear(s.exp.Bytes())
			data := pattern(64, 1)
			var all []bad
			for what, c := range map[string]struct {
				src          []byte
				off, wordOff int
				want         error
			}{
				"no data":                       {nil, 0, 128, vmmc.ErrBadSize},
				"half a word of data":           {data[:2], 0, 128, vmmc.ErrBadAlignment},
				"data at an odd offset":         {data, 2, 128, vmmc.ErrBadAlignment},
				"data before the buffer":        {data, -4, 128, vmmc.ErrBadProxyAddr},
				"data behind the buffer":        {data, size - 60, 128, vmmc.ErrBadProxyAddr},
				"data far away":                 {data, math.MaxInt &^ 3, 128, vmmc.ErrBadProxyAddr},
				"the word at an odd offset":     {data, 0, 129, vmmc.ErrBadAlignment},
				"the word before the buffer":    {data, 64, -4, vmmc.ErrBadProxyAddr},
				"the word behind the buffer":    {data, 0, size, vmmc.ErrBadProxyAddr},
				"the word far away":             {data, 0, math.MaxInt &^ 3, vmmc.ErrBadProxyAddr},
				"the word far before":           {data, 64, math.MinInt, vmmc.ErrBadProxyAddr},
				"the word begins the data":      {data, 64, 64, vmmc.ErrBadArg},
				"the word ends the data":        {data, 64, 124, vmmc.ErrBadArg},
				"the word is amid the data":     {data, 64, 96, vmmc.ErrBadArg},
				"data that covers all, no room": {make([]byte, size), 0, size - 4, vmmc.ErrBadArg},
			} {
				do := func() error { return s.im.SendSignal(t.Context(), c.src, c.off, 1, c.wordOff) }
				all = append(all, bad{"Import.SendSignal", what, do, c.want})
			}
			judge(t, all)
			if err := s.im.Fence(t.Context()); err != nil {
				t.Fatal(err)
			}
			if bytes.ContainsFunc(s.exp.Bytes(), func(r rune) bool { return r != 0 }) {
				t.Error("a call with bad arguments has written")
			}
		})
	}
}

// Over connections that are reset all the time each word comes after its data, in order, and
// neither comes again: the receiver clears what it has taken.
func TestSendSignalOverCuts(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { sendSignalOverCuts(t) })
	t.Run("encrypted", func(t *testing.T) { sendSignalOverCuts(t, vmmc.WithEncryption()) })
}

func sendSignalOverCuts(t *testing.T, more ...vmmc.Option) {
	const slots, slot, messages = 8, 256 << 10, 400
	a, b, s, _ := surviving(t, 20*bound, more...)
	mem := alloc(t, b, slots*slot+4096)
	exp, err := b.Export(7, mem)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	w, err := exp.Word(slots * slot)
	if err != nil {
		t.Fatal(err)
	}
	length := func(i uint32) int { return []int{4, 64, 4096, 64 << 10, 65476, 200 << 10}[i%6] }
	free := make(chan struct{}, slots)
	for range slots {
		free <- struct{}{}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		next := uint32(1)
		for next <= messages {
			last, err := w.Wait(ctx, next-1)
			if err != nil || last < next {
				t.Errorf("the word is %d when %d is next, %v", last, next, err)
				return
			}
			for ; next <= last; next++ {
				data := mem[next%slots*slot:][:length(next)]
				if !bytes.Equal(data, pattern(len(data), next)) {
					t.Errorf("the word is %d, message %d is not there", last, next)
					return
				}
				clear(data)
				free <- struct{}{}
			}
		}
	})
	for i := uint32(1); i <= messages; i++ {
		select {
		case <-free:
		case <-ctx.Done():
			t.Fatal("the receiver has stopped")
		}
		if i%5 == 0 {
			s.cut(true)
		}
		if err := im.SendSignal(ctx, pattern(length(i), i), int(i%slots)*slot, i, slots*slot); err != nil {
			t.Fatal(i, err)
		}
	}
	wg.Wait()
	s.cut(true)
	if err := im.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	if got := w.Swap(0); got != messages {
		t.Errorf("the word is %d at the end", got)
	}
	if bytes.ContainsFunc(mem, func(r rune) bool { return r != 0 }) {
		t.Error("data has come again")
	}
	losses, resumptions := vmmc.Resumed(a)
	if t.Logf("%d connections were lost, %d links resumed", losses, resumptions); resumptions == 0 {
		t.Error("no link was resumed")
	}
}

// When its sender gives up while the data of a signal is under way on a connection that is lost,
// the word does not arrive.
func TestSignalGivenUpInItsData(t *testing.T) {
	for _, n := range []int{64<<10 + 4, 1 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a, b, s, events := surviving(t, 20*bound)
			s.faults = []simnet.Fault{{At: 32 << 10, Kind: simnet.Reset}}
			mem := alloc(t, b, 2<<20)
			if _, err := b.Export(7, mem); err != nil {
				t.Fatal(err)
			}
			im, err := a.Import(within(t), b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			s.down, s.faults = true, nil
			s.mu.Unlock()
			ctx, stop := context.WithCancel(within(t))
			defer stop()
			sent := make(chan error, 1)
			go func() { sent <- im.SendSignal(ctx, pattern(n, 1), 4096, 1, 0) }()
			awaitEvent(t, events, vmmc.LinkDown)
			stop()
			if err := <-sent; !errors.Is(err, vmmc.ErrCanceled) || !errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("the signal: %v", err)
			}
			s.cut(true)
			if err := im.Fence(within(t)); err != nil {
				t.Fatal(err)
			}
			if w := shm.Word(mem, 0).Load(); w != 0 {
				t.Errorf("the word is %d", w)
			}
		})
	}
}

// The data and the word are redirected each by itself.
func TestRedirectedSignal(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			for _, n := range []int{64, 4096, 512 << 10} {
				s, target := redirected(t, way, 1<<20)
				ctx := within(t)
				src := pattern(n, 3)
				if err := s.exp.PostRedir(target[:n], 4096); err != nil {
					t.Fatal(err)
				}
				if err := s.im.SendSignal(ctx, src, 4096, 5, 0); err != nil {
					t.Fatal(err)
				}
				w, err := s.exp.Word(0)
				if err == nil {
					_, err = w.Wait(ctx, 0)
				}
				if err != nil || !bytes.Equal(target[:n], src) || w.Load() != 5 {
					t.Fatalf("%d bytes: the word is %d, the data is in the target: %v, %v", n, w.Load(), bytes.Equal(target[:n], src), err)
				}
				if got, _, err := s.exp.EndRedir(ctx); err != nil || got != n {
					t.Fatalf("%d bytes: %d were redirected, %v", n, got, err)
				}
				clear(target)
				if err := s.exp.PostRedir(target[:4], 0); err != nil {
					t.Fatal(err)
				}
				if err := s.im.SendSignal(ctx, src, 4096, 6, 0); err != nil {
					t.Fatal(err)
				}
				if err := s.im.Fence(ctx); err != nil {
					t.Fatal(err)
				}
				if _, _, err := s.exp.EndRedir(ctx); err != nil || !bytes.Equal(s.exp.Bytes()[4096:4096+n], src) || shm.Word(target, 0).Load() != 6 || w.Load() != 5 {
					t.Fatalf("%d bytes: the word is not in the target, or the data is not in the buffer: %v", n, err)
				}
			}
		})
	}
}
