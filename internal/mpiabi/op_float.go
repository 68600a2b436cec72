package mpiabi

import (
	"encoding/binary"
	"math/big"
	"runtime"
)

// Chapter "Collective Communication": operations on floating-point numbers that Go has no type for.

// floatFormat is a format of floating-point numbers: a fraction, an exponent and a sign, from the lowest
// bit on. explicit says that the bit before the fraction is stored, too.
type floatFormat struct {
	fraction, exponent uint
	explicit           bool
}

// The formats.
var (
	halfFormat     = &floatFormat{10, 5, false}   // IEEE 754 binary16
	extendedFormat = &floatFormat{63, 15, true}   // that of the x87
	quadFormat     = &floatFormat{112, 15, false} // IEEE 754 binary128
)

// longDouble is C's long double.
func longDouble() *floatFormat {
	if runtime.GOARCH == "amd64" || runtime.GOARCH == "386" {
		return extendedFormat
	}
	return quadFormat
}

// float is a number of a format. value is nil if it is none.
type float struct{ value *big.Float }

// precision is how many bits the numbers have.
func (f *floatFormat) precision() uint { return f.fraction + 1 }

func (f *floatFormat) bias() int { return 1<<(f.exponent-1) - 1 }

// decode reads a number.
func (f *floatFormat) decode(b []byte) float {
	bits := new(big.Int)
	for i := len(b) - 1; i >= 0; i-- {
		bits.Lsh(bits, 8).Or(bits, big.NewInt(int64(b[i])))
	}
	top := f.fraction
	if f.explicit {
		top++
	}
	field := func(at, n uint) *big.Int {
		v := new(big.Int).Rsh(bits, at)
		return v.And(v, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), n), big.NewInt(1)))
	}
	fraction, exponent := field(0, f.fraction), int(field(top, f.exponent).Int64())
	negative := bits.Bit(int(top+f.exponent)) != 0
	v := new(big.Float).SetPrec(f.precision())
	switch {
	case exponent == 1<<f.exponent-1 && fraction.Sign() != 0:
		return float{}
	case exponent == 1<<f.exponent-1:
		v.SetInf(false)
	default:
		if exponent > 0 {
			fraction.SetBit(fraction, int(f.fraction), 1)
		} else {
			exponent = 1
		}
		v.SetInt(fraction)
		v.SetMantExp(v, exponent-f.bias()-int(f.fraction))
	}
	if negative {
		v.Neg(v)
	}
	return float{v}
}

// encode stores the nearest number of the format.
func (f *floatFormat) encode(b []byte, x float) {
	bits := new(big.Int)
	top := f.fraction
	if f.explicit {
		top++
	}
	all := int64(1)<<f.exponent - 1
	set := func(exponent int64, fraction *big.Int) {
		bits.Lsh(big.NewInt(exponent), top)
		bits.Or(bits, fraction)
		if f.explicit && exponent > 0 {
			bits.SetBit(bits, int(f.fraction), 1)
		}
	}
	least := 1 - f.bias() // the exponent of the least normal number
	switch v := x.value; {
	case v == nil:
		set(all, new(big.Int).Lsh(big.NewInt(1), f.fraction-1))
	case v.IsInf():
		set(all, new(big.Int))
	case v.Sign() != 0:
		exponent := max(v.MantExp(nil)-1, least)
		// In units of the last bit. What is behind it is rounded, which may carry to the next exponent.
		scaled := new(big.Float).SetMantExp(new(big.Float).Abs(v), int(f.fraction)-exponent)
		units := nearest(scaled)
		if units.BitLen() > int(f.precision()) {
			units.Rsh(units, 1)
			exponent++
		}
		switch {
		case units.BitLen() < int(f.precision()):
			set(0, units)
		case exponent > f.bias():
			set(all, new(big.Int))
		default:
			set(int64(exponent+f.bias()), units.SetBit(units, int(f.fraction), 0))
		}
	}
	if x.value != nil && x.value.Signbit() {
		bits.SetBit(bits, int(top+f.exponent), 1)
	}
	clear(b)
	for i, v := range bits.Bytes() {
		b[len(bits.Bytes())-1-i] = v
	}
}

// nearest is the integer that is nearest to x, and of two the even one. x is not negative.
func nearest(x *big.Float) *big.Int {
	below, _ := x.Int(nil)
	rest := new(big.Float).Sub(x, new(big.Float).SetInt(below))
	if c := rest.Cmp(big.NewFloat(0.5)); c > 0 || c == 0 && below.Bit(0) == 1 {
		below.Add(below, big.NewInt(1))
	}
	return below
}

