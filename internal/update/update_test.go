package update

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// mirror is a far side in this process. What it is told about flags is checked as
// they come.
type mirror struct {
	mem       []byte
	onPublish func(off int)
	onPut     func(off, n int)
	done      int
}

func (m *mirror) Put(_ context.Context, off int, words []byte) error {
	shm.PutWords(m.mem[off:off+len(words)], words)
	if m.onPut != nil {
		m.onPut(off, len(words))
	}
	return nil
}

func (m *mirror) Publish(_ context.Context, off int, flag []byte) error {
	shm.Word(m.mem, off).Store(shm.LastWord(flag))
	if m.onPublish != nil {
		m.onPublish(off)
	}
	return nil
}

func (m *mirror) Done() error { m.done++; return nil }

// ending is a context that ends after some looks at it.
type ending struct {
	context.Context
	after int
}

func (e *ending) Err() error {
	if e.after--; e.after < 0 {
		return context.Canceled
	}
	return nil
}

type fatal interface {
	Helper()
	Fatal(...any)
}

// made is a binding that does nothing by itself.
func made(t fatal, r *shm.Region, at, n int, change func(*Config)) (*Binding, *mirror, []byte) {
	t.Helper()
	near := r.Bytes()[at : at+n]
	far := &mirror{mem: make([]byte, n+8)[:n]}
	if uintptr(at)%8 != 0 { // any alignment will do, but words are words
		far.mem = make([]byte, n+16)[4 : n+4]
	}
	c := Config{Local: near, Region: r, At: at, Remote: far, Direct: true, Duty: &Duty{}, OnPassed: func() {}}
	change(&c)
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b, far, near
}

func (b *Binding) full(t fatal) {
	t.Helper()
	b.requested.Add(1)
	if _, err := b.pass(b.ctx, true); err != nil {
		t.Fatal(err)
	}
}

