package link

import (
	"bytes"
	"context"
	"testing"

	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// between calls f when a send looks at its context, which it does between pieces.
type between struct {
	context.Context
	f func()
}

func (b between) Err() error { b.f(); return b.Context.Err() }

// A redirection that ends while a message of several pieces is copied: the rest
// goes to the export, and the message does not say that its last word was
// redirected. The one posted next is not the message's either.
func TestEndWhileCopying(t *testing.T) {
	const (
		kept = 2 * redirect.Piece // the look after the second piece finds it
		size = kept + redirect.Piece
	)
	for name, next := range map[string]uint32{"ended": shmlayout.Ending(1), "the next is posted": shmlayout.Posted(2)} {
		t.Run(name, func(t *testing.T) {
			r, err := shm.New("test", size, false)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Retire)
			target, err := shm.New("test", size, false)
			if err != nil {
				t.Fatal(err)
			}
			post, err := shmlayout.NewPost()
			if err != nil {
				t.Fatal(err)
			}
			claim, err := shmlayout.NewClaim()
			if err != nil {
				t.Fatal(err)
			}
			p := join(t, true, &Target{Handle: 1, Mem: r.Bytes(), Write: true})
			if err := r.Seal(false); err != nil {
				t.Fatal(err)
			}
			far := view(t, r, func(fd int) (*shm.Region, error) { return shm.Open(fd, size, true) })
			m := NewMapped(p.out, 1, far, 0, size, 0, 0, 0)
			t.Cleanup(m.Close)
			c := redirect.NewClaims(post, claim)
			t.Cleanup(c.Retire)
			c.AddTarget(target, size)
			m.Claims = c
			post.High().Store(size)
			post.State().Store(shmlayout.Posted(1))
			src := bytes.Repeat([]byte{1, 2, 3, 4}, size/4)
			ctx := between{t.Context(), func() { post.State().Store(next) }}
			sent, err := m.sendRedirected(ctx, 0, src, nil, false, false)
			if err != nil || sent.LastWordGen != 0 || sent.byStream {
				t.Errorf("the last word went to redirection %d, streamed %v: %v", sent.LastWordGen, sent.byStream, err)
			}
			if n := claim.Done().Load(); n != kept || claim.Finished().Load() != 1 {
				t.Errorf("%d bytes are redirected, finished %d", n, claim.Finished().Load())
			}
			if !bytes.Equal(target.Bytes()[:kept], src[:kept]) || !bytes.Equal(r.Bytes()[kept:], src[kept:]) {
				t.Error("the message lies elsewhere")
			}
		})
	}
}
