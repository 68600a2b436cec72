package link

import (
	"sync"
	"testing"
)

// However many goroutines ask at once, no more gets are unanswered than an
// exporter bears: one too many would end the link.
func TestManyGetsAtOnce(t *testing.T) {
	mem := memory(t, 4096)
	p := join(t, false, &Target{Handle: 1, Mem: mem, Read: true, Write: true})
	ctx := t.Context()
	for range 20 {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 8 * maxFetches {
			all.Go(func() {
				<-begin
				r, err := p.out.GetAsync(ctx, Read{Handle: 1, Dst: make([]byte, 64)})
				if err == nil {
					_, err = r.Wait(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
	}
}
