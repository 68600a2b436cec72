package vmmc_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// numbered is a message of n bytes whose words all are salt.
func numbered(n int, salt uint32) []byte { return bytes.Repeat(w32(salt), n/4) }

// One order holds from one process to another, whichever target is posted when.
// The importer sends numbered messages by all calls there are, to the redirectable
// export and to a plain one. The exporter posts and ends redirections at random,
// to both kinds of targets. Of each message the words lie in the target where
// EndRedir says so, and else in the buffer. No message goes back in time.
func TestRandomRedirections(t *testing.T) {
	const size = 96 << 10
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			ctx := within(t)
			m, err := b.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			targets := [][]byte{m.Bytes(), alloc(t, b, size)}
			opts := []vmmc.ExportOption{vmmc.Redirectable(m)}
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			mem, seen := alloc(t, b, size), alloc(t, b, 64)
			opts = append(opts, vmmc.WithHandler(func(n vmmc.Notification) { _ = n.At[3] }))
			exp, err := b.Export(7, mem, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Export(8, seen); err != nil {
				t.Fatal(err)
			}
			im, err := a.Import(ctx, b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			flag, err := a.Import(ctx, b.Node(), b.PID(), 8)
			if err != nil {
				t.Fatal(err)
			}
			const messages = 1000
			// The count of messages follows each message to another export.
			count := shm.Word(seen, 0)
			ended := make(chan error, 1)
			go func() {
				rng := rand.New(rand.NewPCG(1, 2))
				var last vmmc.Request
				ended <- func() error {
					for i := uint32(1); i <= messages; i++ {
						n := []int{4, 64, 16 << 10, 40 << 10, size}[rng.IntN(5)]
						src := numbered(n, i)
						var err error
						switch rng.IntN(5) {
						case 0:
							err = im.SendNotify(ctx, src, 0)
						case 1:
							last, err = im.SendAsync(ctx, src, 0)
						case 2:
							last, err = im.SendNotifyAsync(ctx, src, 0)
						case 3:
							err = im.SendV(ctx, [][]byte{src[:n/8*4], src[n/8*4:]}, 0)
						default:
							err = im.Send(ctx, src, 0)
						}
						if err == nil && rng.IntN(2) == 0 {
							err = flag.Send(ctx, w32(i), 0)
						}
						if err != nil {
							return err
						}
					}
					if err := last.Wait(ctx); err != nil {
						return err
					}
					if err := im.Fence(ctx); err != nil {
						return err
					}
					return errors.Join(flag.Send(ctx, w32(messages), 0), flag.Fence(ctx))
				}()
			}()
			rng := rand.New(rand.NewPCG(3, 4))
			redirected, rounds := [2]int{}, 0
			newest := uint32(0) // of what was found in the buffer or a target
			for count.Load() < messages {
				select {
				case err := <-ended:
					if err != nil {
						t.Fatal(err)
					}
					ended <- nil
				default:
				}
				rounds++
				kind := rng.IntN(2)
				lo := 4 * rng.IntN(4) * (size / 32)
				to := targets[kind][:4*(1+rng.IntN((size-lo)/4))]
				clear(to)
				before := count.Load() // of messages that have arrived
				if err := exp.PostRedir(to, lo); err != nil {
					t.Fatal(err)
				}
				if rounds%2 == 0 { // until some messages have met it, perhaps
					for upTo := min(before+8, messages); count.Load() < upTo && ctx.Err() == nil; {
						runtime.Gosched()
					}
				} else {
					for spin := rng.IntN(50); spin > 0; spin-- {
						runtime.Gosched()
					}
				}
				n, first, err := exp.EndRedir(ctx)
				if err != nil {
					t.Fatal(err)
				}
				kept := bytes.Clone(to)
				if n > 0 {
					redirected[kind]++
					got := shm.Word(to, first).Load()
					if !bytes.Equal(to[first:first+n], numbered(n, got)) {
						t.Fatalf("%d bytes at %d of the target are of several messages", n, first)
					}
					if got <= before || got < newest {
						t.Fatalf("message %d was redirected, message %d had arrived", got, max(before, newest))
					}
					newest = got
				}
				want := make([]byte, len(to))
				copy(want[first:], to[first:first+n])
				if !bytes.Equal(to, want) {
					t.Fatalf("more of the target was written than %d bytes at %d", n, first)
				}
				if n > 0 && !bytes.Equal(kept, to) {
					t.Fatal("the target was written after the redirection's end")
				}
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if off, ok := exp.DataEnd(); !ok || off < 0 || off >= size {
				t.Errorf("data end %d, %v", off, ok)
			}
			t.Logf("%d redirections, %d to the named target, %d to the other", rounds, redirected[0], redirected[1])
			if redirected[0] == 0 || redirected[1] == 0 {
				t.Error("nothing was redirected")
			}
		})
	}
}

// Several goroutines of one importer share a redirectable buffer: each message is
// redirected wholly or not, and the end of the export ends all of them.
func TestRedirectionEndsWithItsExport(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			for range 10 {
				s, target := redirected(t, way, size)
				ctx := within(t)
				var wg sync.WaitGroup
				for g := range 3 {
					wg.Go(func() {
						for i := uint32(1); ; i++ {
							err := s.im.Send(ctx, numbered(size, uint32(g)<<16|i), 0)
							if errors.Is(err, vmmc.ErrRevoked) {
								return
							}
							if err != nil {
								t.Errorf("send: %v", err)
								return
							}
						}
					})
				}
				for range 20 {
					if err := s.exp.PostRedir(target, 0); err != nil {
						t.Fatal(err)
					}
					n, first, err := s.exp.EndRedir(ctx)
					if err != nil {
						t.Fatal(err)
					}
					if n == 0 {
						continue
					}
					if !bytes.Equal(target[first:first+n], numbered(n, shm.Word(target, first).Load())) {
						t.Fatalf("%d bytes at %d are of several messages", n, first)
					}
				}
				if err := s.exp.PostRedir(target, 0); err != nil {
					t.Fatal(err)
				}
				if err := s.exp.Close(); err != nil {
					t.Fatal(err)
				}
				kept := bytes.Clone(target)
				wg.Wait()
				if !bytes.Equal(kept, target) {
					t.Fatal("the target was written after the export's end")
				}
			}
		})
	}
}
