package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// stoppedSize is the size of the exports of [exportUntilStopped].
const stoppedSize = 8 << 20

// exportUntilStopped has two exports: "kept" by the stream, and "closed" as its argument says. Its
// importer stops it.
func exportUntilStopped(ctx context.Context, p *vmmc.Process, args ...string) error {
	for _, name := range []string{"kept", "closed"} {
		m, err := p.Alloc(stoppedSize)
		if err != nil {
			return err
		}
		var opts []vmmc.ExportOption
		if name == "kept" || args[0] != "mapped" {
			opts = append(opts, vmmc.Unmapped())
		}
		opts = append(opts, vmmc.WithHandler(func(vmmc.Notification) {}))
		if _, err := p.Publish(ctx, name, m.Bytes(), opts...); err != nil {
			return err
		}
	}
	fmt.Println("exported")
	<-ctx.Done()
	return nil
}

// Close ends the requests of its import though the exporter is stopped, and those alone. When
// Request.Wait has returned, no memory of the request is read or written any more.
func TestCloseEndsRequestsToAStoppedExporter(t *testing.T) {
	for _, w := range []struct {
		name, how string
		nodes     int
	}{{"mapped", "mapped", 1}, {"stream", "stream", 1}, {"two nodes", "stream", 2}} {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			child := vmmctest.Child(t, nodes[0], "exportUntilStopped", w.how)
			if got := child.Line(); got != "exported" {
				t.Fatal(got)
			}
			p := nodes[w.nodes-1].Open(t)
			ctx := within(t)
			imported := func(name string) *vmmc.Import {
				im, err := p.ImportName(ctx, "n1/"+name)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = im.Close() })
				return im
			}
			kept, closed := imported("kept"), imported("closed")
			child.Stop()

			// Requests of both imports in turn: none is over as long as the exporter is stopped. The gets
			// of what is sent before and after hold up sends.
			type request struct {
				vmmc.Request
				what string
				mem  []byte
				get  bool
			}
			begin := func(im *vmmc.Import, what string, n, off int) request {
				t.Helper()
				r := request{what: fmt.Sprintf("%s of %d bytes", what, n), mem: bytes.Repeat([]byte{1}, n)}
				var err error
				switch what {
				case "send":
					r.Request, err = im.SendAsync(ctx, r.mem, off)
				case "notify":
					r.Request, err = im.SendNotifyAsync(ctx, r.mem, off)
				default:
					r.get = true
					r.Request, err = im.GetAsync(ctx, r.mem, off)
				}
				if err != nil {
					t.Fatal(r.what, ": ", err)
				}
				return r
			}
			var stay, end []request
			for range 3 {
				stay = append(stay, begin(kept, "send", 256, 0))
				for _, n := range []int{4, 4 << 10, 256 << 10, stoppedSize / 2} {
					for _, what := range []string{"send", "get", "notify"} {
						end = append(end, begin(closed, what, n, 0))
					}
				}
				stay = append(stay, begin(kept, "get", 256, 0))
			}
			waited := make(chan error, 1)
			go func() { waited <- end[len(end)-1].Wait(ctx) }() // begun before Close
			if err := closed.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-waited; !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("a request that was waited for: %v", err)
			}
			results := make([]string, len(end))
			for i, r := range end {
				err := r.Wait(ctx)
				if !errors.Is(err, vmmc.ErrClosed) {
					t.Fatalf("%s, number %d, of an import that was closed: %v", r.what, i, err)
				}
				results[i] = err.Error()
				for k := range r.mem { // it is the caller's again
					r.mem[k] = 2
				}
			}
			if _, err := closed.SendAsync(ctx, []byte{0, 0, 0, 0}, 0); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("a request after Close: %v", err)
			}
			for _, r := range stay {
				if r.Done() {
					t.Errorf("%s of another import is over, and its exporter is stopped: %v", r.what, r.Status())
				}
			}

			child.Continue()
			for i, r := range stay {
				if err := r.Wait(ctx); err != nil {
					t.Fatalf("%s, number %d, of another import: %v", r.what, i, err)
				}
				if !bytes.Equal(r.mem, bytes.Repeat([]byte{1}, len(r.mem))) {
					t.Errorf("%s has other bytes than were sent before", r.what)
				}
			}
			again := imported("closed")
			got := make([]byte, stoppedSize)
			if err := again.Get(ctx, got, 0); err != nil { // after all that the link has sent
				t.Fatal(err)
			}
			if at := bytes.IndexByte(got, 2); at >= 0 {
				t.Errorf("the exporter has byte %d of what was stored after the requests were over", at)
			}
			for i, r := range end {
				if !bytes.Equal(r.mem, bytes.Repeat([]byte{2}, len(r.mem))) {
					t.Errorf("%s, number %d, has written to memory after it was over", r.what, i)
				}
				if err := r.Status(); err == nil || err.Error() != results[i] {
					t.Errorf("%s, number %d: first %s, and now %v", r.what, i, results[i], err)
				}
			}
			for i := range 100 { // the credits of notifications that were not sent are there
				if err := again.SendNotify(ctx, got[:4], 4*i); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
