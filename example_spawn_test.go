package vmmc_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vmmc-go/vmmc"
)

// A program spawns itself as a worker, which imports a buffer of its parent and sends it a word.
func ExampleProcess_Spawn() {
	ctx := context.Background()
	p, _, end := pair(ctx)
	defer end()
	mem, err := p.Alloc(64)
	check(err)
	exp, err := p.Export(1, mem.Bytes())
	check(err)
	result, err := exp.Word(0)
	check(err)

	this, err := os.Executable()
	check(err)
	_, err = p.Spawn(ctx, p.Node(), this, "worker") // main calls work
	check(err)
	sum, err := result.Wait(ctx, 0)
	check(err)
	fmt.Println(sum)

	_, err = p.Spawn(ctx, p.Node(), "/no/such/program")
	switch {
	case errors.Is(err, vmmc.ErrOutcomeUnknown):
		fmt.Println("the program may run")
	case errors.Is(err, vmmc.ErrNoSuchSession):
		fmt.Println("this session is not on that node: see vmmc session add")
	case errors.Is(err, vmmc.ErrUnreachable), errors.Is(err, vmmc.ErrNoMem):
		fmt.Println("try another node")
	case errors.Is(err, vmmc.ErrBadArg):
		fmt.Println("that node cannot execute it")
	}
	// Output:
	// 42
	// that node cannot execute it
}

// work is the worker. Its environment names the node.
func work() {
	ctx := context.Background()
	p, err := vmmc.Open(ctx)
	check(err)
	defer p.Close()
	parent, err := p.Parent()
	check(err)
	im, err := p.Import(ctx, parent.Node, parent.PID, 1)
	check(err)
	check(im.Send(ctx, []byte{42, 0, 0, 0}, 0))
}
