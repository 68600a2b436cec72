package vmmc_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// What the system stores into bound memory for this process is a store like any: a
// file that is read, a get that arrives.
func TestTheKernelStoresToBoundMemory(t *testing.T) {
	const n = 512 << 10
	everyBinding(t, n, func(t *testing.T, s *buffers, opts []vmmc.BindOption) {
		source, from := s.another(t, 8, vmmc.Unmapped())
		mem := alloc(t, s.a, n)
		b := bind(t, s.im, mem, 0, opts...)
		name := t.TempDir() + "/file"
		for round := range 3 {
			flush(t, b)
			time.Sleep(30 * time.Millisecond) // pages are protected then, most of all times; it must hold without, too
			content := bytes.Repeat([]byte{byte(round + 1), 2, 3}, n/6)
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Read(mem[:len(content)]); err != nil {
				t.Fatal(err)
			}
			f.Close()
			for i := range source.Bytes() {
				source.Bytes()[i] = byte(round + i)
			}
			if err := from.Get(within(t), mem[n-size:], 0); err != nil {
				t.Fatal(err)
			}
			flush(t, b)
			if !bytes.Equal(mem[:len(content)], content) || !bytes.Equal(mem[n-size:], source.Bytes()) {
				t.Fatal("the memory itself is not as it should be")
			}
			if !bytes.Equal(s.exp.Bytes(), mem) {
				t.Fatalf("they differ after a flush: %+v", b.Stats())
			}
		}
	})
}

// Updates of a redirectable buffer are messages, and one of them may be redirected.
func TestBindingToARedirectableBuffer(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			s, target := redirected(t, way, 64<<10)
			mem := alloc(t, s.a, 64<<10)
			b := bind(t, s.im, mem, 0, vmmc.FlagWords(40960))
			for i := range uint32(50) {
				shm.Word(mem, int(i*812)).Store(i + 1)
				shm.Word(mem, 40960).Store(i + 1)
				flush(t, b)
				if !bytes.Equal(s.exp.Bytes(), mem) {
					t.Fatal("they differ after a flush")
				}
			}
			if err := s.exp.PostRedir(target[:64], 8192); err != nil {
				t.Fatal(err)
			}
			shm.Word(mem, 8192).Store(4711)
			flush(t, b)
			if err := end(s.exp); err != nil {
				t.Fatal(err)
			}
			if there, here := shm.Word(s.exp.Bytes(), 8192).Load(), shm.Word(target, 0).Load(); there == 4711 || here != 4711 {
				t.Errorf("%d in the buffer, %d where it was redirected to", there, here)
			}
		})
	}
}

// Flushes and stores of words allocate nothing on one node.
func TestAllocationsOfBindings(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := exportedSize(t, "mapped", 256<<10)
	mem := alloc(t, s.a, 256<<10)
	b := bind(t, s.im, mem, 0)
	ctx := within(t)
	v := uint32(0)
	for what, f := range map[string]func() error{
		"Flush": func() error { v++; shm.Word(mem, 8192).Store(v); return b.Flush(ctx) },
		"Store": func() error { v++; return b.Store(ctx, 4096, v) },
	} {
		if n := testing.AllocsPerRun(1000, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}

// BenchmarkBoundStore is the time from a store until it is seen.
func BenchmarkBoundStore(b *testing.B) {
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			s := exportedSize(b, way, 1<<20)
			m, err := s.a.Alloc(1 << 20)
			if err != nil {
				b.Fatal(err)
			}
			bind(b, s.im, m.Bytes(), 0)
			w, err := s.exp.Word(4096)
			if err != nil {
				b.Fatal(err)
			}
			v := w.Load()
			for b.Loop() {
				v++
				shm.Word(m.Bytes(), 4096).Store(v)
				if err := s.b.WaitUntil(b.Context(), func() bool { return w.Load() == v }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFlush is one page that has changed, of much memory.
func BenchmarkFlush(b *testing.B) {
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			s := exportedSize(b, way, 16<<20)
			m, err := s.a.Alloc(16 << 20)
			if err != nil {
				b.Fatal(err)
			}
			x := bind(b, s.im, m.Bytes(), 0)
			v := uint32(0)
			for b.Loop() {
				v++
				shm.Word(m.Bytes(), 1<<20).Store(v)
				if err := x.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
