package xdr_test

import (
	"bytes"
	"testing"

	"github.com/vmmc-go/vmmc/xdr"
)

// FuzzDecode reads whatever types the second input says from the first, in all three ways at once,
// and writes what it has read again: without an error that is what was read.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, in, program []byte) {
		kept := bytes.Clone(in)
		var decoders [3]*xdr.Decoder
		var encoders [3]xdr.Encoder
		var words [3]string
		var data [3][]byte
		same := true // what is read is written
		for i := range decoders {
			decoders[i] = xdr.NewDecoder(in, xdr.Memory(i))
		}
		for _, op := range program {
			for i, d := range decoders {
				e := &encoders[i]
				switch most := uint32(op >> 4); op & 15 {
				case 0:
					e.Uint32(d.Uint32())
				case 1:
					e.Uint64(d.Uint64())
				case 2:
					e.Bool(d.Bool())
				case 3:
					e.Uint8(d.Uint8())
				case 4:
					e.Uint16(d.Uint16())
				case 5:
					words[i] = d.String(words[i], most)
					e.String(words[i], most)
				case 6, 7:
					data[i] = d.Opaque(data[i], xdr.Unlimited)
					e.Opaque(data[i], xdr.Unlimited)
					data[i] = nil // an element of the input is no memory for Reuse
				case 8:
					b := make([]byte, most)
					d.FixedOpaque(b)
					e.FixedOpaque(b)
				case 9:
					n := d.Len(xdr.Unlimited, int(most))
					if n > len(in) {
						t.Fatalf("%d elements in %d bytes", n, len(in))
					}
					e.Len(n, xdr.Unlimited)
				case 10:
					p := new(uint32)
					if same = false; xdr.Optional(d, &p) {
						*p = d.Uint32()
					}
				}
			}
		}
		for i, d := range decoders {
			if (d.Err() == nil) != (decoders[0].Err() == nil) || d.Offset() != decoders[0].Offset() {
				t.Fatalf("way %d: %v at %d, and by Copy %v at %d", i, d.Err(), d.Offset(), decoders[0].Err(), decoders[0].Offset())
			}
			if !bytes.Equal(encoders[i].Bytes(), encoders[0].Bytes()) {
				t.Fatalf("way %d read something else than Copy", i)
			}
		}
		if !bytes.Equal(in, kept) {
			t.Fatal("the input has changed")
		}
		if same && decoders[0].OK() {
			if got := encoders[0].Bytes(); encoders[0].OK() && !bytes.Equal(got, in[:len(got)]) {
				t.Fatalf("%x was read and %x is written", in, got)
			}
		}
	})
}
