package cookbook

import (
	"context"
	"errors"

	"github.com/vmmc-go/vmmc"
)

// Visits counts at a server that may be killed and started again.
type Visits struct{ im *vmmc.Import }

// NewVisits waits for the server.
func NewVisits(ctx context.Context, p *vmmc.Process, name string) *Visits {
	im, err := p.ImportName(ctx, name)
	check(err)
	return &Visits{im}
}

// Add adds a visit. Where the server has ended, it waits for the next one that has the name.
func (v *Visits) Add(ctx context.Context) (before uint64) {
	for {
		before, err := v.im.FetchAdd64(ctx, 0, 1)
		if err == nil {
			return before
		}
		if !errors.Is(err, vmmc.ErrPeerGone) {
			check(err)
		}
		v.im, err = v.im.Rejoin(ctx)
		check(err)
	}
}