// sum is a + b.
func (f *floatFormat) sum(a, b float) float {
	if a.value == nil || b.value == nil || a.value.IsInf() && b.value.IsInf() && a.value.Signbit() != b.value.Signbit() {
		return float{}
	}
	return float{new(big.Float).SetPrec(f.precision()).Add(a.value, b.value)}
}

// product is a * b, exactly: encode rounds it, once.
func (f *floatFormat) product(a, b float) float {
	if a.value == nil || b.value == nil || a.value.IsInf() && b.value.Sign() == 0 || a.value.Sign() == 0 && b.value.IsInf() {
		return float{}
	}
	return float{new(big.Float).SetPrec(2*f.precision()).Mul(a.value, b.value)}
}

// rounded is x as encode stores it.
func (f *floatFormat) rounded(x float) float {
	b := make([]byte, 16)
	f.encode(b, x)
	return f.decode(b)
}

// wideFloat is memory of a number of 16 bytes, and halfFloat of 2.
type (
	wideFloat [16]byte
	halfFloat [2]byte
)

// softFloats are the operations on numbers of a format in memory of type T. bytes is that memory.
func softFloats[T any](f *floatFormat, bytes func(v *T) []byte) func(op Handle) reducer {
	apply := func(g func(a, b float) float) reducer {
		return oneByOne(func(a, b T) T {
			f.encode(bytes(&b), g(f.decode(bytes(&a)), f.decode(bytes(&b))))
			return b
		})
	}
	extreme := func(sign int) reducer { // If one is no number the result is none.
		return apply(func(a, b float) float {
			if a.value == nil || b.value != nil && sign*a.value.Cmp(b.value) > 0 {
				return a
			}
			return b
		})
	}
	return func(op Handle) reducer {
		switch op {
		case opSum:
			return apply(f.sum)
		case opProd:
			return apply(f.product)
		case opMin:
			return extreme(-1)
		case opMax:
			return extreme(1)
		}
		return nil
	}
}

// softComplexes are the operations on complex numbers, each of two parts of a format.
func softComplexes[T any](f *floatFormat, part func(v *T, i int) []byte) func(op Handle) reducer {
	apply := func(g func(a, b [2]float) [2]float) reducer {
		return oneByOne(func(a, b T) T {
			var x, y [2]float
			for i := range 2 {
				x[i], y[i] = f.decode(part(&a, i)), f.decode(part(&b, i))
			}
			for i, v := range g(x, y) {
				f.encode(part(&b, i), v)
			}
			return b
		})
	}
	return func(op Handle) reducer {
		switch op {
		case opSum:
			return apply(func(a, b [2]float) [2]float { return [2]float{f.sum(a[0], b[0]), f.sum(a[1], b[1])} })
		case opProd:
			times := func(a, b float) float { return f.rounded(f.product(a, b)) }
			return apply(func(a, b [2]float) [2]float {
				minus := times(a[1], b[1])
				if minus.value != nil {
					minus.value.Neg(minus.value)
				}
				return [2]float{f.sum(times(a[0], b[0]), minus), f.sum(times(a[0], b[1]), times(a[1], b[0]))}
			})
		}
		return nil
	}
}

// locate are MPI_MINLOC and MPI_MAXLOC on pairs of a long double and an int, packed. A value that is no number
// is chosen.
func locate(op Handle) reducer {
	sign := 1
	switch op {
	case opMinLoc:
	case opMaxLoc:
		sign = -1
	default:
		return nil
	}
	f := longDouble()
	return oneByOne(func(a, b [20]byte) [20]byte {
		x, y := f.decode(a[:16]), f.decode(b[:16])
		c := 0
		switch {
		case x.value != nil && y.value != nil:
			c = sign * x.value.Cmp(y.value)
		case x.value != nil:
			c = 1
		case y.value != nil:
			c = -1
		}
		index := func(p []byte) int32 { return int32(binary.NativeEndian.Uint32(p[16:])) }
		if c < 0 || c == 0 && index(a[:]) < index(b[:]) {
			return a
		}
		return b
	})
}

// addSoftFloats adds the operations on them.
func addSoftFloats(m map[Handle]func(op Handle) reducer) {
	wide := func(v *wideFloat) []byte { return v[:] }
	parts := func(v *[2]wideFloat, i int) []byte { return v[i][:] }
	m[0x220] = softFloats(longDouble(), wide)
	m[0x2e2] = softFloats(quadFormat, wide)
	m[0x2ca] = softFloats(halfFormat, func(v *halfFloat) []byte { return v[:] })
	m[0x224] = softComplexes(longDouble(), parts)
	m[0x225] = m[0x224]
	m[0x22d] = locate
	m[0x2eb] = softComplexes(quadFormat, parts)
	m[0x2d3] = softComplexes(halfFormat, func(v *[2]halfFloat, i int) []byte { return v[i][:] })
}
