package mpiabi

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"strings"
)

// Chapter "Datatypes": packing in the representation external32, which all machines read: numbers are
// big-endian, and as long as the standard says (chapter I/O).

func init() {
	register("MPI_Pack_external", packExternal)
	register("MPI_Unpack_external", unpackExternal)
	register("MPI_Pack_external_size", func(e *Env, a *arguments) error {
		if err := a.external32(0); err != nil {
			return err
		}
		n, err := a.count(1)
		if err != nil {
			return err
		}
		d, err := e.committed(a, 2)
		if err != nil {
			return err
		}
		size := d.externalSize()
		if size > 0 && n > maxBytes/size {
			return fail(a.name(1), errCount, "%d items of %s are more than a program has memory for", n, d.describe())
		}
		return a.setInt(3, n*size)
	})
}

// external32 checks the name of the representation.
func (a *arguments) external32(i int) error {
	const name = "external32"
	got, err := a.cString(i, len(name)+1)
	if err != nil {
		return err
	}
	if got != name {
		return fail(a.name(i), errDatarep, "it is %.20q, want %q", got, name)
	}
	return nil
}

// number is a part of a basic element, here and in external32.
type number struct {
	native, external int
	kind             numberKind
}

type numberKind int

const (
	sameNumber     numberKind = iota // Only the order of the bytes differs.
	signedNumber                     // external32 may have fewer bytes.
	unsignedNumber                   // external32 may have fewer bytes.
	x87Number                        // external32 has IEEE's binary128.
)

// x87 reports whether a long double is a number of the x87, of 80 bits.
const x87 = runtime.GOARCH == "amd64" || runtime.GOARCH == "386"

// numbers are the parts of a named datatype.
func (d *datatype) numbers() []number {
	same := func(size int) number { return number{size, size, sameNumber} }
	longDouble := same(16)
	if x87 {
		longDouble.kind = x87Number
	}
	switch d.name {
	case "MPI_LONG":
		return []number{{8, 4, signedNumber}}
	case "MPI_UNSIGNED_LONG":
		return []number{{8, 4, unsignedNumber}}
	case "MPI_WCHAR":
		return []number{{4, 2, unsignedNumber}}
	case "MPI_LONG_DOUBLE":
		return []number{longDouble}
	case "MPI_C_LONG_DOUBLE_COMPLEX", "MPI_CXX_LONG_DOUBLE_COMPLEX":
		return []number{longDouble, longDouble}
	case "MPI_LONG_INT":
		return []number{{8, 4, signedNumber}, same(4)}
	case "MPI_LONG_DOUBLE_INT":
		return []number{longDouble, same(4)}
	case "MPI_FLOAT_INT", "MPI_DOUBLE_INT", "MPI_SHORT_INT":
		return []number{same(d.size - 4), same(4)}
	}
	if strings.HasPrefix(d.name, "MPI_2") || strings.Contains(d.name, "COMPLEX") {
		return []number{same(d.size / 2), same(d.size / 2)}
	}
	return []number{same(d.size)}
}

