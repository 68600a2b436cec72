package xdr_test

import (
	"testing"

	"github.com/vmmc-go/vmmc/xdr"
)

// Where the caller has the memory, nothing is allocated.
func TestAllocations(t *testing.T) {
	var e xdr.Encoder
	d := xdr.NewDecoder(nil, xdr.Copy)
	buffer := make([]byte, 0, 256)
	other := make([]byte, 0, 256)
	data := make([]byte, 100)
	name := "a name"
	var in []byte
	var pieces [][]byte
	p := &point{1, 2}
	numbers := make([]int32, 0, 4)
	check := func(what string, f func()) {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	check("encoding", func() {
		e.ResetFixed(buffer)
		p.EncodeXDR(&e)
		e.String(name, 9)
		e.Opaque(data, 100)
		in = e.Bytes()
	})
	check("gathering", func() {
		e.Reset(other)
		e.Gather(50)
		p.EncodeXDR(&e)
		e.Opaque(data, 100)
		pieces = e.Pieces(pieces[:0])
	})
	check("reusing", func() {
		d.Reset(in, xdr.Reuse)
		p.DecodeXDR(d)
		name = d.String(name, 9)
		data = d.Opaque(data, 100)
		ok(t, d)
	})
	check("in place", func() {
		d.Reset(in, xdr.InPlace)
		p.DecodeXDR(d)
		name = d.String(name, 9)
		_ = d.Opaque(nil, 100)
		ok(t, d)
	})
	list := []byte("\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02")
	check("a slice", func() {
		d.Reset(list, xdr.Reuse)
		numbers = xdr.Slice(d, numbers, d.Len(4, 4))
		for i := range numbers {
			numbers[i] = d.Int32()
		}
		ok(t, d)
	})
	check("Append and Unmarshal", func() {
		b, err := xdr.Append(other, p)
		if err == nil {
			err = xdr.Unmarshal(b, p)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	check("Void", func() {
		if _, err := xdr.Append(other, xdr.Void{}); err != nil {
			t.Fatal(err)
		}
	})
}

func ok(t *testing.T, d *xdr.Decoder) {
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
}
