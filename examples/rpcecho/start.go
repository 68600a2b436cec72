package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
)

const name = "rpcecho" // by which clients on this node find the server

// child serves by each transport, says where, and stays until its input ends.
func child(ctx context.Context) error {
	p, err := vmmc.Open(ctx, node.Embed())
	if err != nil {
		return err
	}
	defer p.Close()
	s, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer s.Close()
	s.serving.Go(func() { _ = s.ServeVMMC(p, vrpc.Meeting, vmmc.WithName(name)) })
	fmt.Println(s.tcp.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// started is a child.
type started struct {
	address string         // of TCP and UDP
	process vmmc.ProcessID // for remote memory
	end     func()
}

// start runs this program again as a server, on p's node. The server ends with end, or when this
// process dies. A server in the same process would share its processors' time and its runtime with
// the client: calls take many times as long then.
func start(ctx context.Context, p *vmmc.Process) (*started, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self, "child")
	c.Env = append(os.Environ(), p.Environ()...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	s := &started{end: func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
		}
	}}
	if _, err := fmt.Fscan(out, &s.address); err != nil {
		s.end()
		return nil, fmt.Errorf("the server did not say where it is: %w", err)
	}
	im, err := p.ImportName(ctx, name) // waits until the server has published it
	if err != nil {
		s.end()
		return nil, err
	}
	s.process = im.Exporter()
	if err := im.Close(); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}
