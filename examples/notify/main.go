// Notify has a second process square numbers. Jobs go to it by one queue, results back by another.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/queue"
)

const jobs = 20

// result is a job and what came of it.
type result struct{ Job, Square uint64 }

func main() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	p, err := vmmc.Open(ctx, node.Embed())
	check(err)
	defer p.Close()
	if len(os.Args) > 1 {
		work(ctx, p)
		return
	}
	results, err := queue.Listen[result](ctx, p, "results")
	check(err)
	self, err := os.Executable()
	check(err)
	worker := exec.CommandContext(ctx, self, "work") // on the same node
	worker.Env, worker.Stderr = append(os.Environ(), p.Environ()...), os.Stderr
	check(worker.Start())
	todo, err := queue.Dial[uint64](ctx, p, "jobs") // waits until the worker listens
	check(err)
	for n := range uint64(jobs) {
		check(todo.Put(ctx, n+1))
	}
	for range jobs {
		r, err := results.Get(ctx)
		check(err)
		fmt.Printf("job %d: %d\n", r.Job, r.Square)
	}
	check(todo.Close(ctx))
	check(worker.Wait())
	check(results.Close())
}

// work does the jobs.
func work(ctx context.Context, p *vmmc.Process) {
	todo, err := queue.Listen[uint64](ctx, p, "jobs")
	check(err)
	results, err := queue.Dial[result](ctx, p, "results")
	check(err)
	for range jobs {
		n, err := todo.Get(ctx)
		check(err)
		check(results.Put(ctx, result{n, n * n}))
	}
	check(results.Close(ctx)) // waits until all are taken
	check(todo.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
