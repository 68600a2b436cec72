package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc"
)

// AU is what automatic update took, in the form that --json prints.
type AU struct {
	Sights  []Sight  `json:"sights"`
	Flags   []Flag   `json:"flags"`
	Bulk    []Bulk   `json:"bulk"`
	Writers []Writer `json:"writers"`
	Idle    []Idle   `json:"idle"`
}

// Sight is the time from a store until it is seen at the far end.
type Sight struct {
	Way      string  `json:"way"`
	Mode     string  `json:"mode"`
	Bytes    int     `json:"bytes"`
	HotPages int     `json:"hot_pages"`
	P50NS    float64 `json:"p50_ns"`
	P99NS    float64 `json:"p99_ns"`
	// Of a goroutine that waits for that word by looking, and sends it.
	SendNS float64 `json:"send_p50_ns"`
}

// Flag is half the round trip between two goroutines by a flag, in an alias and in
// memory that both have.
type Flag struct {
	AliasNS float64 `json:"alias_p50_ns"`
	RawNS   float64 `json:"raw_p50_ns"`
	Ratio   float64 `json:"ratio"`
}

// Bulk is a region written anew, until all of it has arrived.
type Bulk struct {
	Way       string  `json:"way"`
	Mode      string  `json:"mode"`
	Bytes     int     `json:"bytes"`
	StoreMBps float64 `json:"store_and_flush_MBps"`
	SendMBps  float64 `json:"store_and_send_MBps"`
	Flush     float64 `json:"flush_MBps"` // without the time of the stores
	Send      float64 `json:"send_MBps"`
	Ratio     float64 `json:"ratio"` // of the last two
}

// Writer is what a store costs.
type Writer struct {
	Mode    string  `json:"mode"`
	HotNS   float64 `json:"hot_page_ns"`   // a store to a page that was stored to lately
	FirstNS float64 `json:"cold_page_ns"`  // the first one to a protected page
	PlainNS float64 `json:"not_bound_ns"`  // a store to memory that is not bound
	Each    float64 `json:"cold_plain_ns"` // the same stores to one word a page, not bound
}

// Idle is a region to which nothing is stored.
type Idle struct {
	Mode      string  `json:"mode"`
	Bytes     int     `json:"bytes"`
	CPU       float64 `json:"cpu_percent"`
	CleanUS   float64 `json:"clean_flush_us"`      // a flush of it: one look at all of it
	FirstUS   float64 `json:"first_store_p50_us"`  // from the first store after a while of nothing
	FirstMost float64 `json:"first_store_most_us"` // until it was seen
}

// AUConfig says how much is measured.
type AUConfig struct {
	Ways   []string
	Sizes  []int // bound, for latencies
	Rounds int   // of a latency
	Idle   int64 // bytes that are bound and idle; 0: no measurement of idleness
	Bulk   int
}

// pages of hot memory are this far apart, so that no two are neighbours.
const apart = 8 * 4096

// RunAU measures. A row is left out if the machine cannot have it.
func RunAU(ctx context.Context, c AUConfig) (r AU, err error) {
	for _, way := range c.Ways {
		if err := r.way(ctx, c, way); err != nil {
			return r, fmt.Errorf("%s: %w", way, err)
		}
	}
	if slices.Contains(c.Ways, Mapped) {
		if err := r.flag(ctx, c); err != nil {
			return r, err
		}
		if err := r.writers(ctx); err != nil {
			return r, err
		}
	}
	if c.Idle > 0 {
		return r, r.idle(ctx, int(c.Idle))
	}
	return r, nil
}

// bound is memory that is bound, and what it is bound to.
type bound struct {
	*place
	mem, there []byte
	exp        *vmmc.Export
	im         *vmmc.Import
	b          *vmmc.Binding
}

func newBound(
	ctx context.Context, way string, size int, opts ...vmmc.BindOption,
) (b *bound, err error) {
	p, err := newPlace(ctx, way)
	if err != nil {
		return nil, err
	}
	b = &bound{place: p}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	near, err := p.near.Alloc(size)
	if err != nil {
		return nil, err
	}
	far, err := p.far.Alloc(size)
	if err != nil {
		return nil, err
	}
	b.mem, b.there = near.Bytes(), far.Bytes()
	var how []vmmc.ExportOption
	if way == Stream {
		how = append(how, vmmc.Unmapped())
	}
	if b.exp, err = p.far.Export(1, b.there, how...); err != nil {
		return nil, err
	}
	if b.im, err = p.near.Import(ctx, p.far.Node(), p.far.PID(), 1); err != nil {
		return nil, err
	}
	b.b, err = b.im.Bind(b.mem, 0, opts...)
	return b, err
}

// modes are the ways to find stores; alias is none of them.
func modes() map[string][]vmmc.BindOption {
	return map[string][]vmmc.BindOption{"watch": nil, "compare": {vmmc.CompareOnly()}}
}

func (r *AU) way(ctx context.Context, c AUConfig, way string) error {
	for _, mode := range []string{"watch", "compare"} {
		for _, size := range c.Sizes {
			for _, hot := range []int{1, 8} {
				if hot*apart > size && hot > 1 {
					continue
				}
				if err := r.sight(ctx, c, way, mode, size, hot); err != nil {
					return err
				}
			}
		}
		if err := r.bulk(ctx, c, way, mode); err != nil {
			return err
		}
	}
	return nil
}
