package call

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/view"
)

// The letterbox is exported under the name. It has Q's layout as its label, and the magic. Any
// process that may dial can write to it, so nothing else is read there.
const (
	magicOff      = 0  // 8 bytes
	bellOff       = 60 // a word: that of diallers' notifications
	letterboxSize = 64

	magic = "vmmccl\x00\x01"
)

// The client's export has the fingerprint of A's layout as its label. It has the listener's answer,
// and then a slot for each call under way. A message with an answer ends where its slot does, with
//
//	value or text, padded to words | status | number
//
// where status is one of those below and the text's length times 256, and number is 64 bits: those
// of the call, which no other call of the client has. Its low word is the message's last one.
const (
	answersOff  = 64
	answerTail  = 12
	maxText     = 1000 // bytes of an error's text
	statusBits  = 8
	maxSlots    = 1024
	maxBuffer   = 1 << 30
	defaultSlot = 16
)

// What an answer is.
const (
	succeeded = iota + 1
	failed    // with the handler's error as text
	panicked
	notRun // the server shuts down
	voided // it was not, and will not be run
)

// The server's export for one client has the layout of A as its label. It has a word for each slot
// at its beginning, and then the slots, each with
//
//	value, padded to words | kind | high word of the number
//
// The number's low word is the slot's word at the beginning: it is the last word of the message. So
// the server sees in one cache line whether the client has sent a request. With large values it
// lies behind the slot's number instead, as a message whose last word lies elsewhere takes a round
// trip more.
const (
	requestTail = 8
	largeValue  = 48 << 10
	lineSize    = 64
)

// What a request is.
const (
	runs = iota + 1
	void // in place of one that may not have arrived; has its number
)

const wordSize = 4

func words(n int) int { return (n + wordSize - 1) / wordSize * wordSize }
func lines(n int) int { return (n + lineSize - 1) / lineSize * lineSize }

// shape is how the slots lie in both exports.
type shape struct {
	request, answer int // bytes of the values
	count           int // of slots
}

// large reports whether the number's low word lies in the slot.
func (s *shape) large() bool { return s.request > largeValue }

func (s *shape) requestStride() int { return lines(words(s.request) + requestTail + wordSize) }

// requestAt is where slot i's request lies.
func (s *shape) requestAt(i int) int {
	if s.large() {
		return i * s.requestStride()
	}
	return lines(s.count*wordSize) + i*s.requestStride()
}

// requestWord is where the low word of the number of slot i's request lies.
func (s *shape) requestWord(i int) int {
	if s.large() {
		return s.requestAt(i) + words(s.request) + requestTail
	}
	return i * wordSize
}

// requestsSize is the size of the server's export: whole answers, as the label says.
func (s *shape) requestsSize() int {
	return (s.requestAt(s.count) + s.answer - 1) / s.answer * s.answer
}

func (s *shape) answerStride() int { return lines(max(words(s.answer), maxText) + answerTail) }

// answerEnd is where slot i's answer ends.
func (s *shape) answerEnd(i int) int { return answersOff + (i+1)*s.answerStride() }

// answersSize is the size of the client's export.
func (s *shape) answersSize() int { return s.answerEnd(s.count - 1) }

// withSlots is a shape with so many slots, or why it cannot be.
func (s shape) withSlots(n int) (shape, error) {
	if s.count = n; n < 1 || n > maxSlots {
		return s, fmt.Errorf("%d slots: at least 1, and at most %d", n, maxSlots)
	}
	if most := maxBuffer / n; s.requestStride() > most || s.answerStride() > most {
		return s, fmt.Errorf("%d slots of %d and %d bytes: at most %d bytes", n, s.requestStride(),
			s.answerStride(), maxBuffer)
	}
	return s, nil
}

// slotsOf is how many slots a client's export of so many bytes has, or 0.
func (s *shape) slotsOf(size int) int {
	if n := size - answersOff; n > 0 && n%s.answerStride() == 0 {
		return n / s.answerStride()
	}
	return 0
}

// putAnswerTail writes the tail at the end of b.
func putAnswerTail(b []byte, status, text int, number uint64) {
	b = b[len(b)-answerTail:]
	binary.NativeEndian.PutUint32(b, uint32(text<<statusBits|status))
	binary.NativeEndian.PutUint32(b[wordSize:], uint32(number>>32))
	binary.NativeEndian.PutUint32(b[2*wordSize:], uint32(number))
}

