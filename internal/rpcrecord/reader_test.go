package rpcrecord

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// fragment is one with its header.
func fragment(b []byte, end bool) []byte {
	n := uint32(len(b))
	if end {
		n |= last
	}
	return append(binary.BigEndian.AppendUint32(nil, n), b...)
}

func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 300), 0, 5).Draw(t, "records")
		var stream []byte
		for _, rec := range records {
			for rest := rec; ; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "fragment")
				stream = append(stream, fragment(rest[:n], n == len(rest))...)
				if rest = rest[n:]; len(rest) == 0 {
					break
				}
			}
		}
		var in io.Reader = bytes.NewReader(stream)
		if rapid.Bool().Draw(t, "slow") {
			in = iotest.OneByteReader(in)
		}
		inside := false
		r := NewReader(in, 300, func(v bool) { inside = v })
		for _, want := range records {
			got, err := r.Next([]byte("before"))
			if err != nil || string(got) != "before"+string(want) || inside {
				t.Fatalf("%q, %v, inside %v; want %q", got, err, inside, want)
			}
		}
		if _, err := r.Next(nil); err != io.EOF { //nolint:errorlint // the very error
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestBadRecords(t *testing.T) {
	huge := binary.BigEndian.AppendUint32(nil, 1<<32-1)
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"huge":            {huge, ErrTooLong},
		"too long in all": {append(fragment(make([]byte, 60), false), fragment(make([]byte, 60), true)...), ErrTooLong},
		"empty for ever":  {bytes.Repeat(fragment(nil, false), 1000), ErrEmpty},
		"no end":          {fragment([]byte("abc"), false), io.ErrUnexpectedEOF},
		"half a header":   {[]byte{0, 0}, io.ErrUnexpectedEOF},
		"half a fragment": {fragment([]byte("abc"), true)[:6], io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewReader(bytes.NewReader(c.in), 100, nil).Next(nil); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A header that promises much takes little memory until the bytes come.
func TestPromise(t *testing.T) {
	in := binary.BigEndian.AppendUint32(nil, last|(last-1))
	b, err := NewReader(bytes.NewReader(append(in, 1, 2, 3)), last, nil).Next(nil)
	if !errors.Is(err, io.ErrUnexpectedEOF) || cap(b) > 2*small {
		t.Errorf("%v, and %d bytes of memory", err, cap(b))
	}
}

// FuzzReader: no stream makes a record longer than its bytes or than is taken, whatever the pieces
// in which it comes.
func FuzzReader(f *testing.F) {
	f.Add(append(fragment([]byte("one"), false), fragment([]byte("two"), true)...))
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<32-1))
	f.Fuzz(func(t *testing.T, in []byte) {
		const most = 200
		whole := NewReader(bytes.NewReader(in), most, nil)
		slow := NewReader(iotest.OneByteReader(bytes.NewReader(in)), most, nil)
		for total := 0; ; {
			a, err := whole.Next(nil)
			b, err2 := slow.Next(nil)
			if !bytes.Equal(a, b) || (err == nil) != (err2 == nil) {
				t.Fatalf("%x, %v; by bytes %x, %v", a, err, b, err2)
			}
			if total += len(a); len(a) > most || total > len(in) {
				t.Fatalf("%d bytes of %d", total, len(in))
			}
			if err != nil {
				return
			}
		}
	})
}
