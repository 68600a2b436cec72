package everyxdr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc/internal/everyxdr/wide"
	"github.com/vmmc-go/vmmc/xdr"
)

// words is a message of words.
func words(w ...uint32) (b []byte) {
	for _, v := range w {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// What values take in memory is bounded, in each way in which a decoder allocates: a message of 4
// MiB whose values would take gigabytes ends at the limit. The same message is decoded where the
// limit is higher than what its values take.
func TestDecodedMemoryIsBounded(t *testing.T) {
	const long = 1 << 20
	text := append(words(50000), bytes.Repeat(append(words(4), "abcd"...), 50000)...)
	for _, c := range []struct {
		name  string
		in    []byte
		value func() xdr.Unmarshaler
	}{
		{
			"unions of a long arm", append(words(long), make([]byte, 4*long)...),
			func() xdr.Unmarshaler { return new(wide.Wides) },
		},
		{
			"a list of them", append(bytes.Repeat(words(0, 1), long/2-1), words(0, 0)...),
			func() xdr.Unmarshaler { return new(wide.WideList) },
		},
		{
			"pointers to them", append(words(long/2), bytes.Repeat(words(1, 0), long/2)...),
			func() xdr.Unmarshaler { return new(wide.Pointers) },
		},
		{
			"arrays of arrays of them", append(append(words(long/8), bytes.Repeat(words(7, 0, 0, 0, 0, 0, 0, 0), long/8)...), words(0)...),
			func() xdr.Unmarshaler { return new(wide.Lists) },
		},
	} {
		for _, m := range []xdr.Memory{xdr.Copy, xdr.Reuse, xdr.InPlace} {
			v := c.value()
			d := xdr.NewDecoder(c.in, m)
			took := allocated(func() { v.DecodeXDR(d) })
			// Slices that grow are copied: all that was allocated is more than what is left in the end.
			if most := uint64(16*len(c.in)) * 4; !errors.Is(d.Err(), xdr.ErrMemory) || took > most {
				t.Errorf("%s, %v: %d bytes of input took %d bytes, %v; wanted at most %d, and ErrMemory",
					c.name, m, len(c.in), took, d.Err(), most)
			}
		}
	}
	// What is long on the wire too is decoded; and all of it where the limit says so.
	for _, c := range []struct {
		name  string
		in    []byte
		limit int
		value xdr.Unmarshaler
		want  error
	}{
		{"texts", append(words(0), text...), 0, new(wide.Lists), nil},
		{"texts beyond a limit", append(words(0), text...), 1 << 20, new(wide.Lists), xdr.ErrMemory},
		{"opaque data beyond a limit", append(words(4096), make([]byte, 4096)...), 4095, new(anything), xdr.ErrMemory},
		{"opaque data within it", append(words(4096), make([]byte, 4096)...), 4096, new(anything), nil},
		{"numbers beyond a limit", words(2, 0, 1, 0, 1), 15, new(Counts), xdr.ErrMemory},
		{"numbers within it", words(2, 0, 1, 0, 1), 16, new(Counts), nil},
		{"a few unions", append(words(100), make([]byte, 400)...), 0, new(wide.Wides), nil},
		{"many unions and a high limit", append(words(20000), make([]byte, 80000)...), 20000 * 8192, new(wide.Wides), nil},
		{"many unions", append(words(20000), make([]byte, 80000)...), 0, new(wide.Wides), xdr.ErrMemory},
		{"one long union and no room", append(words(1, 1), make([]byte, 1024)...), 100, new(wide.Wides), xdr.ErrMemory},
	} {
		d := xdr.NewDecoder(c.in, xdr.Copy)
		if c.limit > 0 {
			d.Limit(c.limit)
		}
		c.value.DecodeXDR(d)
		if !errors.Is(d.Err(), c.want) || c.want == nil && len(d.Rest()) > 0 {
			t.Errorf("%s: %v, wanted %v", c.name, d.Err(), c.want)
		}
	}
}

// anything is opaque data of any length.
type anything []byte

func (a *anything) DecodeXDR(d *xdr.Decoder) { *a = d.Opaque(*a, xdr.Unlimited) }
