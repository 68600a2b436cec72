package ranks

import (
	"encoding/binary"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// A note is some text in a piece of exported memory. It lies at the end of the
// piece, its length in the last word: that is stored last, so a reader that finds
// a length there has the text too.

// maxTable bounds the table of ranks, maxFailure what a failing member can say.
const (
	maxTable   = 1 << 16
	maxFailure = 1 << 10
)

// seal makes a note of text: it is padded to whole words.
func seal(text []byte) []byte {
	w := vmmc.WordSize()
	out := make([]byte, (len(text)+w-1)/w*w, len(text)+2*w)
	copy(out, text)
	return binary.LittleEndian.AppendUint32(out, uint32(len(text)))
}

// unseal finds the text in a piece of memory.
func unseal(area []byte) ([]byte, error) {
	w := vmmc.WordSize()
	body := area[:len(area)-w]
	n := binary.LittleEndian.Uint32(area[len(body):])
	padded := (uint64(n) + uint64(w) - 1) / uint64(w) * uint64(w)
	if padded > uint64(len(body)) {
		return nil, fmt.Errorf("a text of %d bytes was announced in %d bytes of memory", n, len(body))
	}
	text := body[uint64(len(body))-padded:]
	return text[:n], nil
}

// short cuts text to what an area of size bytes holds.
func short(text string, size int) []byte {
	return []byte(text[:min(len(text), size-2*vmmc.WordSize())])
}
