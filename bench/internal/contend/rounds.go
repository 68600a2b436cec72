package contend

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// Only keeps the jobs whose names match.
func Only(jobs []Job, match *regexp.Regexp) (kept []Job) {
	for _, j := range jobs {
		if match.MatchString(j.Name) {
			kept = append(kept, j)
		}
	}
	return kept
}

// Round runs each job once, in an order that the seed and the round's number give, so that what the
// machine does beside them meets all alike; those that are beside each other in turn. A job that
// fails is told of, and the others go on.
func Round(ctx context.Context, jobs []Job, run *sample.Run, round int, log io.Writer) error {
	rng := rand.New(rand.NewPCG(run.Seed, uint64(round))) //nolint:gosec // no secret
	for i, at := range order(rng, jobs) {
		j := jobs[at]
		began := time.Now()
		samples, err := one(ctx, j)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fmt.Fprintf(log, "round %d, %d of %d: %s: %d figures in %.1f s\n",
			round, i+1, len(jobs), j.Name, len(samples), time.Since(began).Seconds())
		if err != nil {
			fmt.Fprintln(log, "  failed:", err)
			run.Failures = append(run.Failures, sample.Failure{Round: round, Name: j.Name, Why: err.Error()})
		}
		for _, s := range samples {
			s.Round = round
			run.Samples = append(run.Samples, s)
		}
	}
	return nil
}

// order is a permutation of the jobs in which those that are beside the first of them that is drawn
// follow it.
func order(rng *rand.Rand, jobs []Job) (order []int) {
	drawn := rng.Perm(len(jobs))
	done := map[string]bool{}
	for _, at := range drawn {
		group := jobs[at].Beside
		switch {
		case group == "":
			order = append(order, at)
		case !done[group]:
			done[group] = true
			for _, other := range drawn {
				if jobs[other].Beside == group {
					order = append(order, other)
				}
			}
		}
	}
	return order
}

func one(ctx context.Context, j Job) ([]sample.Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	samples, err := j.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return samples, err
}
