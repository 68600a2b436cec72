package relay

import (
	"context"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// walk does this rank's part of a route. In a step a rank sends before it awaits
// anything. With two places a pair, a rank that waits for a place never depends on a
// rank that waits for it in turn, so the ranks cannot deadlock.
func walk(ctx context.Context, h *mesh.Mesh, messages []route.Message, words int) (record, error) {
	w := walker{h: h, message: make([]byte, words*vmmc.WordSize())}
	for len(messages) > 0 {
		end := 1
		for end < len(messages) && messages[end].Step == messages[0].Step {
			end++
		}
		if err := w.step(ctx, messages[:end]); err != nil {
			return record{}, err
		}
		messages = messages[end:]
	}
	w.Checked = h.Checked
	return w.record, nil
}

type walker struct {
	record
	h       *mesh.Mesh
	message []byte
}

func (w *walker) step(ctx context.Context, messages []route.Message) error {
	for _, m := range messages {
		if m.From != w.h.Rank {
			continue
		}
		w.h.Fill(m.To, uint32(m.Step), w.message)
		if err := w.h.Pairs[m.To].Send(ctx, w.message); err != nil {
			return err
		}
		w.Sent = append(w.Sent, m)
	}
	for _, m := range messages {
		if m.To != w.h.Rank {
			continue
		}
		pair := w.h.Pairs[m.From]
		place, err := pair.Receive(ctx)
		if err != nil {
			return err
		}
		// The content depends on the step, so what is recorded is what has come.
		if err := w.h.Check(m.From, uint32(m.Step), place[len(place)-len(w.message):]); err != nil {
			return err
		}
		if err := pair.Free(ctx); err != nil {
			return err
		}
		w.Received = append(w.Received, m)
	}
	return nil
}
