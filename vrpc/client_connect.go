package vrpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Meeting is the number of the buffer by which clients find a server in a process, unless they and
// the server agree on another: "vRPC".
const Meeting = 0x76525043

// The buffer has places, each of which begins with the time when a client took it, 0 if none has.
// The client writes its letter after it, with a notification. A place that was taken long ago is
// free: its client has died. If it lives and writes all the same, that spoils another's letter,
// whose writer writes again.
const (
	meetingPlaces = 64
	meetingSize   = 256
	letterSize    = meetingSize - 4
	letterVersion = 1
	maxNodeName   = letterSize - 32
	takenTime     = 10 // seconds
	writeAgain    = 2 * time.Second
)

// What a server answers, at the beginning of the client's buffer: version, number, entries, area
// and this.
const (
	helloSize    = 20
	proofAt      = 32 // of the client's buffer: what shows the server that it is the letter's writer's
	helloWelcome = 1
	helloFull    = 2
	helloBad     = 3
)

// connectMessage is what a client writes: token | version | buffer | slots | area | pid | length |
// node … token.
type connectMessage struct {
	token                    uint32
	buffer, slots, area, pid uint32
	node                     string
}

func (l *connectMessage) bytes() []byte {
	b := make([]byte, 0, letterSize)
	for _, v := range [...]uint32{l.token, letterVersion, l.buffer, l.slots, l.area, l.pid, uint32(len(l.node))} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = append(b, l.node...)[:letterSize]
	binary.LittleEndian.PutUint32(b[letterSize-4:], l.token)
	return b
}

// proof is what the writer of the letter has in its buffer. A server may write to buffers of
// processes that know nothing of RPC, and a letter may name any.
func (l *connectMessage) proof() (b [8]byte) {
	binary.LittleEndian.PutUint32(b[:], Meeting)
	binary.LittleEndian.PutUint32(b[4:], l.token)
	return b
}

// parseConnectMessage parses a connect message that any process may have written. ok reports
// whether it is one.
func parseConnectMessage(b []byte) (l connectMessage, ok bool) {
	var v [7]uint32
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	n := v[6]
	if v[1] != letterVersion || n > maxNodeName ||
		binary.LittleEndian.Uint32(b[letterSize-4:]) != v[0] {
		return l, false
	}
	return connectMessage{v[0], v[2], v[3], v[4], v[5], string(b[28 : 28+n])}, true
}

// deliver writes the letter into a place of the server's buffer.
func (l *connectMessage) deliver(ctx context.Context, meet *vmmc.Import) error {
	for {
		first := rand.IntN(meetingPlaces) //nolint:gosec // so that clients seldom meet
		for i := range meetingPlaces {
			at := (first + i) % meetingPlaces * meetingSize
			now := uint32(time.Now().Unix())
			old, taken, err := meet.CompareAndSwap32(ctx, at, 0, now)
			if err == nil && !taken && now-old > takenTime && old-now > takenTime {
				_, taken, err = meet.CompareAndSwap32(ctx, at, old, now)
			}
			if err != nil {
				return err
			}
			if taken {
				return meet.SendNotify(ctx, l.bytes(), at+4)
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// DialVMMC connects to the server that a process has under the number of a buffer, mostly
// [Meeting], by remote memory: p is this program's process. It waits for the server as long as ctx
// allows. Close the client before p. [WithArea] bounds its messages. Where the server is in the
// same program, give each side a Process of its own: with one, they wake each other for each call,
// which takes many times as long.
func DialVMMC(
	ctx context.Context, p *vmmc.Process, server vmmc.ProcessID, number uint32, opts ...ClientOption,
) (*Client, error) {
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	w, err := connect(ctx, p, server, number, &c.clientSettings)
	if err != nil {
		return nil, fmt.Errorf("vrpc: connect to %v: %w", server, err)
	}
	c.transport = w
	return c, nil
}

// connect writes a letter and waits for the answer.
func connect(
	ctx context.Context, p *vmmc.Process, server vmmc.ProcessID, number uint32, s *clientSettings,
) (*vmmcTransport, error) {
	meet, err := p.Import(ctx, server.Node, server.PID, number)
	if err != nil {
		return nil, err
	}
	defer meet.Close()
	name, err := p.NodeToName(p.Node())
	if err != nil {
		return nil, err
	}
	if len(name) > maxNodeName {
		return nil, fmt.Errorf("the name of node %q is too long", name)
	}
	in, err := newInbox(p, clientLayout(s.slots, s.area), server, rand.Uint32, s.exports)
	if err != nil {
		return nil, err
	}
	l := connectMessage{rand.Uint32(), in.exp.ID(), uint32(s.slots), uint32(s.area), uint32(p.PID()), name} //nolint:gosec // the token only shows a letter that was overwritten
	proof := l.proof()
	copy(in.mem.Bytes()[proofAt:], proof[:])
	w, err := meetServer(ctx, p, meet, &l, in, s.decoded)
	if err != nil {
		in.close()
		return nil, err
	}
	return w, nil
}

func meetServer(
	ctx context.Context, p *vmmc.Process, meet *vmmc.Import, l *connectMessage, in *inbox,
	decoded int,
) (*vmmcTransport, error) {
	word, err := in.exp.Word(helloSize - 4)
	if err != nil {
		return nil, err
	}
	answer := uint32(0)
	for answer == 0 {
		if err := l.deliver(ctx, meet); err != nil {
			return nil, err
		}
		again, stop := context.WithTimeout(ctx, writeAgain)
		answer, err = meet.WaitWord(again, word, 0)
		over := again.Err() != nil && ctx.Err() == nil
		stop()
		if err != nil && !over {
			return nil, err
		}
	}
	hello := in.mem.Bytes()
	switch {
	case answer == helloFull:
		return nil, fmt.Errorf("%w: the server has as many connections as it may", ErrLost)
	case answer != helloWelcome || binary.LittleEndian.Uint32(hello) != letterVersion:
		return nil, fmt.Errorf("the server answered %d: %w", answer, errEntry)
	}
	out := serverLayout(int(binary.LittleEndian.Uint32(hello[8:])), int(binary.LittleEndian.Uint32(hello[12:])))
	q, err := p.Import(ctx, meet.Exporter().Node, meet.Exporter().PID, binary.LittleEndian.Uint32(hello[4:]))
	if err != nil {
		return nil, err
	}
	if !out.right(q.Size()) || out.entries > in.entries {
		_ = q.Close()
		return nil, errEntry
	}
	return newVMMCTransport(q, out, in, decoded), nil
}

// right reports whether a buffer of n bytes can be divided so.
func (l layout) right(n int) bool {
	return l.entries > 0 && l.entries <= maxEntries && l.area >= 0 && l.area <= maxArea &&
		l.area%unit == 0 && l.size() == n
}

const (
	maxEntries = 1 << 12
	maxArea    = 1 << 30
)
