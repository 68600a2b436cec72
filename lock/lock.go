package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// The letterbox is exported under the name. Any process that may open the lock can write to it, so
// nothing is read there by those that have it open, but a counter's number. One that overwrites the
// magic keeps others from opening it.
const (
	magicOff      = 0  // 8 bytes
	kindOff       = 8  // a word: what is hosted
	countOff      = 16 // 8 bytes: a counter's number
	bellOff       = 60 // a word: that of clients' requests to connect
	letterboxSize = 64

	magic = "vmmclk\x00\x01"
)

// kind is what a server hosts.
type kind uint32

const (
	kindMutex kind = 1 + iota
	kindSemaphore
	kindOnce
	kindCounter
)

func (k kind) String() string {
	switch k {
	case kindMutex:
		return "mutex"
	case kindSemaphore:
		return "semaphore"
	case kindOnce:
		return "once"
	case kindCounter:
		return "counter"
	}
	return fmt.Sprintf("object of kind %d", uint32(k))
}

// A lane is the host's export for one client: the client's lease, and the word of its
// notifications. No other client can write there, so what a client stores concerns itself alone.
const (
	leaseOff = 0 // 8 bytes
	opOff    = 8 // a word
	laneSize = 64
)

// A client's export has the listener's answer and those to its requests: a message of 8 bytes and,
// last, the request's number.
const (
	answerOff  = 64
	answerSize = 12
	seqOff     = answerOff + 8
	clientSize = answerOff + 64
)

// A lease is a 64-bit value: a token, and flags. It is in the client's lane, where 0 says that the
// client has none, and in answers, where 0 says that the lock is not free. The host counts up the
// token's upper part with each lease, the client the lower one with each lock by it (docs/models:
// lock).
const (
	died     = 1 << 0 // a holder died, and no later one has repaired what the lock protects
	held     = 1 << 1 // the client has the lock
	recalled = 1 << 2 // in answers: the lane has 0 already, as others wait
	flags    = died | held | recalled

	tokenShift = 3
	countBits  = 16
	epochShift = tokenShift + countBits
	countMask  = (1<<countBits - 1) << tokenShift
	oneLock    = 1 << tokenShift
)

// What a client notifies the host of: the number of its request, an operation and a mark.
const (
	opRequest  = 1 + iota // it waits for the lock
	opTry                 // it wants an answer at once
	opWithdraw            // it waits no more
	opRelease             // it gives the lock back. The mark: a holder died, and nothing was repaired
	opClose               // it leaves. The mark: it has the lock

	markBit  = 1
	opShift  = 1
	opMask   = 7
	seqShift = 4
	maxSeq   = 1<<(32-seqShift) - 1
)

func opWord(op, seq uint32, mark bool) (w uint32) {
	if mark {
		w = markBit
	}
	return w | op<<opShift | seq<<seqShift
}

// Option changes what [Host] and its like do.
//
// Experimental: it may change in any release.
type Option func(*options)

type options struct {
	clients int
	after   uint64
	follows bool
	permit  []vmmc.ExportOption // of the letterbox
	export  []vmmc.ExportOption // of lanes
}

var defaults = options{clients: 1024}

// MaxClients is how many clients there may be at a time; without it that is 1,024. [Open] of the
// next one fails with [vmmc.ErrNoMem].
//
// Experimental: it may change in any release.
func MaxClients(n int) Option { return func(o *options) { o.clients = n } }

// Permit lets exactly the processes open the lock that match one of perms, as [vmmc.Permit] does.
// One that may open it can also hold it for ever, and keep others from opening it later.
//
// Experimental: it may change in any release.
func Permit(perms ...vmmc.Permission) Option {
	return func(o *options) { o.permit = append(o.permit, vmmc.Permit(perms...)) }
}

// After is for a host that takes the place of one that has died: all tokens are above token, the
// highest one that what the lock protects has seen, and the first holder finds [Held.Abandoned]. It
// is for mutexes alone.
//
// Experimental: it may change in any release.
func After(token uint64) Option {
	return func(o *options) { o.after, o.follows = token, true }
}

// apply applies opts.
func (o *options) apply(op string, k kind, opts []Option) error {
	for _, f := range opts {
		if f == nil {
			return badArg(op, "an option is nil")
		}
		f(o)
	}
	switch {
	case o.clients < 1:
		return badArg(op, "%d clients: at least 1", o.clients)
	case o.follows && k != kindMutex:
		return badArg(op, "only a mutex has tokens: leave out After")
	case o.clients != defaults.clients && k == kindCounter:
		return badArg(op, "a counter does not know its clients: leave out MaxClients")
	case o.after>>countBits >= 1<<(64-epochShift)-1:
		return badArg(op, "no token of a lock is as high as %d", o.after)
	}
	return nil
}

func badArg(op, format string, args ...any) error {
	return pair.BadArg(op, fmt.Errorf(format, args...))
}

func closedError(op string) error { return pair.ClosedError(op, "it") }

func protocolError(op string, peer vmmc.ProcessID, text string) error {
	return &vmmc.Error{Op: op, Peer: peer.String(), Code: vmmc.ErrProtocol, Err: errors.New(text)}
}

// writeLetterbox fills the letterbox.
func writeLetterbox(b []byte, k kind) {
	copy(b[magicOff:], magic)
	binary.NativeEndian.PutUint32(b[kindOff:], uint32(k))
}

// checkLetterbox reports an error if an export is no letterbox of this kind.
func checkLetterbox(ctx context.Context, im *vmmc.Import, k kind) error {
	var b [letterboxSize]byte
	if im.Size() != len(b) {
		return badArg("read its header", "it is no %s: it has %d bytes", k, im.Size())
	}
	if err := im.Get(ctx, b[:], 0); err != nil {
		return err
	}
	if string(b[magicOff:magicOff+len(magic)]) != magic {
		return badArg("read its header", "it is no %s of this version", k)
	}
	if there := kind(binary.NativeEndian.Uint32(b[kindOff:])); there != k {
		return badArg("read its header", "it is a %s and no %s", there, k)
	}
	return nil
}
