package queue_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/queue"
)

// Job is what the examples put into queues.
type Job struct {
	ID   uint64
	Size uint32
	Kind uint32
}

// A consumer works on the jobs of a producer, which waits until all are taken.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	jobs, err := queue.Listen[Job](ctx, a, "jobs")
	check(err)
	defer jobs.Close()

	done := make(chan error)
	go func() { // mostly another program
		q, err := queue.Dial[Job](ctx, b, "jobs")
		check(err)
		for i := range 3 {
			check(q.Put(ctx, Job{ID: uint64(i), Size: 10}))
		}
		done <- q.Close(ctx)
	}()

	n := 0
	for job, err := range jobs.All(ctx) {
		check(err)
		fmt.Println(job.ID, job.Size)
		if n++; n == 3 {
			break
		}
	}
	check(<-done)
	// Output:
	// 0 10
	// 1 10
	// 2 10
}

// Several processes take the jobs of a queue. What one of them has not finished when it ends goes to
// another one.
func ExampleShare() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	jobs, err := queue.Listen[Job](ctx, a, "jobs", queue.Producers(1))
	check(err)
	defer jobs.Close()
	shared, err := queue.Share(ctx, jobs, "workers")
	check(err)
	defer shared.Close()

	q, err := queue.Dial[Job](ctx, b, "jobs")
	check(err)
	_, err = q.PutAll(ctx, []Job{{ID: 1}, {ID: 2}, {ID: 3}})
	check(err)

	first, err := queue.DialTaker[Job](ctx, b, "workers") // mostly another program
	check(err)
	job, err := first.Take(ctx)
	check(err)
	fmt.Println("job", job.Value.ID, "attempt", job.Attempt)
	check(first.Close()) // it has not finished the job

	second, err := queue.DialTaker[Job](ctx, b, "workers")
	check(err)
	defer second.Close()
	for shared.Unfinished() > 0 || q.Pending() > 0 {
		job, err := second.Take(ctx)
		check(err)
		fmt.Println("job", job.Value.ID, "attempt", job.Attempt)
		check(second.Finish(ctx))
	}
	check(q.Close(ctx))

	// Unordered output:
	// job 1 attempt 1
	// job 1 attempt 2
	// job 2 attempt 1
	// job 3 attempt 1
}

// Values go in batches, as many as there is room for.
func ExampleProducer() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	jobs, err := queue.Listen[Job](ctx, a, "jobs", queue.Slots(4))
	check(err)
	defer jobs.Close()
	q, err := queue.Dial[Job](ctx, b, "jobs")
	check(err)

	n, err := q.PutAll(ctx, []Job{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}})
	check(err)
	ok, err := q.TryPut(Job{ID: 5})
	check(err)
	fmt.Println(n, ok, q.Pending())

	got := make([]Job, 10)
	n, err = jobs.GetSome(ctx, got)
	check(err)
	fmt.Println(n, got[:n], q.Pending())
	check(q.Close(ctx))
	// Output:
	// 4 false 4
	// 4 [{1 0 0} {2 0 0} {3 0 0} {4 0 0}] 0
}

// Records of different lengths.
func ExampleListenBytes() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	lines, err := queue.ListenBytes(ctx, a, "lines", 1000)
	check(err)
	defer lines.Close()
	q, err := queue.DialBytes(ctx, b, "lines")
	check(err)

	check(q.Put(ctx, []byte("one")))
	n, err := q.PutAll(ctx, [][]byte{[]byte("a longer one"), nil})
	check(err)
	fmt.Println(n)
	buf := make([]byte, 1000)
	for range 3 {
		line, err := lines.Get(ctx, buf) // lies in buf
		check(err)
		fmt.Printf("%q\n", line)
	}
	check(q.Close(ctx))
	// Output:
	// 2
	// "one"
	// "a longer one"
	// ""
}

