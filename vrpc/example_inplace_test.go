package vrpc_test

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// A procedure that keeps nothing of its arguments gets them without a copy, here the data of SUM.
func ExampleServer_InPlace() {
	ctx := context.Background()
	s, address, end := listen(repeat)
	defer end()
	check(s.InPlace().Register(&vrpc.Service{
		Name: "SUMS_1", Program: 0x20000101, Version: 1,
		Procedures: []vrpc.Procedure{{
			Number: 1, Name: "SUM", New: func() vrpc.Call { return new(sumCall) },
		}},
	}))
	c, err := vrpc.Dial(ctx, "tcp", address)
	check(err)
	defer c.Close()

	var sum number
	err = c.Call(ctx, 0x20000101, 1, 1, data{1, 2, 3}, &sum)
	fmt.Println(sum, err)
	// Output: 6 <nil>
}

// sumCall is one call of SUM. Its data are bytes of the request until the reply is encoded.
type sumCall struct {
	data data
	sum  number
}

func (c *sumCall) DecodeXDR(d *xdr.Decoder) { c.data = d.Opaque(c.data, 1<<20) }
func (c *sumCall) EncodeXDR(e *xdr.Encoder) { e.Uint32(uint32(c.sum)) }

func (c *sumCall) Do(context.Context) error {
	c.sum = 0 // the last call's
	for _, b := range c.data {
		c.sum += number(b)
	}
	return nil
}

// data is the argument of SUM.
type data []byte

func (b data) EncodeXDR(e *xdr.Encoder) { e.Opaque(b, 1<<20) }

// number is its result.
type number uint32

func (n *number) DecodeXDR(d *xdr.Decoder) { *n = number(d.Uint32()) }
