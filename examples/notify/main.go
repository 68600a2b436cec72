// Notify has a second process square numbers. A job is a message with a notification: the worker's
// handler does it, and sends the result into the first process's memory.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

const (
	jobs  = 20
	slots = 8  // jobs under way
	slot  = 16 // bytes: a value, and at the end the job's number, which is never 0
)

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
	worker, input := start(p)
	give(ctx, p)
	check(input.Close())
	check(worker.Wait())
}

// give gives the jobs, each when the one that had its slot before is done.
func give(ctx context.Context, p *vmmc.Process) {
	mem, err := p.Alloc(slots * slot)
	check(err)
	results, err := p.Publish(ctx, "results", mem.Bytes())
	check(err)
	worker, err := p.ImportName(ctx, "jobs") // waits until the worker has published it
	check(err)
	for n := 1; n <= jobs+slots; n++ {
		at := n % slots * slot
		if n > slots {
			number, err := results.Word(at + slot - 4)
			check(err)
			done, err := number.Wait(ctx, uint32(max(n-2*slots, 0))) // the one before in this slot
			check(err)
			fmt.Printf("job %d: %d\n", done, binary.LittleEndian.Uint64(mem.Bytes()[at:]))
		}
		if n <= jobs {
			check(worker.SendNotify(ctx, message(uint64(n), uint32(n)), at))
		}
	}
}

// work does jobs until its input ends.
func work(ctx context.Context, p *vmmc.Process) {
	results, err := p.ImportName(ctx, "results")
	check(err)
	mem, err := p.Alloc(slots * slot)
	check(err)
	square := func(n vmmc.Notification) {
		at := n.Offset + 4 - slot // it names the message's last word
		x := binary.LittleEndian.Uint64(mem.Bytes()[at:])
		check(results.Send(ctx, message(x*x, n.Word), at))
	}
	_, err = p.Publish(ctx, "jobs", mem.Bytes(), vmmc.WithHandler(square))
	check(err)
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
}

// message fills a slot.
func message(value uint64, number uint32) []byte {
	b := make([]byte, slot)
	binary.LittleEndian.PutUint64(b, value)
	binary.LittleEndian.PutUint32(b[slot-4:], number)
	return b
}

// start runs this program again as the worker, on the same node.
func start(p *vmmc.Process) (worker *exec.Cmd, input io.Closer) {
	self, err := os.Executable()
	check(err)
	worker = exec.Command(self, "work") //nolint:noctx // it ends with its input
	worker.Env = append(os.Environ(), p.Environ()...)
	worker.Stderr = os.Stderr
	input, err = worker.StdinPipe()
	check(err)
	check(worker.Start())
	return worker, input
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
