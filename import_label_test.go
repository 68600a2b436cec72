package vmmc_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Importers get the label that the export was given: by the first import from its process, by later
// ones, of a redirectable export, and by a rejoin that of the new export.
func TestLabel(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			var path []vmmc.ExportOption
			if way == "stream" {
				path = append(path, vmmc.Unmapped())
			}
			longest := bytes.Repeat([]byte{0, 0xff, '"', '\n'}, nodeproto.MaxLabel/4)
			var imports []*vmmc.Import
			var exports []*vmmc.Export
			for i, c := range []struct {
				opts  []vmmc.ExportOption
				label []byte
			}{
				{[]vmmc.ExportOption{vmmc.WithLabel(longest)}, longest},
				{nil, nil},
				{[]vmmc.ExportOption{vmmc.WithLabel([]byte("second"))}, []byte("second")},
				{[]vmmc.ExportOption{vmmc.WithLabel([]byte("third")), vmmc.Redirectable()}, []byte("third")},
				{[]vmmc.ExportOption{vmmc.WithLabel(nil)}, nil},
			} {
				id := uint32(i)
				e, err := b.Export(id, alloc(t, b, 64), append(c.opts, path...)...)
				if err != nil {
					t.Fatal(err)
				}
				im, err := a.Import(within(t), b.Node(), b.PID(), id)
				if err != nil {
					t.Fatal(err)
				}
				if got := im.Label(); !bytes.Equal(got, c.label) {
					t.Errorf("buffer %d has the label %q, want %q", id, got, c.label)
				}
				exports, imports = append(exports, e), append(imports, im)
			}
			im := imports[0]
			im.Label()[0] = 'x'
			if got := im.Label(); !bytes.Equal(got, longest) {
				t.Errorf("a caller has changed the label: %q", got)
			}
			if err := exports[0].Close(); err != nil {
				t.Fatal(err)
			}
			label := []byte("anew")
			opt := vmmc.WithLabel(label)
			label[0] = 'x'
			if _, err := b.Export(0, alloc(t, b, 64), append(path, opt)...); err != nil {
				t.Fatal(err)
			}
			until(t, "the import has ended", func() bool { return im.Send(within(t), word, 0) != nil })
			again, err := im.Rejoin(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if got := again.Label(); string(got) != "anew" {
				t.Errorf("after a rejoin it is %q", got)
			}
		})
	}
}

// Too long a label is refused before anything is exported.
func TestLongLabel(t *testing.T) {
	p := open(t, start(t))
	mem := alloc(t, p, 64)
	if _, err := p.Export(1, mem, vmmc.WithLabel(make([]byte, nodeproto.MaxLabel+1))); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("%v, want %v", err, vmmc.ErrBadArg)
	}
	if _, err := p.Export(1, mem); err != nil {
		t.Error(err)
	}
}

// A daemon that relays a label which no exporter may give breaks the protocol, and the grant is
// given back. One that knows no labels gives an empty one.
func TestLabelFromDaemon(t *testing.T) {
	w := newFakeDaemon(t)
	released := make(chan struct{}, 1)
	w.answers(func(m nodeproto.Method) any {
		switch m {
		case nodeproto.Import:
			return nodeproto.Grant{
				Exporter: nodeproto.ProcessID{Node: "b", PID: 2, Incarnation: 6}, Handle: 1, Size: size,
				Rights: nodeproto.MayRead, Label: make([]byte, nodeproto.MaxLabel+1),
			}
		case nodeproto.Release:
			released <- struct{}{}
		}
		return nodeproto.Empty{}
	})
	var far vmmc.NodeID
	if err := far.UnmarshalText([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.p.Import(within(t), far, 2, 7); !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("%v, want %v", err, vmmc.ErrProtocol)
	}
	<-released
}
