package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// modes are how stores are found.
var modes = map[string][]vmmc.BindOption{"watch": nil, "compare": {vmmc.CompareOnly()}}

// scaled is n, or as much more as $VMMC_AU_SCALE says.
func scaled(t testing.TB, n int) int {
	t.Helper()
	if s := os.Getenv("VMMC_AU_SCALE"); s != "" {
		f, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n * f
	}
	if testing.Short() || raceEnabled {
		return n/10 + 1
	}
	return n
}

// everyBinding runs f on each way and in each mode, with a buffer of size bytes.
func everyBinding(t *testing.T, size int, f func(t *testing.T, s *buffers, opts []vmmc.BindOption)) {
	t.Helper()
	everyWay(t, func(t *testing.T, exported func(*testing.T, int) *buffers, opts []vmmc.BindOption) {
		f(t, exported(t, size), opts)
	})
}

// everyWay runs f on each way and in each mode. exported makes a buffer of zeros; the
// nodes are the same for all of a way, since it takes a while until two of them have met.
func everyWay(t *testing.T, f func(t *testing.T, exported func(t *testing.T, size int) *buffers, opts []vmmc.BindOption)) {
	t.Helper()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			for mode, opts := range modes {
				t.Run(mode, func(t *testing.T) {
					f(t, func(t *testing.T, size int) *buffers {
						t.Helper()
						s := exportedAt(t, near, far, way, size)
						clear(s.exp.Bytes())
						return s
					}, opts)
				})
			}
		})
	}
}

func bind(t testing.TB, im *vmmc.Import, mem []byte, off int, opts ...vmmc.BindOption) *vmmc.Binding {
	t.Helper()
	b, err := im.Bind(mem, off, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func flush(t testing.TB, b *vmmc.Binding) {
	t.Helper()
	if err := b.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}

// pressure keeps the collector at work until the test ends.
func pressure(t *testing.T) {
	stop := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		var kept [64][]byte
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				kept[i%64] = make([]byte, 64<<10)
				runtime.KeepAlive(kept)
				if i%256 == 0 {
					runtime.GC()
				}
				runtime.Gosched()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-over })
}

// scribble stores at random: single words to hot places and anywhere, runs, and much
// at once.
func scribble(mem []byte, rnd *rand.Rand, stores int) {
	words := len(mem) / 4
	for stores > 0 {
		n, at := 1, 0
		switch k := rnd.IntN(100); {
		case k < 50:
			at = rnd.IntN(min(words, 16)) * 7 % words
		case k < 90:
			at = rnd.IntN(words)
		case k < 99:
			at, n = rnd.IntN(words), 1+rnd.IntN(300)
		default:
			at, n = rnd.IntN(words), 1+rnd.IntN(40000)
		}
		n = min(n, words-at)
		if n > 1000 {
			b := mem[4*at : 4*(at+n)]
			copy(b, bytes.Repeat([]byte{byte(rnd.Uint32()), 1, byte(n), 3}, n))
		} else {
			v := rnd.Uint32()
			for i := range n {
				shm.Word(mem, 4*(at+i)).Store(v + uint32(i))
			}
		}
		stores -= n
	}
}

// Whatever is stored, and however: after a flush the far copy is the near one, and
// nothing around it has changed.
func TestBoundMemoryIsCarriedOver(t *testing.T) {
	sizes := []int{4, 64, 12 << 10, 1<<20 + 8, 20 << 20}
	everyWay(t, func(t *testing.T, exported func(*testing.T, int) *buffers, opts []vmmc.BindOption) {
		for _, n := range sizes {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				s := exported(t, n+16)
				if n > 4096 {
					pressure(t)
				}
				all := alloc(t, s.a, n+8192)
				for _, at := range []int{0, 4092} {
					mem := all[at : at+n]
					with := opts
					if at > 0 { // the far side has something else
						with = append(slices.Clone(opts), vmmc.WithContents())
					}
					b, err := s.im.Bind(mem, 8, with...)
					if err != nil {
						t.Fatal(err)
					}
					rnd := rand.New(rand.NewPCG(uint64(n), uint64(at)))
					for range 6 {
						scribble(mem, rnd, scaled(t, 30_000))
						flush(t, b)
						if far := s.exp.Bytes()[8 : 8+n]; !bytes.Equal(far, mem) {
							t.Fatalf("they differ after a flush: %+v", b.Stats())
						}
					}
					// And without a flush, in its time.
					shm.Word(mem, n-4).Add(1)
					w, err := s.exp.Word(8 + n - 4)
					if err != nil {
						t.Fatal(err)
					}
					want := shm.Word(mem, n-4).Load()
					if err := s.b.WaitUntil(within(t), func() bool { return w.Load() == want }); err != nil {
						t.Fatal(err)
					}
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
					for _, i := range []int{0, 4, 8 + n, 12 + n} {
						if shm.Word(s.exp.Bytes(), i).Load() != 0 {
							t.Errorf("a word beside the bound ones has changed, at %d", i)
						}
					}
				}
			})
		}
	})
}

