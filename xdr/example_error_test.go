package xdr_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/xdr"
)

// An error says at which byte it is, and of which kind.
func ExampleError() {
	b, err := xdr.Marshal(&entry{Name: "file", Kind: 1, Data: []byte{1}})
	check(err)
	change := func(i int, to byte) []byte {
		c := slices.Clone(b)
		c[i] = to
		return c
	}
	for _, c := range [][]byte{b[:8], append(b, 0), change(2, 1), change(11, 9), change(19, 2)} {
		var e *xdr.Error
		if errors.As(xdr.Unmarshal(c, new(entry)), &e) {
			fmt.Printf("%s at byte %d: %s\n", e.Op, e.Offset, meaning(e.Err))
		}
	}
	d := xdr.NewDecoder([]byte{0, 0, 0, 1, 0, 0, 0, 0}, xdr.Copy)
	d.Limit(4000)
	xdr.Slice[[1000]int64](d, nil, d.Len(1, 4))
	fmt.Println(meaning(d.Err()))
	var e xdr.Encoder
	e.ResetFixed(make([]byte, 0, 16))
	e.String("a longer string", 255)
	fmt.Println(meaning(e.Err()))
	// Output:
	// decode at byte 8: part of the message is missing
	// decode at byte 32: more follows the message
	// decode at byte 4: a string, data or an array is longer than declared
	// decode at byte 12: the sender writes another type, or no XDR
	// decode at byte 16: the sender writes another type, or no XDR
	// the message may be an attack
	// the buffer is too small
}

// meaning is what each kind of error says of the message.
func meaning(err error) string {
	switch {
	case errors.Is(err, xdr.ErrShort):
		return "part of the message is missing"
	case errors.Is(err, xdr.ErrTrailing):
		return "more follows the message"
	case errors.Is(err, xdr.ErrTooLong):
		return "a string, data or an array is longer than declared"
	case errors.Is(err, xdr.ErrPadding), errors.Is(err, xdr.ErrValue):
		return "the sender writes another type, or no XDR"
	case errors.Is(err, xdr.ErrMemory), errors.Is(err, xdr.ErrDepth):
		return "the message may be an attack"
	case errors.Is(err, xdr.ErrNoSpace):
		return "the buffer is too small"
	}
	return "a rule of the type is broken"
}
