package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
	"github.com/vmmc-go/vmmc/samples/internal/report"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// ahead is how many messages to one rank may be waiting there.
const ahead = 8

// run is what the command line asks for.
type run struct {
	flags                    command.Flags
	kind                     route.Kind
	nodes, words, iterations int
	file                     string
}

func (r *run) work(c *cobra.Command) func(context.Context, *ranks.Member) error {
	return func(ctx context.Context, m *ranks.Member) error {
		mine, took, err := r.walk(ctx, m)
		if err != nil {
			return err
		}
		if !m.Master() {
			return m.Report(mine)
		}
		res, err := r.gather(ctx, m, mine, took)
		if err != nil {
			return err
		}
		res.Program = c.Name()
		if r.file != "" {
			if err := res.save(r.file); err != nil {
				return err
			}
		}
		if r.flags.JSON {
			return report.JSON(c.OutOrStdout(), []*result{res})
		}
		res.print(c.OutOrStdout())
		return nil
	}
}

func (r *run) walk(ctx context.Context, m *ranks.Member) (record, time.Duration, error) {
	places := mesh.Places(r.words, r.nodes-1, ahead)
	h, err := mesh.Open(ctx, m, mesh.Room(r.words, places), r.flags.Seed)
	if err != nil {
		return record{}, 0, err
	}
	if err := h.Lay(ctx, r.words, places); err != nil {
		return record{}, 0, err
	}
	messages := route.Draw(r.kind, r.flags.Seed, r.nodes, r.iterations)
	if err := h.Barrier(ctx); err != nil {
		return record{}, 0, err
	}
	start := time.Now()
	rec, err := walk(ctx, h, messages, r.words)
	if err != nil {
		return record{}, 0, err
	}
	err = h.Barrier(ctx)
	return rec, time.Since(start), err
}

// gather puts together what all ranks have done, and checks it.
func (r *run) gather(
	ctx context.Context, m *ranks.Member, mine record, took time.Duration,
) (*result, error) {
	texts, err := m.Gather(ctx)
	if err != nil {
		return nil, err
	}
	records := append([]record{mine}, make([]record, len(texts))...)
	for i, t := range texts {
		if err := json.Unmarshal(t, &records[i+1]); err != nil {
			return nil, fmt.Errorf("the result of %s: %w", m.Name(i+1), err)
		}
	}
	res := &result{Ranks: m.Ranks, Seed: r.flags.Seed, Iterations: r.iterations, Kind: r.kind}
	for _, rec := range records {
		res.Checked.Add(rec.Checked)
	}
	if res.Route, err = join(records); err != nil {
		return nil, err
	}
	if err := route.Check(r.kind, r.nodes, r.iterations, res.Route); err != nil {
		return nil, fmt.Errorf("the messages did not go %s: %w", r.kind, err)
	}
	res.Speed = report.NewSpeed(r.words, uint64(len(res.Route)), took)
	return res, nil
}
