// Notify is a work queue. The first process puts jobs into a worker's memory,
// each with a notification; the worker's handler does the job and puts the
// result into the first process's memory.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

// A job and its result have the same number, and each a slot by it: a value,
// then the number, which is never 0.
const (
	jobsID    = 1
	resultsID = 2
	slot      = 16
	slots     = 8
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	p, err := vmmc.Open(ctx, node.Embed())
	if err != nil {
		return err
	}
	defer p.Close()
	if len(os.Args) > 1 {
		return work(ctx, p, os.Args[1])
	}
	return give(ctx, p, 20)
}

// work does the jobs of process boss until its input ends.
func work(ctx context.Context, p *vmmc.Process, boss string) error {
	pid, err := strconv.ParseUint(boss, 10, 32)
	if err != nil {
		return err
	}
	results, err := p.Import(ctx, p.Node(), vmmc.PID(pid), resultsID)
	if err != nil {
		return err
	}
	mem, err := p.Alloc(slots * slot)
	if err != nil {
		return err
	}
	square := func(n vmmc.Notification) {
		at := n.Offset + 4 - slot // the notification names the message's last word
		x := binary.LittleEndian.Uint64(mem.Bytes()[at:])
		if err := results.Send(ctx, message(x*x, n.Word), at); err != nil {
			log.Println(err)
		}
	}
	if _, err := p.Export(jobsID, mem.Bytes(), vmmc.WithHandler(square)); err != nil {
		return err
	}
	// This process's pid goes into the word after the slots.
	b := binary.LittleEndian.AppendUint32(nil, uint32(p.PID()))
	if err := results.Send(ctx, b, slots*slot); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// give has n jobs done, up to slots of them at a time.
func give(ctx context.Context, p *vmmc.Process, n uint32) error {
	mem, err := p.Alloc(slots*slot + 4)
	if err != nil {
		return err
	}
	exp, err := p.Export(resultsID, mem.Bytes())
	if err != nil {
		return err
	}
	end, err := start(ctx, p)
	if err != nil {
		return err
	}
	defer end()
	w, err := exp.Word(slots * slot)
	if err != nil {
		return err
	}
	worker, err := w.Wait(ctx, 0)
	if err != nil {
		return err
	}
	jobs, err := p.Import(ctx, p.Node(), vmmc.PID(worker), jobsID)
	if err != nil {
		return err
	}
	given := uint32(0)
	for done := uint32(1); done <= n; done++ {
		for ; given < n && given < done-1+slots; given++ {
			job := given + 1
			if err := jobs.SendNotify(ctx, message(uint64(job), job), at(job)); err != nil {
				return err
			}
		}
		number, err := exp.Word(at(done) + slot - 4)
		if err != nil {
			return err
		}
		for v := number.Load(); v != done; {
			if v, err = number.Wait(ctx, v); err != nil {
				return err
			}
		}
		fmt.Printf("job %d: %d\n", done, binary.LittleEndian.Uint64(mem.Bytes()[at(done):]))
	}
	return nil
}

// at is the offset of a job's slot.
func at(job uint32) int { return int(job%slots) * slot }

// message fills a slot.
func message(value uint64, number uint32) []byte {
	b := make([]byte, slot)
	binary.LittleEndian.PutUint64(b, value)
	binary.LittleEndian.PutUint32(b[slot-4:], number)
	return b
}

// start runs this program again as the worker, which ends with end, or when
// this process dies.
func start(ctx context.Context, p *vmmc.Process) (end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self, strconv.FormatUint(uint64(p.PID()), 10))
	c.Env = append(os.Environ(), p.Environ()...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
	}, nil
}
