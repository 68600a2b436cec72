package vmmc_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
)

func init() {
	testutil.RegisterRole("short links", func() int {
		if err := shortLinks(); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	})
}

const (
	// manyLinks is how many links begin and end. Each of them leaves eight regions behind, in four
	// mappings.
	manyLinks = 3000

	// fewMappings is what there is at any time, where a collection takes long. It is about 3000
	// otherwise.
	fewMappings = 9000
)

// Links that have ended give their address space back, also in a program that makes no collection
// itself: a process can have about 65,000 mappings.
func TestShortLinksWithoutCollections(t *testing.T) {
	if out, err := testutil.Command(t, "short links").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func shortLinks() error {
	debug.SetGCPercent(-1)
	n, err := node.Start()
	if err != nil {
		return err
	}
	defer n.Close()
	ctx, stop := context.WithTimeout(context.Background(), 10*bound)
	defer stop()
	p, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Alloc(size)
	if err != nil {
		return err
	}
	if _, err := p.Export(1, m.Bytes()); err != nil {
		return err
	}
	goroutines := runtime.NumGoroutine()
	for i := range manyLinks {
		if err := shortLink(ctx, n.Socket(), p); err != nil {
			return fmt.Errorf("link %d: %w", i, err)
		}
		if i%50 != 0 {
			continue
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			return err
		}
		if n := bytes.Count(maps, []byte("\n")); n > fewMappings {
			return fmt.Errorf("there are %d mappings after %d links", n, i)
		}
		if more := runtime.NumGoroutine() - goroutines; more > 50 {
			return fmt.Errorf("there are %d goroutines more after %d links", more, i)
		}
	}
	return nil
}

// shortLink has a process import from p, send a message and close.
func shortLink(ctx context.Context, socket string, p *vmmc.Process) error {
	q, err := vmmc.Open(ctx, vmmc.WithSocket(socket))
	if err != nil {
		return err
	}
	defer q.Close()
	im, err := q.Import(ctx, p.Node(), p.PID(), 1)
	if err != nil {
		return err
	}
	if err := im.Send(ctx, word, 0); err != nil {
		return err
	}
	return q.Close()
}
