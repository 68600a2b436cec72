package xdr_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/vmmc-go/vmmc/xdr"
)

// The representation of each basic type: all are multiples of four bytes.
func ExampleEncoder() {
	half := xdr.Quadruple{0x3f, 0xfe} // 0.5: Go has no such numbers
	for _, v := range []struct {
		name   string
		encode func(e *xdr.Encoder)
	}{
		{"bool", func(e *xdr.Encoder) { e.Bool(true) }},
		{"char", func(e *xdr.Encoder) { e.Int8(-1) }},
		{"unsigned char", func(e *xdr.Encoder) { e.Uint8(255) }},
		{"short", func(e *xdr.Encoder) { e.Int16(-1) }},
		{"unsigned short", func(e *xdr.Encoder) { e.Uint16(65535) }},
		{"int, enum", func(e *xdr.Encoder) { e.Int32(-1) }},
		{"unsigned int", func(e *xdr.Encoder) { e.Uint32(1) }},
		{"hyper", func(e *xdr.Encoder) { e.Int64(-1) }},
		{"unsigned hyper", func(e *xdr.Encoder) { e.Uint64(1) }},
		{"float", func(e *xdr.Encoder) { e.Float32(0.5) }},
		{"double", func(e *xdr.Encoder) { e.Float64(0.5) }},
		{"quadruple", func(e *xdr.Encoder) { e.Quadruple(half) }},
		{"string<>", func(e *xdr.Encoder) { e.String("hello", xdr.Unlimited) }},
		{"opaque<8>", func(e *xdr.Encoder) { e.Opaque([]byte{1, 2, 3}, 8) }},
		{"opaque[3]", func(e *xdr.Encoder) { e.FixedOpaque([]byte{1, 2, 3}) }},
	} {
		var e xdr.Encoder
		v.encode(&e)
		fmt.Printf("%-14s % x\n", v.name, e.Bytes())
	}
	// Output:
	// bool           00 00 00 01
	// char           ff ff ff ff
	// unsigned char  00 00 00 ff
	// short          ff ff ff ff
	// unsigned short 00 00 ff ff
	// int, enum      ff ff ff ff
	// unsigned int   00 00 00 01
	// hyper          ff ff ff ff ff ff ff ff
	// unsigned hyper 00 00 00 00 00 00 00 01
	// float          3f 00 00 00
	// double         3f e0 00 00 00 00 00 00
	// quadruple      3f fe 00 00 00 00 00 00 00 00 00 00 00 00 00 00
	// string<>       00 00 00 05 68 65 6c 6c 6f 00 00 00
	// opaque<8>      00 00 00 03 01 02 03 00
	// opaque[3]      01 02 03 00
}

// A Decoder reads zeros after an error: it is enough to ask for the error at the end.
func ExampleDecoder() {
	var e xdr.Encoder
	e.Bool(true)
	e.Int8(-8)
	e.Uint8(8)
	e.Int16(-16)
	e.Uint16(16)
	e.Uint32(32)
	e.Int64(-64)
	e.Uint64(64)
	e.Float32(0.25)
	e.Float64(0.5)
	e.Quadruple(xdr.Quadruple{0x3f, 0xff}) // 1
	e.Opaque([]byte("data"), 16)
	e.FixedOpaque([]byte("four"))

	d := xdr.NewDecoder(e.Bytes(), xdr.Copy)
	fmt.Println(d.Bool(), d.Int8(), d.Uint8(), d.Int16(), d.Uint16())
	fmt.Println(d.Uint32(), d.Int64(), d.Uint64())
	fmt.Printf("%v %v %x\n", d.Float32(), d.Float64(), d.Quadruple())
	fixed := make([]byte, 4)
	data := d.Opaque(nil, 16)
	d.FixedOpaque(fixed)
	fmt.Printf("%s %s %v\n", data, fixed, d.Err())
	fmt.Println(d.Uint32(), d.Err())
	// Output:
	// true -8 8 -16 16
	// 32 -64 64
	// 0.25 0.5 3fff0000000000000000000000000000
	// data four <nil>
	// 0 xdr: decode at byte 80: the input ends too early: 4 bytes wanted, 0 left
}

