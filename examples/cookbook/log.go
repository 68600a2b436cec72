package cookbook

import (
	"bytes"
	"context"
	"fmt"
	"structs"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/view"
)

// Record is one of the log. Its number is stored last: a replica that sees it has the record.
type Record struct {
	_      structs.HostLayout
	Text   [60]byte
	Number uint32 // from 1 on
}

// Replica keeps a copy of the log, and prints it as it grows.
func Replica(ctx context.Context, p *vmmc.Process, name string) {
	records, err := view.Export[Record](p, 1, 1000, vmmc.WithName(name))
	check(err)
	fmt.Println("ready")
	for i := range records.Slice() {
		number, err := records.LastWord(i)
		check(err)
		_, err = number.Wait(ctx, 0)
		check(err)
		r := &records.Slice()[i]
		fmt.Printf("%d: %s\n", r.Number, bytes.TrimRight(r.Text[:], "\x00"))
	}
}

// Append returns when most of the replicas have the record. It does not wait for one that has died.
func Append(ctx context.Context, replicas []*view.Remote[Record], n uint32, text string) error {
	r := Record{Number: n}
	copy(r.Text[:], text)
	for _, to := range replicas {
		_ = to.Store(ctx, int(n-1), r) // its Fence fails, too
	}
	have := 0
	for _, to := range replicas {
		if to.Import().Fence(ctx) == nil {
			have++
		}
	}
	if have <= len(replicas)/2 {
		return fmt.Errorf("record %d is at %d of %d replicas", n, have, len(replicas))
	}
	return nil
}
