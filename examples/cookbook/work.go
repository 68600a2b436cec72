package cookbook

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/queue"
)

// Job is what producers put into the queue.
type Job struct{ Number, Size uint64 }

// Work does the jobs of all producers.
func Work(ctx context.Context, p *vmmc.Process) {
	jobs, err := queue.Listen[Job](ctx, p, "jobs")
	check(err)
	fmt.Println("ready")
	for job, err := range jobs.All(ctx) {
		check(err)
		fmt.Printf("job %d of size %d\n", job.Number, job.Size)
	}
}

// Submit puts jobs, and returns when all are taken. If the worker dies, the jobs that it is not
// known to have taken go to the next one.
func Submit(ctx context.Context, p *vmmc.Process, jobs []Job) {
	for len(jobs) > 0 {
		q, err := queue.Dial[Job](ctx, p, "n1/jobs") // waits for a worker
		if isGone(err) {
			continue
		}
		check(err)
		n, err := q.PutAll(ctx, jobs) // waits while the queue is full
		if err = errors.Join(err, q.Close(ctx)); !isGone(err) {
			check(err)
		}
		jobs = jobs[n-q.Pending():]
	}
}

func isGone(err error) bool {
	return errors.Is(err, vmmc.ErrPeerGone) || errors.Is(err, vmmc.ErrNoSuchProcess)
}
