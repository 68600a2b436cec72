package xdr_test

import (
	"fmt"

	"github.com/vmmc-go/vmmc/xdr"
)

type point struct{ X, Y int32 }

func (p *point) EncodeXDR(e *xdr.Encoder) {
	e.Int32(p.X)
	e.Int32(p.Y)
}

func (p *point) DecodeXDR(d *xdr.Decoder) {
	p.X, p.Y = d.Int32(), d.Int32()
}

func ExampleMarshal() {
	b, err := xdr.Marshal(&point{1, -1})
	fmt.Printf("%x %v\n", b, err)

	var p point
	fmt.Println(xdr.Unmarshal(b, &p), p)
	fmt.Println(xdr.Unmarshal(b[:6], &p))
	// Output:
	// 00000001ffffffff <nil>
	// <nil> {1 -1}
	// xdr: decode at byte 4: the input ends too early: 4 bytes wanted, 2 left
}

// An Encoder in a buffer of a fixed size allocates nothing.
func ExampleEncoder_ResetFixed() {
	buffer := make([]byte, 0, 16)
	var e xdr.Encoder
	e.ResetFixed(buffer)
	e.String("hello", 255)
	fmt.Printf("%q %v\n", e.Bytes(), e.Err())
	e.Uint64(1)
	fmt.Println(e.Err())
	// Output:
	// "\x00\x00\x00\x05hello\x00\x00\x00" <nil>
	// xdr: encode at byte 12: no space left in the buffer: 8 bytes wanted, 4 left
}

// Large data is not copied, but handed on with what stands around it, for a call that writes
// several slices.
func ExampleEncoder_Gather() {
	var e xdr.Encoder
	e.Gather(4096)
	e.Uint32(1)
	e.Opaque(make([]byte, 10001), xdr.Unlimited)
	e.Uint32(2)
	for _, p := range e.Pieces(nil) {
		fmt.Println(len(p))
	}
	// Output:
	// 8
	// 10001
	// 7
}
