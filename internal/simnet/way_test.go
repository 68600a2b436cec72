package simnet

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// harmed is what a way makes of bytes that it has all at once, and the fault that ends it, if
// one does.
func harmed(sent []byte, faults []Fault) (out []byte, last Kind) {
	b, at := bytes.Clone(sent), 0
	pass := func(to int) {
		to = min(to, len(b))
		out, at = append(out, b[at:to]...), to
	}
	for _, f := range faults {
		from := max(at, int(f.At))
		if from >= len(b) {
			break
		}
		pass(from)
		n := int(f.Len)
		switch f.Kind {
		case Flip:
			b[at] ^= 1 << (f.Bit % 8)
		case Lose:
			at = min(at+n, len(b))
		case Repeat:
			if at+n <= len(b) {
				out = append(out, b[at:at+n]...)
			}
			pass(at + n)
		case Swap:
			if at+2*n <= len(b) {
				out = append(append(out, b[at+n:at+2*n]...), b[at:at+n]...)
				at += 2 * n
			} else {
				pass(len(b))
			}
		case Trunc, Cut, Reset, Part:
			return out, f.Kind
		}
	}
	pass(len(b))
	return out, 0
}

// drawWay is the faults of a way of so many bytes. Some are behind its end or within others.
func drawWay(rt *rapid.T, n int, stall time.Duration) []Fault {
	at := int64(0)
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) Fault {
		some := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, int64(n/2)))
		at += some.Draw(rt, "behind the one before")
		return Fault{
			At: at, Kind: Kind(rapid.IntRange(int(Flip), int(Part)).Draw(rt, "kind")), Len: some.Draw(rt,
				"len"),
			Bit: rapid.Uint8Range(0, 7).Draw(rt, "bit"), For: stall,
		}
	}), 0, 6).Draw(rt, "faults")
}

// What a way makes of bytes does not depend on how they come, and no fault on another.
func TestWay(t *testing.T) {
	ends := map[Kind]int{}
	for range 20 { // they are short
		rapid.Check(t, func(rt *rapid.T) { ends[pieces(rt)]++ })
	}
	if len(ends) < 5 {
		t.Errorf("ways ended only by %v", ends)
	}
}

// pieces has a way take bytes in pieces, and gives what ended it.
func pieces(rt *rapid.T) (ended Kind) {
	sent := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(rt, "sent")
	faults := drawWay(rt, len(sent), 0)
	want, last := harmed(sent, faults)
	w := way{faults: faults}
	var got []byte
	for left := bytes.Clone(sent); len(left) > 0 && ended <= Trunc; {
		n := rapid.IntRange(1, len(left)).Draw(rt, "piece")
		for b := left[:n]; len(b) > 0 && ended <= Trunc; {
			out, rest, f := w.take(b)
			got, b = append(got, out...), rest
			if f.Kind > Stall {
				ended = f.Kind
			}
		}
		left = left[n:]
	}
	if ended == 0 {
		got = append(got, w.rest()...)
	}
	if ended != last || !bytes.Equal(got, want) {
		rt.Fatalf("%v made %v of %v, and ended by %v; want %v, %v", faults, got, sent, ended, want, last)
	}
	return ended
}

// The places of faults are those of the bytes as they were written.
func TestPlaces(t *testing.T) {
	const sent = "0123456789abcdef"
	for name, f := range map[string]struct {
		faults []Fault
		want   string
	}{
		"lose":                  {[]Fault{{At: 2, Kind: Lose, Len: 3}}, "0156789abcdef"},
		"repeat":                {[]Fault{{At: 2, Kind: Repeat, Len: 3}}, "012342" + "3456789abcdef"},
		"swap":                  {[]Fault{{At: 2, Kind: Swap, Len: 3}}, "0156723489abcdef"},
		"trunc":                 {[]Fault{{At: 2, Kind: Trunc}}, "01"},
		"nothing is lost":       {[]Fault{{At: 2, Kind: Lose}}, sent},
		"all is lost":           {[]Fault{{Kind: Lose, Len: 16}}, ""},
		"all and more":          {[]Fault{{Kind: Lose, Len: 17}}, ""},
		"one behind another":    {[]Fault{{At: 1, Kind: Lose, Len: 2}, {At: 4, Kind: Repeat, Len: 1}}, "034456789abcdef"},
		"one within another":    {[]Fault{{At: 1, Kind: Lose, Len: 4}, {At: 2, Kind: Lose, Len: 4}}, "09abcdef"},
		"end within":            {[]Fault{{At: 1, Kind: Repeat, Len: 2}, {At: 2, Kind: Trunc}}, "01212"},
		"flip is lost":          {[]Fault{{At: 1, Kind: Flip}, {At: 1, Kind: Lose, Len: 1}}, "023456789abcdef"},
		"flip comes twice":      {[]Fault{{At: 0, Kind: Flip}, {At: 0, Kind: Repeat, Len: 2}}, "1111" + "23456789abcdef"},
		"two bits":              {[]Fault{{At: 0, Kind: Flip}, {At: 0, Kind: Flip, Bit: 1}}, "3123456789abcdef"},
		"half of a swap":        {[]Fault{{At: 12, Kind: Swap, Len: 3}}, sent},
		"half of a repeat":      {[]Fault{{At: 12, Kind: Repeat, Len: 5}}, sent},
		"behind the last byte":  {[]Fault{{At: 16, Kind: Trunc}}, sent},
		"at the last byte":      {[]Fault{{At: 15, Kind: Trunc}}, sent[:15]},
		"swap behind a swap":    {[]Fault{{At: 0, Kind: Swap, Len: 1}, {At: 1, Kind: Swap, Len: 1}}, "1032456789abcdef"},
		"as far as there is it": {[]Fault{{At: 8, Kind: Swap, Len: 4}}, "01234567cdef89ab"},
	} {
		for _, all := range []bool{true, false} {
			w := way{faults: f.faults}
			var got []byte
			for left := []byte(sent); len(left) > 0; {
				n := 1
				if all {
					n = len(left)
				}
				for b := left[:n]; len(b) > 0; {
					var out []byte
					out, b, _ = w.take(b)
					got = append(got, out...)
				}
				left = left[n:]
			}
			if got = append(got, w.rest()...); string(got) != f.want {
				t.Errorf("%s: %q, want %q", name, got, f.want)
			}
		}
	}
}