// putText writes an answer with a text at the end of b, and returns it. The text is cut off where
// it is too long, and valid UTF-8.
func putText(b []byte, status int, text string, number uint64) []byte {
	if len(text) > maxText {
		text = text[:maxText]
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	for cut := maxText; len(text) > maxText; cut-- {
		if utf8.RuneStart(text[cut]) {
			text = text[:cut]
		}
	}
	b = b[len(b)-words(len(text))-answerTail:]
	copy(b, text)
	clear(b[len(text):words(len(text))]) // what was there is of another client's answer
	putAnswerTail(b, status, len(text), number)
	return b
}

// readAnswer reads the tail of a slot's bytes, the server of which may be of another package. b
// must not change meanwhile but by such a server.
func readAnswer(b []byte, number uint64) (status int, text string, err error) {
	tail := b[len(b)-answerTail:]
	got := uint64(binary.NativeEndian.Uint32(tail[wordSize:]))<<32 |
		uint64(binary.NativeEndian.Uint32(tail[2*wordSize:]))
	if got != number {
		return 0, "", fmt.Errorf("the answer has number %d instead of %d", got, number)
	}
	word := binary.NativeEndian.Uint32(tail)
	status, n := int(word&(1<<statusBits-1)), int(word>>statusBits)
	switch status {
	case failed, panicked:
		if n > maxText {
			return 0, "", fmt.Errorf("the answer has an error of %d bytes", n)
		}
		end := len(b) - answerTail - words(n) + n
		return status, strings.ToValidUTF8(string(b[end-n:end]), "\uFFFD"), nil
	case succeeded, notRun, voided:
		if n == 0 {
			return status, "", nil
		}
	}
	return 0, "", fmt.Errorf("the answer has status %#x", word)
}

// readRequest reads the number of a request and what it is, of which b is the tail and last the low
// word. The number of the slot's last request was before.
func readRequest(b []byte, last uint32, before uint64) (number uint64, kind uint32, err error) {
	kind = binary.NativeEndian.Uint32(b)
	number = uint64(binary.NativeEndian.Uint32(b[wordSize:]))<<32 | uint64(last)
	if number <= before {
		return 0, 0, fmt.Errorf("a request has number %d after %d", number, before)
	}
	if kind != runs && kind != void {
		return 0, 0, fmt.Errorf("request %d is of kind %d", number, kind)
	}
	return number, kind, nil
}

// RemoteError is an error that a handler has returned, or that says that it has panicked.
//
// Experimental: it may change in any release.
type RemoteError struct {
	// Text is the beginning of the error's text: valid UTF-8, at most 1,000 bytes.
	Text string
	// Panicked reports whether the handler has panicked. The text does not say with what.
	Panicked bool
}

// Error is the text.
func (e *RemoteError) Error() string { return e.Text }

// ServeOption changes what [Serve] does.
//
// Experimental: it may change in any release.
type ServeOption func(*serveOptions)

// DialOption changes what [Dial] does.
//
// Experimental: it may change in any release.
type DialOption func(*dialOptions)

type dialOptions struct {
	slots  int
	number uint64              // of the last call
	export []vmmc.ExportOption // of the answers
}

// Slots is how many calls of the client may be under way at a time; without it that is 16. Others
// wait. It is at most 1,024, and at most what the server allows ([MaxSlots]).
//
// Experimental: it may change in any release.
func Slots(n int) DialOption { return func(o *dialOptions) { o.slots = n } }

// typed is what both sides have of a type.
type typed[T any] struct {
	values shm.Values[T]
	size   int
	print  []byte // the fingerprint of its layout
}

func typeOf[T any]() (t typed[T], err error) {
	l, err := view.LayoutOf[T]()
	if err != nil {
		return t, err
	}
	t.size = l.Size
	t.print = binary.NativeEndian.AppendUint64(nil, l.Fingerprint())
	t.values, err = shm.ValuesOf[T]()
	return t, err
}

// exportAs exports memory with T's layout as its label.
func exportAs[T any](
	p *vmmc.Process, mem *vmmc.Memory, opts []vmmc.ExportOption,
) (*vmmc.Export, error) {
	l, err := pair.Export(func(id uint32) (*view.Local[T], error) {
		return view.ExportBytes[T](p, id, mem.Bytes(), opts...)
	})
	if err != nil {
		return nil, err
	}
	return l.Export(), nil
}
