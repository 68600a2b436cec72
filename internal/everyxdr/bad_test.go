package everyxdr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/vmmc-go/vmmc/xdr"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	least := uint64(math.MaxUint64)
	for range 5 { // other goroutines allocate too
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// A tree each of whose nodes announces as many children as the message could have, and has one:
// what is announced is not allocated.
func TestAnnouncedElements(t *testing.T) {
	var in []byte
	const levels = 500
	for i := range levels {
		in = binary.BigEndian.AppendUint32(in, 0) // an empty label
		in = binary.BigEndian.AppendUint32(in, uint32(levels-1-i))
	}
	var tree Tree
	var err error
	if n := allocated(func() { err = xdr.Unmarshal(in, &tree) }); n > 1<<20 {
		t.Errorf("%d bytes of input took %d bytes", len(in), n)
	}
	if !errors.Is(err, xdr.ErrShort) && !errors.Is(err, xdr.ErrTooLong) {
		t.Error(err)
	}
	long := append([]byte{0, 0, 0, 0}, bytes.Repeat([]byte{0xff, 0xff, 0xff, 0xff}, 9)...)
	if n := allocated(func() { err = xdr.Unmarshal(long, &tree) }); n > 4096 || !errors.Is(err, xdr.ErrShort) {
		t.Errorf("4 GB announced in %d bytes: %d bytes, %v", len(long), n, err)
	}
}

// Values within values end at a depth; a list does not, and takes no stack.
func TestDepth(t *testing.T) {
	one := []byte{0, 0, 0, 1}
	deep := bytes.Repeat(one, 10*xdr.MaxDepth)
	var c Chain
	if err := xdr.Unmarshal(deep, &c); !errors.Is(err, xdr.ErrDepth) {
		t.Errorf("a chain: %v", err)
	}
	tree := bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 1}, 10*xdr.MaxDepth)
	if err := xdr.Unmarshal(tree, new(Tree)); !errors.Is(err, xdr.ErrDepth) {
		t.Errorf("a tree: %v", err)
	}
	in := bytes.Repeat(one, 2*100000-1)
	in = append(in, 0, 0, 0, 0)
	var l Node
	if err := xdr.Unmarshal(in, &l); err != nil {
		t.Fatalf("a list: %v", err)
	}
	n := 0
	for p := &l; p != nil; p = p.Next {
		n++
	}
	if out, err := xdr.Marshal(&l); n != 100000 || err != nil || !bytes.Equal(in, out) {
		t.Errorf("%d elements, %v", n, err)
	}
	top := &Chain{}
	for range 2 * xdr.MaxDepth {
		top = &Chain{Next: top}
	}
	if _, err := xdr.Marshal(top); !errors.Is(err, xdr.ErrDepth) {
		t.Errorf("encoding a chain: %v", err)
	}
	// A list that has no end is as long as the buffer.
	l.Next = &l
	var e xdr.Encoder
	e.ResetFixed(make([]byte, 0, 1000))
	if l.EncodeXDR(&e); !errors.Is(e.Err(), xdr.ErrNoSpace) {
		t.Error(e.Err())
	}
}

func TestUnions(t *testing.T) {
	unknown := []byte{0, 0, 0, 9}
	if err := xdr.Unmarshal(unknown, new(Shape)); !errors.Is(err, xdr.ErrValue) {
		t.Errorf("decoding a shape of kind 9: %v", err)
	}
	if _, err := xdr.Marshal(&Shape{Kind: 9}); !errors.Is(err, xdr.ErrValue) {
		t.Errorf("encoding a shape of kind 9: %v", err)
	}
	// What was in another arm is not left over.
	v := Shape{Kind: GREEN, Title: "old"}
	d := xdr.NewDecoder([]byte{0xff, 0xff, 0xff, 0xfd}, xdr.Reuse)
	if v.DecodeXDR(d); d.Err() != nil || v != (Shape{Kind: BELOW}) {
		t.Errorf("%v, %+v", d.Err(), v)
	}
	if s := BELOW.String() + Colour(77).String(); s != "BELOWColour(77)" {
		t.Error(s)
	}
	if GREETING != "hello" || MASK != 1<<31 || MODE != 0o755 || LOWEST != -7 || BLUE != 6 {
		t.Error("constants have other values than in the file")
	}
}

func TestLimits(t *testing.T) {
	for _, v := range []xdr.Marshaler{NameT(make([]byte, MAXNAME+1)), Blob(make([]byte, 101)), Counts(make([]uint64, 9))} {
		if _, err := xdr.Marshal(v); !errors.Is(err, xdr.ErrTooLong) {
			t.Errorf("%T: %v", v, err)
		}
	}
	if err := xdr.Unmarshal(append([]byte{0, 0, 0, MAXNAME + 1}, make([]byte, 36)...), new(NameT)); !errors.Is(err, xdr.ErrTooLong) {
		t.Error(err)
	}
}
