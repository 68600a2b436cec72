package link

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// A sleeper wakes when any byte of its word changes.
func TestBytesWakeASleeper(t *testing.T) {
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
	const place, word = 1 << 20, 64
	m := NewMapped(p.out, 1, far, 0, shm.PageSize, 0, 0, place)
	t.Cleanup(m.Close)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	for from := word - 3; from < word+4; from++ {
		for n := 1; n <= 5; n++ {
			if from+n <= word {
				continue
			}
			w := shm.Word(r.Bytes(), word)
			w.Store(0)
			woken := make(chan error, 1)
			go func() { woken <- p.b.Wait(ctx, wait.Cond{Word: w, Addr: place + word}) }()
			for !p.b.sleepers.Asleep() {
				runtime.Gosched()
			}
			if err := m.Write(ctx, from, []byte{1, 1, 1, 1, 1}[:n]); err != nil {
				t.Fatal(err)
			}
			if err := <-woken; err != nil {
				t.Fatalf("%d bytes at %d, a sleeper for the word at %d: %v", n, from, word, err)
			}
		}
	}
}