// Any stores and any passes, in any order: a full pass leaves nothing out, no pass
// writes what was not stored, and flags never come before data.
func TestPasses(t *testing.T) {
	for _, twin := range []bool{false, true} {
		t.Run(fmt.Sprint("twin ", twin), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				const most = 40 * 4096
				r, err := shm.New("test", most+8192, false)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Retire()
				at := 4 * rapid.SampledFrom([]int{0, 1, 5, 1023, 1024}).Draw(t, "at")
				n := 4 * rapid.SampledFrom([]int{1, 9, 2000, 9000, most/4 - 3}).Draw(t, "words")
				var flags []Span
				for off := 0; off < n; {
					off += 4 * rapid.SampledFrom([]int{0, 1, 700, 5000, most}).Draw(t, "gap")
					to := off + 4*rapid.IntRange(1, 3).Draw(t, "flags")
					if to > n {
						break
					}
					if len(flags) == 6 {
						break
					}
					flags = append(flags, Span{off, to})
					off = to + 4
				}
				all := rapid.Bool().Draw(t, "contents")
				for i := range r.Bytes() {
					r.Bytes()[i] = byte(i)
				}
				b, far, near := made(t, r, at, n, func(c *Config) { c.Flags, c.CompareOnly, c.All = flags, twin, all })
				defer func() { b.cancel(); b.release() }()
				if pages := rapid.SampledFrom([]int{0, 1, 3, 16, 40}).Draw(t, "stretch"); b.watch != nil && pages > 0 {
					b.prescan = b.newPrescan(pages * 4096)
				}
				if !all {
					copy(far.mem, near)
				}
				is := func(off int) bool {
					for _, f := range flags {
						if off >= f.From && off < f.To {
							return true
						}
					}
					return false
				}
				far.onPublish = func(int) {
					for off := 0; off < n; off += 4 {
						if !is(off) && shm.LastWord(far.mem[off:off+4]) != shm.LastWord(near[off:off+4]) {
							t.Fatalf("a flag came before word %d", off)
						}
					}
				}
				far.onPut = func(off, n int) {
					for at := off; at < off+n; at += 4 {
						if is(at) {
							t.Fatalf("flag %d goes as data", at)
						}
					}
				}
				word := rapid.IntRange(0, n/4-1)
				t.Repeat(map[string]func(*rapid.T){
					"store": func(t *rapid.T) {
						shm.Word(near, 4*word.Draw(t, "word")).Store(rapid.Uint32().Draw(t, "value"))
					},
					"store at once": func(t *rapid.T) {
						b.full(t)
						off, v := 4*word.Draw(t, "word"), rapid.Uint32().Draw(t, "value")
						fails := rapid.Bool().Draw(t, "fails")
						sent := 0
						err := b.Store(context.Background(), off, v, func(w []byte) error {
							if sent++; fails {
								return context.Canceled
							}
							shm.Word(far.mem, off).Store(shm.LastWord(w))
							return nil
						}, func(error) bool { return false })
						if sent != 1 || fails != (err != nil) || shm.Word(near, off).Load() != v {
							t.Fatalf("sent %d times, %v", sent, err)
						}
						if !fails { // and not again
							shm.Word(far.mem, off).Add(1)
							b.full(t)
							if got := shm.Word(far.mem, off).Add(^uint32(0)); got != v {
								t.Fatalf("%d was sent again", got)
							}
						}
					},
					"run": func(t *rapid.T) {
						from := word.Draw(t, "word")
						for i := from; i < min(n/4, from+rapid.IntRange(1, 5000).Draw(t, "long")); i++ {
							shm.Word(near, 4*i).Add(1)
						}
					},
					"scattered": func(t *rapid.T) { // more runs than one question finds, or just as many
						from, runs := word.Draw(t, "word"), rapid.IntRange(7, 12).Draw(t, "runs")
						for i := from; i < min(n/4, from+2048*runs); i += 2048 {
							shm.Word(near, 4*i).Add(1)
						}
					},
					"raise": func(t *rapid.T) {
						if len(flags) > 0 {
							shm.Word(near, flags[rapid.IntRange(0, len(flags)-1).Draw(t, "flag")].From).Add(1)
						}
					},
					"pass": func(t *rapid.T) {
						if _, err := b.pass(b.ctx, rapid.Bool().Draw(t, "all")); err != nil {
							t.Fatal(err)
						}
					},
					"cut": func(t *rapid.T) { // a flush that is given up, at once or after a while
						ctx := &ending{Context: b.ctx, after: rapid.IntRange(0, 3).Draw(t, "after")}
						asked := b.requested.Add(1)
						_, err := b.pass(ctx, true)
						switch cut := errors.Is(err, errInterrupted); {
						case err != nil && !cut:
							t.Fatal(err)
						case cut == (b.passed.Load() == asked):
							t.Fatalf("%v, and pass %d of %d", err, b.passed.Load(), asked)
						}
					},
					"protect": func(*rapid.T) { b.lastProtect = now() - int64(time.Hour) },
					"cool": func(t *rapid.T) {
						if err := b.markCold(now() + 1); err != nil {
							t.Fatal(err)
						}
					},
					"write there": func(t *rapid.T) { // what is not stored to again stays there
						b.full(t)
						off := 4 * word.Draw(t, "word")
						shm.Word(far.mem, off).Add(1)
						for range 3 {
							b.full(t)
						}
						if v := shm.Word(far.mem, off).Add(^uint32(0)); v != shm.Word(near, off).Load() {
							t.Fatalf("word %d is %d, the far side made it %d", off, v, shm.Word(near, off).Load())
						}
					},
					"flush": func(t *rapid.T) {
						b.full(t)
						if !bytes.Equal(far.mem, near) {
							t.Fatal("they differ after a full pass")
						}
					},
				})
			})
		})
	}
}

// Passes and requests allocate nothing, and an idle binding makes few passes.
func TestWhatItCosts(t *testing.T) {
	r, err := shm.New("test", 1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Retire()
	b, _, near := made(t, r, 0, 1<<20, func(c *Config) { c.Flags = []Span{{64, 72}} })
	v := uint32(0)
	if n := testing.AllocsPerRun(100, func() {
		v++
		shm.Word(near, 64).Store(v)
		shm.Word(near, 40960).Store(v)
		if _, err := b.Request(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a flush allocates %v times", n)
	}
	b.Start()
	defer func() { b.Fail(context.Canceled); <-b.Gone() }()
	for start := time.Now(); ; runtime.Gosched() {
		before := b.Stats().Passes
		time.Sleep(50 * time.Millisecond) // the measure: how often it looks in that time
		if n := b.Stats().Passes - before; n <= 50 {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal("it does not come to rest")
		}
	}
}