// A program that reads a stream of messages decodes what is complete, and keeps the rest. One
// Encoder and one Decoder serve for all messages.
func ExampleDecoder_Rest() {
	var stream []byte
	var e xdr.Encoder
	for i := range byte(3) {
		e.Reset(stream)
		if b := e.Next(8); b != nil { // two words at once
			copy(b, []byte{0, 0, 0, 7, 0, 0, 0, i})
		}
		e.String("message", 100)
		stream = e.Bytes()
	}
	fmt.Println(e.Size(), e.OK())

	r := bytes.NewReader(stream)
	var input []byte
	var d xdr.Decoder
	for chunk := make([]byte, 25); ; {
		n, err := r.Read(chunk)
		if err == io.EOF {
			break
		}
		input = append(input, chunk[:n]...)
		for {
			d.Reset(input, xdr.Copy)
			header, text := d.Next(8), d.String("", 100)
			if errors.Is(d.Err(), xdr.ErrShort) {
				break // until more is read
			}
			fmt.Println(header[7], text, d.Offset(), len(d.Rest()), d.OK())
			input = d.Rest()
		}
	}
	// Output:
	// 60 true
	// 0 message 20 5 true
	// 1 message 20 10 true
	// 2 message 20 0 true
}

// Append extends a message by a value. A procedure without results has Void.
func ExampleAppend() {
	header := []byte{0, 0, 0, 42}
	b, err := xdr.Append(header, &point{1, -1})
	fmt.Printf("%x %v\n", b, err)
	b, err = xdr.Append(header, xdr.Void{})
	fmt.Printf("%x %v %v\n", b, err, xdr.Unmarshal(b[4:], xdr.Void{}))
	// Output:
	// 0000002a00000001ffffffff <nil>
	// 0000002a <nil> <nil>
}

// A server decodes one message after another into the same value. Copy allocates anew for each,
// Reuse does not, and InPlace does not copy the data either.
func ExampleMemory() {
	first, err := xdr.Marshal(&entry{Name: "a", Kind: 1, Data: []byte("data")})
	check(err)
	second, err := xdr.Marshal(&entry{Name: "a", Kind: 1, Data: []byte("DATA")})
	check(err)
	for i, memory := range []xdr.Memory{xdr.Copy, xdr.Reuse, xdr.InPlace} {
		var v entry
		var d xdr.Decoder
		d.Reset(first, memory)
		v.DecodeXDR(&d)
		kept := v.Data
		d.Reset(second, memory)
		v.DecodeXDR(&d)
		check(d.Err())
		v.Data[0] = '!'
		name := []string{"Copy", "Reuse", "InPlace"}[i]
		fmt.Printf("%s: %s, in the message: %t\n", name, kept, bytes.Contains(second, v.Data))
	}
	// Output:
	// Copy: data, in the message: false
	// Reuse: !ATA, in the message: false
	// InPlace: data, in the message: true
}

// A message is a header and any body.
func ExampleMarshaler() {
	write := func(kind uint32, body xdr.Marshaler) []byte {
		var e xdr.Encoder
		e.Uint32(kind)
		body.EncodeXDR(&e)
		check(e.Err())
		return e.Bytes()
	}
	read := func(b []byte, bodies map[uint32]xdr.Unmarshaler) (xdr.Unmarshaler, error) {
		d := xdr.NewDecoder(b, xdr.Copy)
		body, ok := bodies[d.Uint32()]
		if !ok {
			return nil, xdr.ErrValue
		}
		body.DecodeXDR(d)
		return body, d.Err()
	}
	bodies := map[uint32]xdr.Unmarshaler{0: xdr.Void{}, 1: new(point)}
	for _, b := range [][]byte{write(0, xdr.Void{}), write(1, &point{3, 4}), write(2, xdr.Void{})} {
		fmt.Println(read(b, bodies))
	}
	// Output:
	// {} <nil>
	// &{3 4} <nil>
	// <nil> no value of the type
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
