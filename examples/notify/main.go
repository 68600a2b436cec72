// Notify has a second process square numbers. Each number is a message with a notification, which
// runs a handler there; the handler stores the square in the first process's memory.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"os/exec"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/view"
)

const numbers = 20

func main() {
	ctx := context.Background()
	p, err := vmmc.Open(ctx, node.Embed())
	check(err)
	defer p.Close()
	if len(os.Args) > 1 {
		square(ctx, p)
		return
	}
	squares, err := view.Export[uint64](p, 1, numbers+1, vmmc.WithName("squares"))
	check(err)
	second := exec.CommandContext(ctx, os.Args[0], "square") // on the same node
	second.Env, second.Stderr = append(os.Environ(), p.Environ()...), os.Stderr
	check(second.Start())
	todo, err := p.ImportName(ctx, "numbers") // waits until the second process has published it
	check(err)
	for n := range uint32(numbers) {
		check(todo.SendNotify(ctx, binary.NativeEndian.AppendUint32(nil, n+1), 0))
	}
	for n := 1; n <= numbers; n++ {
		s, err := view.Wait(ctx, squares, n, 0)
		check(err)
		fmt.Printf("%d squared is %d\n", n, s)
	}
	check(squares.Close()) // the second process ends with it
	check(second.Wait())
}

// square squares the numbers that it is notified of.
func square(ctx context.Context, p *vmmc.Process) {
	im, err := p.ImportName(ctx, "squares")
	check(err)
	squares, err := view.RemoteOf[uint64](im)
	check(err)
	mem, err := p.Alloc(4)
	check(err)
	_, err = p.Publish(ctx, "numbers", mem.Bytes(), vmmc.WithHandler(func(n vmmc.Notification) {
		check(squares.Store(ctx, int(n.Word), uint64(n.Word)*uint64(n.Word)))
	}))
	check(err)
	<-im.Done()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
