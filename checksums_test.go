package vmmc_test

import (
	"bytes"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// Payloads are checked between nodes if one of the two processes asks for it, and only then.
func TestPayloadChecksums(t *testing.T) {
	near, far := nodes(t, "between nodes")
	for _, asks := range []struct{ importer, exporter bool }{{}, {importer: true}, {exporter: true}, {true, true}} {
		process := func(socket string, asks bool) *vmmc.Process {
			opts := []vmmc.Option{vmmc.WithSocket(socket)}
			if asks {
				opts = append(opts, vmmc.WithPayloadChecksums())
			}
			p, err := vmmc.Open(t.Context(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			return p
		}
		a, b := process(near, asks.importer), process(far, asks.exporter)
		mem := alloc(t, b, 1<<20)
		if _, err := b.Export(7, mem); err != nil {
			t.Fatal(err)
		}
		ctx := within(t)
		im, err := a.Import(ctx, b.Node(), b.PID(), 7)
		if err != nil {
			t.Fatal(err)
		}
		src := bytes.Repeat([]byte("some"), len(mem)/4)
		dst := make([]byte, len(mem))
		if err := im.Send(ctx, src, 0); err != nil {
			t.Fatal(err)
		}
		if err := im.Get(ctx, dst, 0); err != nil || !bytes.Equal(src, dst) {
			t.Error("other contents", err)
		}
		want := 0
		if asks.importer || asks.exporter {
			want = 1
		}
		if vmmc.Checked(a) != want || vmmc.Checked(b) != want {
			t.Errorf("asked for by %+v: %d links are checked at the importer, %d at the exporter, want %d", asks, vmmc.Checked(a), vmmc.Checked(b), want)
		}
	}
}