// Two goroutines store while a third flushes and the collector works. What the one
// that flushes has stored before is there.
func TestStoresWhileItIsCarriedOver(t *testing.T) {
	const n = 2 << 20
	everyBinding(t, n, func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		pressure(t)
		mem := alloc(t, s.a, n)
		b := bind(t, s.im, mem, 0, opts...)
		stores := scaled(t, 1_000_000)
		done := make(chan struct{}, 2)
		for i := range 2 {
			go func() {
				scribble(mem[i*n/4:(i+1)*n/4], rand.New(rand.NewPCG(1, uint64(i))), stores)
				done <- struct{}{}
			}()
		}
		rnd := rand.New(rand.NewPCG(1, 9))
		for left := 2; left > 0; {
			scribble(mem[n/2:], rnd, 1+rnd.IntN(2000))
			flush(t, b)
			if !bytes.Equal(s.exp.Bytes()[n/2:], mem[n/2:]) {
				t.Fatalf("they differ after a flush: %+v", b.Stats())
			}
			select {
			case <-done:
				left--
			default:
			}
		}
		flush(t, b)
		if !bytes.Equal(s.exp.Bytes(), mem) {
			t.Fatalf("they differ at the end: %+v", b.Stats())
		}
	})
}

// Data, then a flag: a reader that finds the flag finds the data, in every mode that promises it.
func TestFlagsComeAfterTheirData(t *testing.T) {
	const n = 256 << 10
	test := func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		mem := alloc(t, s.a, n)
		far := s.exp.Bytes()
		clear(far) // of guard bytes, which would be a flag before the first round
		b := bind(t, s.im, mem, 0, append(opts, vmmc.FlagWords(4096))...)
		flag, err := s.exp.Word(4096)
		if err != nil {
			t.Fatal(err)
		}
		rounds := uint32(scaled(t, 600))
		seen := make(chan error)
		ctx, stop := context.WithTimeout(context.Background(), max(bound, time.Duration(rounds)*10*time.Millisecond))
		defer stop()
		go func() {
			for last := uint32(0); last < rounds; {
				v, err := flag.Wait(ctx, last)
				last = v
				// Data is stored again when its flag was seen, so it is this round's.
				for k := 0; k < 8 && err == nil; k++ {
					if v := shm.Word(far, place(last, k)).Load(); v != last+uint32(k) {
						err = fmt.Errorf("flag %d overtook word %d of its data, which is %d", last, k, v)
					}
				}
				if seen <- err; err != nil {
					return
				}
			}
		}()
		for r := uint32(1); r <= rounds; r++ {
			for k := range 8 {
				binary.LittleEndian.PutUint32(mem[place(r, k):], r+uint32(k)) // a plain store
			}
			shm.Word(mem, 4096).Store(r)
			if b.Stats().Mode == vmmc.BindAlias {
				flush(t, b) // or it might sleep
			}
			if err := <-seen; err != nil {
				t.Fatalf("round %d: %v: %+v", r, err, b.Stats())
			}
		}
	}
	everyBinding(t, n, test)
	t.Run("alias", func(t *testing.T) {
		s := exportedSize(t, "mapped", n)
		test(t, s, []vmmc.BindOption{vmmc.AliasPages()})
	})
}

// place is where word k of round r lies: hot, cold, below the flag and above it.
func place(r uint32, k int) int {
	switch k {
	case 0, 1:
		return 4 * k
	case 2:
		return 4100
	case 3:
		return 4092
	}
	return 8192 + int(r*2654435761+uint32(k)*40503)%(200<<10)/32*32 + 4*k
}
