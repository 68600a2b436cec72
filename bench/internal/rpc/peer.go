package rpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Peer is gRPC-Go as "vmmc bench rpc --peer" runs it: "serve PATH HOST" and "call ADDRESS". On one
// machine it is on a unix socket, of a name without a file, elsewhere on TCP.
func Peer(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "serve":
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
		if args[1] == "local" {
			return Serve(ctx, GRPC, "unix", fmt.Sprintf("@vmmcbench-%d", os.Getpid()), out)
		}
		return Serve(ctx, GRPC, "tcp", args[2], out)
	case len(args) == 2 && args[0] == "call":
		return callPeer(ctx, args[1], in, out)
	}
	return fmt.Errorf("a peer is called serve PATH HOST or call ADDRESS, not %q", args)
}

// callPeer makes as many calls as each line says, and prints their times.
func callPeer(ctx context.Context, addr string, in io.Reader, out io.Writer) (err error) {
	network := "tcp"
	if strings.HasPrefix(addr, "@") {
		network = "unix"
	}
	c, err := dialGRPC(ctx, network, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	w := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of calls", lines.Text())
		}
		took := make([]int64, n)
		for i := range took {
			start := time.Now()
			if _, err := c.Echo(ctx, nil); err != nil {
				return err
			}
			took[i] = time.Since(start).Nanoseconds()
		}
		if err := w.Encode(took); err != nil {
			return err
		}
	}
	return nil
}
