package vrpc_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/vmmc-go/vmmc/internal/everyxdr/wide"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// wides counts and makes unions of a long arm that is not there.
type wides struct{}

func (wides) Count(_ context.Context, w wide.Wides) (uint32, error) { return uint32(len(w)), nil }

func (wides) Make(_ context.Context, n uint32) (wide.Wides, error) { return make(wide.Wides, n), nil }

// announced is an array of so many unions without data.
type announced uint32

func (n announced) EncodeXDR(e *xdr.Encoder) {
	e.Uint32(uint32(n))
	for range n {
		e.Uint32(0)
	}
}

// The decoding side, client or server, refuses a short message whose arguments or results take much
// memory, unless its options allow it.
func TestDecodedMemory(t *testing.T) {
	const many = 15000 // 60 KB on the wire, and 76 MB in Go
	small, large := serve(t, echo), serve(t, echo, vrpc.WithMaxDecoded(1<<30))
	for _, s := range []*served{small, large} {
		if err := wide.RegisterWideVers(s, wides{}); err != nil {
			t.Fatal(err)
		}
	}
	everywhere(t, func(t *testing.T, network string) {
		var counted wideCount
		count := func(s *served, n announced) error {
			return s.dial(t, network).Call(t.Context(), wide.WIDE_PROG, wide.WIDE_VERS, wide.WIDEPROC_COUNT, n, &counted)
		}
		if err := count(small, many); !errors.Is(err, vrpc.ErrGarbageArgs) {
			t.Errorf("many arguments: %v, wanted ErrGarbageArgs", err)
		}
		if err := count(small, 10); err != nil || counted != 10 {
			t.Errorf("10 arguments: %d, %v", counted, err)
		}
		if err := count(large, many); err != nil || counted != many {
			t.Errorf("many arguments where the server takes them: %d, %v", counted, err)
		}
		results := func(n uint32, opts ...vrpc.ClientOption) error {
			w, err := wide.NewWideVersClient(small.dial(t, network, opts...)).Make(t.Context(), n)
			if err == nil && uint32(len(w)) != n {
				t.Errorf("%d results, wanted %d", len(w), n)
			}
			return err
		}
		if err := results(many); !errors.Is(err, vrpc.ErrReply) || !errors.Is(err, xdr.ErrMemory) {
			t.Errorf("many results: %v, wanted ErrReply and ErrMemory", err)
		}
		if err := results(10); err != nil {
			t.Errorf("10 results: %v", err)
		}
		if err := results(many, vrpc.WithMaxDecodedReply(1<<30)); err != nil {
			t.Errorf("many results where the client takes them: %v", err)
		}
	})
}

type wideCount uint32

func (n *wideCount) DecodeXDR(d *xdr.Decoder) { *n = wideCount(d.Uint32()) }

// A call of 4 MiB takes a few times 64 MiB of a server at most, whatever it holds.
func TestLongestCallTakesBoundedMemory(t *testing.T) {
	s := serve(t, echo)
	if err := wide.RegisterWideVers(s, wides{}); err != nil {
		t.Fatal(err)
	}
	c := s.dial(t, "tcp")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := c.Call(t.Context(), wide.WIDE_PROG, wide.WIDE_VERS, wide.WIDEPROC_COUNT, announced(1<<20-100), new(wideCount))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, vrpc.ErrGarbageArgs) || took > 512<<20 {
		t.Errorf("%v, and %d MiB were allocated; wanted ErrGarbageArgs and at most 512", err, took>>20)
	}
}

// A server answers no longer by UDP than its option says: the call fails. By TCP the answer comes.
func TestDatagramsAreBounded(t *testing.T) {
	s := serve(t, func(context.Context, []byte) ([]byte, error) { return make([]byte, 1000), nil }, vrpc.WithMaxDatagram(1000))
	if _, err := callBytes(t.Context(), s.dial(t, "udp"), nil); !errors.Is(err, vrpc.ErrSystem) {
		t.Errorf("by UDP: %v, wanted ErrSystem", err)
	}
	if b, err := callBytes(t.Context(), s.dial(t, "tcp"), nil); err != nil || len(b) != 1000 {
		t.Errorf("by TCP: %d bytes, %v", len(b), err)
	}
}
