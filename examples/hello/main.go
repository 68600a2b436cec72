// Hello writes into the memory of another process. It starts itself a second
// time; the second process puts a greeting into the first one's memory.
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
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	p, err := vmmc.Open(ctx, node.Embed())
	check(err)
	defer p.Close()

	if len(os.Args) == 1 { // the first process offers 32 bytes of its memory
		mem, err := p.Alloc(32)
		check(err)
		exp, err := p.Publish(ctx, "greeting", mem.Bytes())
		check(err)
		last, err := exp.Word(28)
		check(err)
		second := start(p)
		_, err = last.Wait(ctx, 0) // no receive call: it looks at its own memory
		check(err)
		fmt.Printf("in my memory: %s\n", mem.Bytes())
		check(second.Wait())
	} else { // the second process writes there
		im, err := p.ImportName(ctx, "greeting")
		check(err)
		check(im.Send(ctx, []byte("hello from the other process :-)"), 0))
	}
}

// start runs this program again, on p's node.
func start(p *vmmc.Process) *exec.Cmd {
	self, err := os.Executable()
	check(err)
	c := exec.Command(self, "second") //nolint:noctx // it ends by itself
	c.Env = append(os.Environ(), p.Environ()...)
	c.Stderr = os.Stderr
	check(c.Start())
	return c
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
