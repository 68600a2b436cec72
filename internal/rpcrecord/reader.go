// Package rpcrecord is SunRPC's record marking, RFC 5531, section 11: how messages lie in a stream.
package rpcrecord

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// MarkLen is the length of a fragment's header.
const MarkLen = 4

const (
	last  = 1 << 31
	small = 32 << 10
	// empty is how many fragments without anything in them a record may have: each is four bytes of
	// the stream and none of memory, so they would never end.
	empty = 16
)

// What a stream may do wrong.
var (
	ErrTooLong = errors.New("record is longer than is taken here")
	ErrEmpty   = errors.New("record has too many empty fragments")
)

// Mark writes into b the header of a record whose n bytes are one fragment.
func Mark(b []byte, n int) { binary.BigEndian.PutUint32(b, last|uint32(n)) }

// Reader takes records off a stream.
type Reader struct {
	r       *bufio.Reader
	max     int
	waiting func(inside bool)
	mark    [MarkLen]byte
}

// NewReader returns a Reader of records of at most max bytes. Before it may have to wait for more
// of a record it calls waiting with true, and where that was so, with false when the record is
// there; so a record can be given a time. It may be nil.
func NewReader(r io.Reader, max int, waiting func(inside bool)) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, small), max: max, waiting: waiting}
}

// Next appends the next record to b. Where the stream ends between records the error is io.EOF.
// After an error the stream has no more records. It takes memory as the bytes come, whatever their
// header promises.
func (r *Reader) Next(b []byte) ([]byte, error) {
	from, idle, told := len(b), 0, false
	defer func() {
		if told {
			r.waiting(false)
		}
	}()
	for first := true; ; first = false {
		if first { // between records nothing is waited for
			if _, err := r.r.Peek(1); err != nil {
				return b, err
			}
		}
		told = r.tell(MarkLen, told)
		if _, err := io.ReadFull(r.r, r.mark[:]); err != nil {
			return b, unexpected(err)
		}
		v := binary.BigEndian.Uint32(r.mark[:])
		n := int(v &^ last)
		if n > r.max-(len(b)-from) {
			return b, fmt.Errorf("%w: %d bytes and more, %d at most", ErrTooLong, len(b)-from+n, r.max)
		}
		if n == 0 {
			if idle++; idle > empty {
				return b, ErrEmpty
			}
		}
		told = r.tell(n, told)
		var err error
		if b, err = r.fragment(b, n); err != nil {
			return b, unexpected(err)
		}
		if v&last != 0 {
			return b, nil
		}
	}
}

// tell reports whether the Reader may wait for n bytes.
func (r *Reader) tell(n int, told bool) bool {
	if told || r.waiting == nil || r.r.Buffered() >= n {
		return told
	}
	r.waiting(true)
	return true
}

// fragment appends n bytes, and makes room for no more than were there already, or a little.
func (r *Reader) fragment(b []byte, n int) ([]byte, error) {
	for n > 0 {
		b = slices.Grow(b, min(n, max(small, len(b))))
		step := min(n, cap(b)-len(b))
		k, err := io.ReadFull(r.r, b[len(b):len(b)+step])
		b = b[:len(b)+k]
		if err != nil {
			return b, err
		}
		n -= step
	}
	return b, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
