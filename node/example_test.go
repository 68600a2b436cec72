package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

// A node for the processes of several programs: those that it starts get Environ.
func ExampleStart() {
	dir, err := os.MkdirTemp("", "node")
	check(err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")
	n, err := node.Start(node.WithName("here"), node.WithSocket(socket), node.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	defer n.Close()
	p, err := vmmc.Open(context.Background(), vmmc.WithSocket(n.Socket()))
	check(err)
	defer p.Close()
	_, err = node.Start(node.WithSocket(socket)) // which serves another node already
	fmt.Println(p.Node(), len(n.Environ()), errors.Is(err, vmmc.ErrBadConfig))
	// Output: here 1 true
}

// A process with a daemon of its own, unless VMMC_SOCKET names one.
func ExampleEmbed() {
	p, err := vmmc.Open(context.Background(), node.Embed(node.WithName("mine")))
	check(err)
	fmt.Println(p.PID())
	check(p.Close()) // and the daemon
	// Output: 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