// Records that are taken by batches, one by one, and in a loop that ends with the queue.
func ExampleByteConsumer() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	lines, err := queue.ListenBytes(ctx, a, "lines", 100, queue.Producers(1))
	check(err)
	defer lines.Close()
	q, err := queue.DialBytes(ctx, b, "lines")
	check(err)
	_, err = q.PutAll(ctx, [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")})
	check(err)

	some := make([][]byte, 2)
	n, err := lines.GetSome(ctx, some)
	check(err)
	fmt.Printf("%q\n", some[:n])
	line, ok, err := lines.TryGet(nil)
	check(err)
	fmt.Printf("%q %t\n", line, ok)
	closed := make(chan error, 1)
	go func() { closed <- q.Close(ctx) }()
	for line, err := range lines.All(ctx) {
		var lost *queue.LostError
		if errors.As(err, &lost) {
			lines.Replace(lost) // another producer may dial
			continue
		}
		check(err)
		fmt.Printf("%q\n", line)
	}
	check(<-closed)
	// Output:
	// ["a" "b"]
	// "c" true
	// "d"
}

// Records are put while there is room for them.
func ExampleByteProducer() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	lines, err := queue.ListenBytes(ctx, a, "lines", 56, queue.Slots(4))
	check(err)
	defer lines.Close()
	q, err := queue.DialBytes(ctx, b, "lines")
	check(err)
	n := 0
	for {
		ok, err := q.TryPut([]byte("a record"))
		check(err)
		if !ok {
			break
		}
		n++
	}
	fmt.Println(n, q.Pending(), q.MaxLen())
	for range n {
		_, err := lines.Get(ctx, nil)
		check(err)
	}
	check(q.Close(ctx))
	fmt.Println(q.Pending())
	// Output:
	// 4 4 56
	// 0
}

// A consumer that polls, and one that is closed.
func ExampleConsumer() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	jobs, err := queue.Listen[Job](ctx, a, "jobs")
	check(err)
	q, err := queue.Dial[Job](ctx, b, "jobs")
	check(err)

	_, ok, err := jobs.TryGet()
	check(err)
	fmt.Println(ok)
	check(q.Put(ctx, Job{ID: 1}))
	job, err := jobs.Get(ctx)
	check(err)
	fmt.Println(job.ID)

	check(jobs.Close())
	fmt.Println(errors.Is(q.Put(ctx, Job{ID: 2}), vmmc.ErrRevoked))
	fmt.Println(q.Close(ctx), q.Pending())
	// Output:
	// false
	// 1
	// true
	// <nil> 0
}

// Options of a queue for one producer.
func ExampleOption() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	opts := []queue.Option{
		queue.Slots(64),
		queue.MaxProducers(8),
		queue.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{b.ID()}}),
	}
	jobs, err := queue.Listen[Job](ctx, a, "jobs", opts...)
	check(err)
	defer jobs.Close()

	_, err = queue.Dial[Job](ctx, a, "jobs")
	fmt.Println(errors.Is(err, vmmc.ErrNoRights))
	q, err := queue.Dial[Job](ctx, b, "jobs")
	check(err)
	check(q.Close(ctx))
	// Output: true
}

// A queue for a number of producers ends when all have been closed. One that was lost is told, and
// may be replaced.
func ExampleProducers() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	jobs, err := queue.Listen[Job](ctx, a, "jobs", queue.Producers(1))
	check(err)
	defer jobs.Close()

	q, err := queue.Dial[Job](ctx, b, "jobs")
	check(err)
	check(q.Put(ctx, Job{ID: 1}))
	check(b.Close()) // as if it had died
	job, err := jobs.Get(ctx)
	check(err)
	fmt.Println(job.ID)
	_, err = jobs.Get(ctx)
	var lost *queue.LostError
	fmt.Println(errors.As(err, &lost), lost.Queue, lost.Producer == b.ID(), lost.Values, lost.Err != nil)
	fmt.Println(jobs.Replace(lost))

	done := make(chan error)
	go func() {
		q, err := queue.Dial[Job](ctx, a, "jobs")
		check(err)
		done <- q.Close(ctx)
	}()
	_, err = jobs.Get(ctx)
	fmt.Println(errors.Is(err, queue.ErrEnd), <-done)
	// Output:
	// 1
	// true jobs true 1 true
	// true
	// true <nil>
}

// processes are two of a node of their own.
func processes(ctx context.Context) (a, b *vmmc.Process, end func()) {
	n, err := node.Start()
	check(err)
	a, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	b, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	return a, b, func() {
		a.Close()
		b.Close()
		n.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
