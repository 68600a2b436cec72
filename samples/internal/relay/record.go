package relay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// record is what one rank has done, in the order in which it did it.
type record struct {
	Sent     []route.Message `json:"sent"`
	Received []route.Message `json:"received"` // and found right
	Checked  mesh.Count      `json:"checked"`
}

// join makes the route of a run of what its ranks have done: what they sent, step
// by step, in a step each rank's first message before the second ones. All of it
// must have been received, and nothing else.
func join(records []record) ([]route.Message, error) {
	type sent struct {
		route.Message
		place int // in its step, at its sender
	}
	var all []sent
	open := map[route.Message]bool{}
	for _, r := range records {
		step, place := -1, 0
		for _, m := range r.Sent {
			if m.Step != step {
				step, place = m.Step, 0
			}
			all = append(all, sent{m, place})
			place++
			open[m] = true
		}
	}
	if len(open) != len(all) {
		return nil, fmt.Errorf("of %d messages %d were sent twice", len(all), len(all)-len(open))
	}
	for _, r := range records {
		for _, m := range r.Received {
			if !open[m] {
				return nil, fmt.Errorf("message %v of step %d was received and not sent, or received twice", m, m.Step)
			}
			delete(open, m)
		}
	}
	for m := range open {
		return nil, fmt.Errorf("message %v of step %d was sent and not received", m, m.Step)
	}
	slices.SortStableFunc(all, func(a, b sent) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.place, b.place), cmp.Compare(a.From, b.From))
	})
	out := make([]route.Message, len(all))
	for i, m := range all {
		out[i] = m.Message
	}
	return out, nil
}
