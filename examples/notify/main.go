// Notify has a second process send numbers. Each is a message with a notification, which runs a
// handler in the first process.
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
)

const numbers = 20

func main() {
	ctx := context.Background()
	p, err := vmmc.Open(ctx, node.Embed())
	check(err)
	defer p.Close()
	if len(os.Args) > 1 { // the second process
		im, err := p.ImportName(ctx, "number")
		check(err)
		for n := range uint32(numbers) {
			check(im.SendNotify(ctx, binary.NativeEndian.AppendUint32(nil, n+1), 0))
		}
		return
	}
	mem, err := p.Alloc(4)
	check(err)
	done := make(chan struct{})
	_, err = p.Publish(ctx, "number", mem.Bytes(), vmmc.WithHandler(func(n vmmc.Notification) {
		if fmt.Printf("%d squared is %d\n", n.Word, n.Word*n.Word); n.Word == numbers {
			close(done)
		}
	}))
	check(err)
	second := exec.CommandContext(ctx, os.Args[0], "second") // on the same node
	second.Env, second.Stderr = append(os.Environ(), p.Environ()...), os.Stderr
	check(second.Run())
	<-done
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
