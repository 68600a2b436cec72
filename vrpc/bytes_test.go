package vrpc_test

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// bytesVers is a version with a procedure that takes and returns bytes, without a limit.
const bytesVers = 3

// octets are opaque data.
type octets []byte

func (o *octets) EncodeXDR(e *xdr.Encoder) { e.Opaque(*o, xdr.Unlimited) }

func (o *octets) DecodeXDR(d *xdr.Decoder) { *o = d.Opaque(*o, xdr.Unlimited) }

type blobFunc = func(context.Context, []byte) ([]byte, error)

// bytesCall is a call of it.
type bytesCall struct {
	octets
	f blobFunc
}

func (c *bytesCall) Do(ctx context.Context) (err error) {
	c.octets, err = c.f(ctx, c.octets)
	return err
}

func bytesService(f blobFunc) *vrpc.Service {
	return &vrpc.Service{
		Name: "BYTES", Program: everyxdr.EVERYPROG, Version: bytesVers,
		Procedures: []vrpc.Procedure{{Number: 1, Name: "BYTES", New: func() vrpc.Call { return &bytesCall{f: f} }}},
	}
}

// callBytes calls it.
func callBytes(ctx context.Context, c vrpc.Caller, b []byte) ([]byte, error) {
	in, out := octets(b), octets(nil)
	err := c.Call(ctx, everyxdr.EVERYPROG, bytesVers, 1, &in, &out)
	return out, err
}

func echo(_ context.Context, b []byte) ([]byte, error) { return b, nil }
