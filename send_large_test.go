package vmmc_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// The paper's system had tables for 8 MB: in one message, and in all imports of
// a process. Here neither has a bound.
func TestBeyondEightMegabytes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 128 MiB of memory; run without -short")
	}
	const large = 64 << 20
	src := make([]byte, large)
	for i := 0; i < large; i += 8 {
		binary.LittleEndian.PutUint64(src[i:], uint64(i)*0x9e3779b97f4a7c15)
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			m, err := b.Alloc(large)
			if err != nil {
				t.Fatal(err)
			}
			var opts []vmmc.ExportOption
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			e, err := b.Export(1, m.Bytes(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			var ims []*vmmc.Import
			for sum := 0; sum <= 256<<20; sum += large { // the same memory each time
				im, err := a.Import(t.Context(), b.Node(), b.PID(), 1)
				if err != nil {
					t.Fatalf("with %d bytes imported: %v", sum, err)
				}
				ims = append(ims, im)
			}
			if err := ims[0].Send(t.Context(), src, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(e.Bytes(), src) {
				t.Fatal("what has arrived is not what was sent")
			}
			clear(src)
			last := ims[len(ims)-1]
			if err := last.Get(t.Context(), src, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(src, e.Bytes()) {
				t.Fatal("what was got is not what is there")
			}
			for i, im := range ims { // each is there to its end
				if err := im.Send(t.Context(), src[4*i:4*i+4], large-4); err != nil {
					t.Fatal(err)
				}
				if err := im.Get(t.Context(), src[large-4:], large-4); err != nil || !bytes.Equal(src[large-4:], src[4*i:4*i+4]) {
					t.Errorf("the end of import %d: %v", i, err)
				}
			}
			closed(t, e)
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
