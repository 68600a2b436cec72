// Bench measures vmmc beside what else there is: UCX, libfabric, MPICH, Open MPI, gRPC-Go, net/rpc,
// and C programs without a library. It installs and builds them, runs all in turns, and writes
// results/*.json and ../docs/performance.md, of one run and nothing else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vmmc-go/vmmc/bench/internal/rpc"
)

const usage = `Usage: go run . [flags]          measure, and write results/ID.json and ../docs/performance.md
       go run . --report [--run ID]   write the document of a run, the last one by default

`

// errUsage ends the program with status 2.
var errUsage = errors.New("called wrongly")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("not supported on %s: what is measured needs Linux", runtime.GOOS)
	}
	// The far and the near end of remote procedure calls are this program again.
	if len(args) >= 4 && args[0] == "rpc-serve" {
		return rpc.Serve(ctx, args[1], args[2], args[3], os.Stdout)
	}
	if len(args) >= 4 && args[0] == "rpc-call" {
		return rpc.Call(ctx, args[1], args[2], args[3], args[4:], os.Stdout)
	}
	if len(args) >= 1 && args[0] == "rpc-peer" {
		return rpc.Peer(ctx, args[1:], os.Stdin, os.Stdout)
	}
	var o options
	if err := o.parse(args); err != nil {
		return err
	}
	if !o.report {
		if err := o.measure(ctx); err != nil {
			return err
		}
	}
	if o.portion {
		return nil
	}
	return o.write()
}
