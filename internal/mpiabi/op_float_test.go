//go:build linux

package mpiabi

import (
	"math"
	"math/big"
	"testing"
)

// Each half-precision number survives, and sums and products are those of float64 rounded once.
func TestHalf(t *testing.T) {
	value := func(h uint16) float64 {
		e, f := int(h>>10&31), float64(h&1023)
		v := math.Ldexp(f, -24)
		switch {
		case e == 31 && f != 0:
			return math.NaN()
		case e == 31:
			v = math.Inf(1)
		case e > 0:
			v = math.Ldexp(1024+f, e-25)
		}
		if h>>15 != 0 {
			v = -v
		}
		return v
	}
	b := make([]byte, 2)
	for h := range 1 << 16 {
		b[0], b[1] = byte(h), byte(h>>8)
		x, want := halfFormat.decode(b), value(uint16(h))
		if x.value == nil {
			if !math.IsNaN(want) {
				t.Fatalf("%#x is no number, want %v", h, want)
			}
			continue
		}
		if got, _ := x.value.Float64(); got != want || math.Signbit(got) != math.Signbit(want) {
			t.Fatalf("%#x is %v, want %v", h, got, want)
		}
		if halfFormat.encode(b, x); int(b[0])|int(b[1])<<8 != h {
			t.Fatalf("%#x is stored as %#x%02x", h, b[1], b[0])
		}
	}
	// The nearest of all is what is stored, and of two the even one.
	for _, c := range []struct {
		v    float64
		want uint16
	}{
		{1 + math.Ldexp(1, -11), 0x3c00},
		{1 + math.Ldexp(3, -11), 0x3c02},
		{65519, 0x7bff},
		{65520, 0x7c00},
		{math.Ldexp(1, -25), 0},
		{math.Ldexp(3, -25), 2},
		{math.Ldexp(1023.5, -24), 0x400},
		{-2, 0xc000},
	} {
		halfFormat.encode(b, float{big.NewFloat(c.v)})
		if got := uint16(b[0]) | uint16(b[1])<<8; got != c.want {
			t.Errorf("%v is stored as %#x, want %#x", c.v, got, c.want)
		}
	}
}

// ofFloat64 is a number of 16 bytes in a format.
func ofFloat64(f *floatFormat, v float64) (w wideFloat) {
	x := float{}
	if !math.IsNaN(v) {
		x.value = big.NewFloat(v)
	}
	f.encode(w[:], x)
	return w
}

func TestLongDouble(t *testing.T) {
	// 1.5 as the x87 has it, and as IEEE 754 has it.
	if got, want := ofFloat64(extendedFormat, -1.5), (wideFloat{7: 0xc0, 8: 0xff, 9: 0xbf}); got != want {
		t.Errorf("-1.5 is % x, want % x", got, want)
	}
	if got, want := ofFloat64(quadFormat, 1.5), (wideFloat{13: 0x80, 14: 0xff, 15: 0x3f}); got != want {
		t.Errorf("1.5 is % x, want % x", got, want)
	}
	r := job(t, 1)[0]
	for datatype, f := range map[uint64]*floatFormat{0x220: longDouble(), 0x2e2: quadFormat} {
		n := func(v ...float64) (list []wideFloat) {
			for _, v := range v {
				list = append(list, ofFloat64(f, v))
			}
			return list
		}
		inf, nan := math.Inf(1), math.NaN()
		a, b := n(1, -2.5, 0, inf, inf, nan), n(2, 4, 0, 1, -inf, 1)
		checkOp(r, opSum, datatype, a, b, n(3, 1.5, 0, inf, nan, nan))
		checkOp(r, opProd, datatype, a, b, n(2, -10, 0, inf, -inf, nan))
		checkOp(r, opMin, datatype, a, b, n(1, -2.5, 0, 1, -inf, nan))
		checkOp(r, opMax, datatype, a, b, n(2, 4, 0, inf, inf, nan))
		// 2^-60 beside 1 is lost in a double.
		tiny := math.Ldexp(1, -60)
		sum := localOp(r, opSum, datatype, n(1), n(tiny), 1)
		checkOp(r, opSum, datatype, n(-1), sum, n(tiny))
	}
	pair := func(re, im float64) [2]wideFloat {
		return [2]wideFloat{ofFloat64(longDouble(), re), ofFloat64(longDouble(), im)}
	}
	checkOp(r, opProd, 0x224, [][2]wideFloat{pair(1, 2)}, [][2]wideFloat{pair(3, 4)}, [][2]wideFloat{pair(-5, 10)})
	checkOp(r, opSum, 0x224, [][2]wideFloat{pair(1, 2)}, [][2]wideFloat{pair(3, 4)}, [][2]wideFloat{pair(4, 6)})
	checkOp(r, opSum, 0x2ca, [][2]byte{{0, 0x3c}}, [][2]byte{{0, 0x40}}, [][2]byte{{0, 0x42}})

	type longDoubleInt struct {
		V wideFloat
		I int32
		_ [3]int32
	}
	at := func(v float64, i int32) longDoubleInt { return longDoubleInt{V: ofFloat64(longDouble(), v), I: i} }
	a := []longDoubleInt{at(1, 7), at(4, 7), at(2, 7)}
	b := []longDoubleInt{at(3, 2), at(3, 2), at(2, 2)}
	checkOp(r, opMinLoc, 0x22d, a, b, []longDoubleInt{at(1, 7), at(3, 2), at(2, 2)})
	checkOp(r, opMaxLoc, 0x22d, a, b, []longDoubleInt{at(3, 2), at(4, 7), at(2, 2)})
}
