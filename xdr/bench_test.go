package xdr_test

import (
	"testing"

	"github.com/vmmc-go/vmmc/xdr"
)

func BenchmarkEncodeWords(b *testing.B) {
	buffer := make([]byte, 0, 4096)
	b.SetBytes(4096)
	var e xdr.Encoder
	for b.Loop() {
		e.ResetFixed(buffer)
		for i := range uint32(1024) {
			e.Uint32(i)
		}
	}
}

func BenchmarkDecodeWords(b *testing.B) {
	in := make([]byte, 4096)
	b.SetBytes(4096)
	var d xdr.Decoder
	var sum uint32
	for b.Loop() {
		d.Reset(in, xdr.Copy)
		for range 1024 {
			sum += d.Uint32()
		}
	}
	if sum != 0 {
		b.Fatal(sum)
	}
}

func BenchmarkEncodeOpaque(b *testing.B) {
	data := make([]byte, 1<<20)
	buffer := make([]byte, 0, len(data)+4)
	b.SetBytes(int64(len(data)))
	var e xdr.Encoder
	for b.Loop() {
		e.ResetFixed(buffer)
		e.Opaque(data, xdr.Unlimited)
	}
}

func BenchmarkDecodeOpaqueInPlace(b *testing.B) {
	in, err := xdr.Append(nil, opaque(make([]byte, 1<<20)))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(in)))
	var d xdr.Decoder
	for b.Loop() {
		d.Reset(in, xdr.InPlace)
		if len(d.Opaque(nil, xdr.Unlimited)) != 1<<20 {
			b.Fatal(d.Err())
		}
	}
}

type opaque []byte

func (o opaque) EncodeXDR(e *xdr.Encoder) { e.Opaque(o, xdr.Unlimited) }