// eachNumber calls f for the numbers of an item, in their order. It ends with f's first error.
func (d *datatype) eachNumber(f func(n number) error) error {
	if d.made == nil || len(d.made.types) == 0 {
		for _, n := range d.numbers() {
			if err := f(n); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range d.components() {
		for range p.n {
			if err := p.d.eachNumber(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// externalSize is how many bytes an item has in external32.
func (d *datatype) externalSize() int {
	if d.size == 0 {
		return 0
	}
	size := 0
	_ = d.eachNumber(func(n number) error { // f does not fail
		size += n.external
		return nil
	})
	return size
}

// toExternal appends the number in external32. ok is false if it does not fit.
func (n number) toExternal(out, b []byte) (_ []byte, ok bool) {
	switch n.kind {
	case signedNumber, unsignedNumber:
		v := binary.LittleEndian.Uint64(append(slices.Clone(b), make([]byte, 8-len(b))...))
		if n.kind == signedNumber && int64(v) != int64(int32(v)) || n.kind == unsignedNumber && v>>(8*n.external) != 0 {
			return out, false
		}
		return append(out, binary.BigEndian.AppendUint64(nil, v)[8-n.external:]...), true
	case x87Number:
		hi, lo := quadOf(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint16(b[8:]))
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(out, hi), lo), true
	}
	from := len(out)
	out = append(out, b...)
	slices.Reverse(out[from:])
	return out, true
}

// fromExternal appends the number as this machine has it.
func (n number) fromExternal(out, b []byte) []byte {
	switch n.kind {
	case signedNumber:
		return binary.LittleEndian.AppendUint64(out, uint64(int64(int32(binary.BigEndian.Uint32(b)))))
	case unsignedNumber:
		v := uint64(0)
		for _, c := range b {
			v = v<<8 | uint64(c)
		}
		return append(out, binary.LittleEndian.AppendUint64(nil, v)[:n.native]...)
	case x87Number:
		mantissa, head := x87Of(binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]))
		out = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint64(out, mantissa), head)
		return append(out, make([]byte, n.native-10)...)
	}
	from := len(out)
	out = append(out, b...)
	slices.Reverse(out[from:])
	return out
}

const exponents = 1<<15 - 1

// quadOf is a number of the x87 as binary128. Both have the same exponents. The x87 has the first bit of the
// mantissa, and 63 more, where binary128 has 112.
func quadOf(mantissa uint64, head uint16) (hi, lo uint64) {
	exponent, fraction := uint64(head&exponents), mantissa&math.MaxInt64
	if exponent == 0 && mantissa>>63 == 1 { // It is no subnormal number.
		exponent = 1
	}
	return uint64(head>>15)<<63 | exponent<<48 | fraction>>15, fraction << 49
}

// x87Of is a binary128 as the nearest number of the x87.
func x87Of(hi, lo uint64) (mantissa uint64, head uint16) {
	exponent := hi >> 48 & exponents
	fraction, rest := hi<<15&math.MaxInt64|lo>>49, lo&(1<<49-1)
	switch {
	case exponent == exponents:
		if fraction == 0 && rest != 0 { // It is no number, and must not become infinite.
			fraction = 1 << 62
		}
	case rest > 1<<48 || rest == 1<<48 && fraction&1 == 1:
		fraction++
	}
	if fraction>>63 == 1 {
		fraction, exponent = 0, exponent+1
	}
	if exponent > 0 {
		fraction |= 1 << 63
	}
	return fraction, uint16(hi>>63<<15 | exponent)
}

func packExternal(e *Env, a *arguments) error {
	if err := a.external32(0); err != nil {
		return err
	}
	it, err := e.items(a, 1)
	if err != nil {
		return err
	}
	pos, err := a.position(6, a.Count(5))
	if err != nil {
		return err
	}
	b, err := a.pack(1, &it)
	if err != nil {
		return err
	}
	need := it.n * it.d.externalSize()
	if room := a.Count(5) - pos; need > room {
		return fail(a.name(5), errTruncate, "%d bytes are to be packed, and the buffer has room for %d: call MPI_Pack_external_size", need, room)
	}
	out := make([]byte, 0, need)
	for range it.n {
		if it.d.size == 0 {
			break
		}
		err := it.d.eachNumber(func(n number) (err error) {
			ok := false
			if out, ok = n.toExternal(out, b[:n.native]); !ok {
				return fail(a.name(1), errConversion, "a number does not fit the %d bytes that external32 has for it", n.external)
			}
			b = b[n.native:]
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(out) > 0 {
		if a.Addr(4) == 0 {
			return fail(a.name(4), errBuffer, "it is NULL, and %d bytes are to be packed", len(out))
		}
		if err := a.access(4, func() { copy(slice[byte](a.Addr(4)+uint64(pos), len(out)), out) }); err != nil {
			return err
		}
	}
	return a.setInt(6, pos+len(out))
}

func unpackExternal(e *Env, a *arguments) error {
	if err := a.external32(0); err != nil {
		return err
	}
	it, err := e.items(a, 4)
	if err != nil {
		return err
	}
	pos, err := a.position(3, a.Count(2))
	if err != nil {
		return err
	}
	need := it.n * it.d.externalSize()
	if rest := a.Count(2) - pos; need > rest {
		return fail(a.name(2), errTruncate, "%d bytes are to be unpacked, and the buffer has %d more", need, rest)
	}
	if need > 0 {
		if a.Addr(1) == 0 {
			return fail(a.name(1), errBuffer, "it is NULL, and %d bytes are to be unpacked", need)
		}
		in := make([]byte, need)
		if err := a.access(1, func() { copy(in, slice[byte](a.Addr(1)+uint64(pos), need)) }); err != nil {
			return err
		}
		out := make([]byte, 0, it.n*it.d.size)
		for range it.n {
			_ = it.d.eachNumber(func(n number) error { // f does not fail
				out = n.fromExternal(out, in[:n.external])
				in = in[n.external:]
				return nil
			})
		}
		if err := a.unpack(4, &it, out); err != nil {
			return err
		}
	}
	return a.setInt(3, pos+need)
}
