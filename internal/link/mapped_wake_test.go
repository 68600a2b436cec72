package link

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// wakeable returns an import whose exporter sleeps until wake has changed the word at off.
func wakeable(t *testing.T) (m *Mapped, woken func(off int, wake func() error) error) {
	t.Helper()
	r, err := shm.New("test", shm.PageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Retire)
	p := join(t, true, &Target{Handle: 1, Mem: r.Bytes(), Write: true})
	if err := r.Seal(false); err != nil {
		t.Fatal(err)
	}
	far := view(t, r, func(fd int) (*shm.Region, error) { return shm.Open(fd, shm.PageSize, true) })
	const place = 1 << 20
	m = NewMapped(p.out, 1, far, 0, shm.PageSize, 0, 0, place)
	t.Cleanup(m.Close)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(stop)
	return m, func(off int, wake func() error) error {
		w := shm.Word(r.Bytes(), off)
		w.Store(0)
		awake := make(chan error, 1)
		go func() { awake <- p.b.Wait(ctx, wait.Cond{Word: w, Addr: place + uint64(off)}) }()
		for !p.b.sleepers.Asleep() {
			runtime.Gosched()
		}
		if err := wake(); err != nil {
			t.Fatal(err)
		}
		return <-awake
	}
}

// A sleeper wakes when any byte of its word changes.
func TestBytesWakeASleeper(t *testing.T) {
	const word = 64
	m, woken := wakeable(t)
	for from := word - 3; from < word+4; from++ {
		for n := 1; n <= 5; n++ {
			if from+n <= word {
				continue
			}
			err := woken(word, func() error { return m.Write(t.Context(), from, []byte{1, 1, 1, 1, 1}[:n]) })
			if err != nil {
				t.Fatalf("%d bytes at %d, a sleeper for the word at %d: %v", n, from, word, err)
			}
		}
	}
}

// A signal wakes sleepers for its word and for each word of its data.
func TestSignalWakesASleeper(t *testing.T) {
	m, woken := wakeable(t)
	m.Fast, m.Ended = true, new(atomic.Bool)
	data := []byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	for name, send := range map[string]func() error{
		"fast": func() error { return m.TrySignal(64, data, 1024, 1) },
		"slow": func() error { return m.SendSignal(t.Context(), 64, data, 1024, 1) },
	} {
		for _, off := range []int{64, 68, 72, 1024} {
			if err := woken(off, send); err != nil {
				t.Fatalf("%s, a sleeper for the word at %d: %v", name, off, err)
			}
		}
	}
}
