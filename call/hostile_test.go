package call_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// syncBuffer is a log that goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const (
	questionSize = 72
	answerSize   = 56
)

// request writes a request to a slot of a client's, as no client does.
func request(t *testing.T, lane *vmmc.Import, i int, kind uint32, number uint64) {
	t.Helper()
	form := call.ShapeOf(questionSize, answerSize, 2)
	var b [questionSize + 8]byte
	binary.NativeEndian.PutUint32(b[questionSize:], kind)
	binary.NativeEndian.PutUint32(b[questionSize+4:], uint32(number>>32))
	err := lane.SendSignal(within(t), b[:], form.RequestAt(i), uint32(number), form.RequestWord(i))
	if err != nil {
		t.Fatal(err)
	}
}

// A client that breaks the protocol loses its connection. Others go on.
func TestFalseClient(t *testing.T) {
	log := &syncBuffer{}
	w := ways[0].start(t, plainly, call.Logger(slog.New(slog.NewTextHandler(log, nil))))
	good := w.dial(t)
	for what, lie := range map[string]func(c *call.Client[question, answer]){
		"an earlier number": func(c *call.Client[question, answer]) { request(t, c.Lane(), 0, call.Runs, 3) },
		"number 0": func(c *call.Client[question, answer]) {
			request(t, c.Lane(), 1, call.Runs, 1<<32) // whose low word is 0: it is not seen
			request(t, c.Lane(), 1, call.Runs, 2<<32) // nor is this
			request(t, c.Lane(), 0, call.Runs, 0)     // the connection may end at once
		},
		"a kind": func(c *call.Client[question, answer]) { request(t, c.Lane(), 1, 77, 1<<40+1) },
		"kind 0": func(c *call.Client[question, answer]) { request(t, c.Lane(), 1, 0, 1<<40+1) },
	} {
		t.Run(what, func(t *testing.T) {
			c := w.dial(t, call.Slots(2))
			for i := range 5 {
				if err := get(within(t), c, ask(1, uint64(i), plain)); err != nil {
					t.Fatal(err)
				}
			}
			lie(c)
			eventually(t, "the client has lost its connection", func() bool { return c.Lane().Err() != nil })
			if err := get(within(t), c, ask(1, 7, plain)); !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("%v", err)
			}
			if err := get(within(t), good, ask(1, 7, plain)); err != nil {
				t.Error(err)
			}
		})
	}
	if n := strings.Count(log.String(), "breaks the protocol"); n != 4 {
		t.Errorf("%d lines: %s", n, log)
	}
}

// A client whose answers have another layout is told why by its lane. If it calls nevertheless, no
// handler runs, as its answer would find no room, and the connection ends.
func TestCallOfARefusedClient(t *testing.T) {
	var runs atomic.Int32
	log := &syncBuffer{}
	w := ways[0].start(t, func(context.Context, *question, *answer) error {
		runs.Add(1)
		return nil
	}, call.Logger(slog.New(slog.NewTextHandler(log, nil))))
	p := w.last().Open(t)
	box, err := p.ImportName(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	own, err := pair.Export(func(id uint32) (*view.Local[uint64], error) {
		return view.ExportBytes[uint64](p, id, make([]byte, 72)) // without room for an answer
	})
	if err != nil {
		t.Fatal(err)
	}
	lane, err := pair.Dial(within(t), p, box, 60, own.Export())
	if err != nil {
		t.Fatal(err)
	}
	request(t, lane, 0, call.Runs, 1)
	eventually(t, "the request is done with", func() bool { return runs.Load() > 0 || lane.Err() != nil })
	eventually(t, "the connection ends", func() bool { return w.s.Clients() == 0 })
	if n := runs.Load(); n != 0 || strings.Count(log.String(), "another layout") != 1 {
		t.Errorf("%d handlers have run: %s", n, log)
	}
}

// lockingLog is a logger whose handler takes the server's lock.
type lockingLog struct {
	slog.Handler
	s *atomic.Pointer[call.Server]
}

func (l lockingLog) Handle(ctx context.Context, r slog.Record) error {
	l.s.Load().Clients()
	return l.Handler.Handle(ctx, r)
}

// The server reads a request, which may be long, and logs without its lock: no other worker, and no
// new client, waits for that.
func TestTakesWithoutLock(t *testing.T) {
	var s atomic.Pointer[call.Server]
	var seen atomic.Int32
	log := slog.New(lockingLog{slog.NewTextHandler(io.Discard, nil), &s})
	w := ways[0].start(t, plainly, call.Logger(log))
	s.Store(w.s)
	steps.On(t, func(at string) {
		if at == "serve.seen" {
			seen.Add(int32(w.s.Clients()))
		}
	})
	c := w.dial(t, call.Slots(2))
	if err := get(within(t), c, ask(1, 1, plain)); err != nil {
		t.Fatal(err)
	}
	request(t, c.Lane(), 1, 77, 1<<40+1)
	eventually(t, "the client has lost its connection", func() bool { return c.Lane().Err() != nil })
	if n := seen.Load(); n < 2 {
		t.Errorf("the server has seen %d requests", n)
	}
}

// A lane that cannot be closed when its client ends is closed later: when another client ends, or by
// Close.
func TestLaneClosedLater(t *testing.T) {
	var fails atomic.Bool
	var closed sync.Map // by the ids of exports
	no := errors.New("it cannot be closed")
	closes := call.CloseExport(func(e *vmmc.Export) error {
		if fails.Load() {
			return no
		}
		closed.Store(e.ID(), true)
		return e.Close()
	})
	for _, by := range []string{"the next client's end", "Close"} {
		t.Run(by, func(t *testing.T) {
			w := ways[0].start(t, plainly, closes)
			a, b := w.dial(t), w.dial(t)
			id := a.Lane().ID()
			fails.Store(true)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "its lane cannot be closed", func() bool { return w.s.Unclosed() == 1 })
			if by == "Close" {
				if err := w.s.Close(); !errors.Is(err, no) {
					t.Errorf("a close while a lane cannot be closed: %v", err)
				}
				fails.Store(false)
				if err := w.s.Close(); err != nil {
					t.Error(err)
				}
			} else {
				fails.Store(false)
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "its lane is closed", func() bool {
				_, is := closed.Load(id)
				return is && w.s.Unclosed() == 0
			})
		})
	}
}

// A client that overwrites the slots of its calls while they run spoils nothing but these.
func TestSlotsOverwritten(t *testing.T) {
	g := newGate()
	w := ways[0].start(t, g.handle, call.Handlers(2))
	c, good := w.dial(t, call.Slots(2)), w.dial(t)
	done := g.begin(t, within(t), c, 1)
	for n := range uint64(50) {
		request(t, c.Lane(), 0, call.Runs, 100+n)
		request(t, c.Lane(), 1, call.Runs, 100+n)
		if err := get(within(t), good, ask(1, n, plain)); err != nil {
			t.Fatal(err)
		}
	}
	close(g.open)
	if err := <-done; errors.Is(err, vmmc.ErrTimeout) { // it has its answer, or one to the last request
		t.Error(err)
	}
	if err := get(within(t), good, ask(1, 1, plain)); err != nil {
		t.Error(err)
	}
}

// What a process that may dial writes to the letterbox changes nothing for others.
func TestLetterboxOverwritten(t *testing.T) {
	w := ways[0].start(t, plainly)
	c := w.dial(t)
	box, err := w.last().Open(t).ImportName(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Send(within(t), bytes.Repeat([]byte{0xFF}, box.Size()), 0); err != nil {
		t.Fatal(err)
	}
	if err := get(within(t), c, ask(1, 1, plain)); err != nil {
		t.Error(err)
	}
	_, err = call.Dial[question, answer](within(t), w.last().Open(t), name)
	if !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("%v", err)
	}
}

// A third process can import neither side's slots.
func TestThirdProcess(t *testing.T) {
	w := ways[0].start(t, plainly)
	c := w.dial(t)
	third := w.last().Open(t)
	from := c.Lane().Exporter()
	_, err := third.Import(within(t), from.Node, from.PID, c.Lane().ID())
	if !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("the server's: %v", err)
	}
}

// A process that is no client of this package is refused.
func TestFalseDialler(t *testing.T) {
	w := ways[0].start(t, plainly)
	p := w.last().Open(t)
	box, err := p.ImportName(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{8, 64, 68, 1 << 20} {
		e, err := pair.Export(func(id uint32) (*vmmc.Export, error) { return p.Export(id, make([]byte, n)) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Dial(within(t), p, box, 60, e); !errors.Is(err, pair.ErrRefused) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if n := w.s.Clients(); n != 0 {
		t.Errorf("%d clients", n)
	}
}

// falseServer answers clients' requests with what a test says.
type falseServer struct {
	p      *vmmc.Process
	box    *view.Local[question]
	lane   *view.Local[answer]
	theirs chan *vmmc.Import
}

// pretend publishes a false server whose lanes have so many bytes.
func pretend(t *testing.T, p *vmmc.Process, size int) *falseServer {
	t.Helper()
	f := &falseServer{p: p, theirs: make(chan *vmmc.Import, 8)}
	l := pair.NewListener(p, func(theirs *vmmc.Import) (uint32, error) {
		var err error
		f.lane, err = pair.Export(func(id uint32) (*view.Local[answer], error) {
			return view.Export[answer](p, id, (size+answerSize-1)/answerSize)
		})
		if err != nil {
			return 0, err
		}
		f.theirs <- theirs
		return f.lane.Export().ID(), nil
	})
	t.Cleanup(l.Close)
	box, err := pair.Export(func(id uint32) (*view.Local[question], error) {
		return view.Export[question](p, id, 1, vmmc.WithHandler(l.Handle))
	})
	if err != nil {
		t.Fatal(err)
	}
	f.box = box
	copy(box.Export().Bytes(), "vmmccl\x00\x01")
	if err := box.Export().PublishAs(within(t), name); err != nil {
		t.Fatal(err)
	}
	return f
}

// A server whose answers have no meaning ends its client's calls with an error, also those that
// follow.
func TestFalseServer(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	form := call.ShapeOf(questionSize, answerSize, 2)
	tail := func(status, text int, number uint64) []byte {
		b := make([]byte, 12)
		call.PutAnswerTail(b, status, text, number)
		return b
	}
	for what, b := range map[string][]byte{
		"another number":       tail(call.Succeeded, 0, 2),
		"another high word":    tail(call.Succeeded, 0, 1<<32|1),
		"status 0":             tail(0, 0, 1),
		"an unknown status":    tail(77, 0, 1),
		"voided":               tail(call.Voided, 0, 1),
		"a long error":         tail(call.Failed, call.MaxText+1, 1),
		"a huge error":         tail(call.Failed, 1<<24-1, 1),
		"a success with text":  tail(call.Succeeded, 5, 1),
		"a refusal with text":  tail(call.NotRun, 5, 1),
		"a panic without end":  tail(call.Panicked, 1<<23, 1),
		"an odd error's slots": tail(call.Failed, 1<<20+1, 1),
	} {
		t.Run(what, func(t *testing.T) {
			f := pretend(t, node.Open(t), 4096)
			c := dial(t, node.Open(t), call.Slots(2))
			theirs := <-f.theirs
			steps.On(t, func(s string) {
				if s == "call.sent" {
					if err := theirs.Send(within(t), b, form.AnswerEnd(0)-len(b)); err != nil {
						t.Error(err)
					}
				}
			})
			err := get(within(t), c, ask(1, 1, plain))
			if !errors.Is(err, vmmc.ErrProtocol) || !errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("%v", err)
			}
			err = get(within(t), c, ask(1, 2, plain))
			if !errors.Is(err, vmmc.ErrProtocol) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// A server that overwrites slots without calls, and answers late calls falsely, harms no more.
func TestFalseServerOverwrites(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	f := pretend(t, node.Open(t), 4096)
	c := dial(t, node.Open(t), call.Slots(2))
	theirs := <-f.theirs
	giveUp(t, c, ask(1, 1, plain))
	n := theirs.Size() - 64
	if err := theirs.Send(within(t), bytes.Repeat([]byte{0xA5}, n), 64); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(within(t), time.Millisecond)
	defer cancel()
	if err := get(soon, c, ask(1, 2, plain)); err == nil {
		t.Error("a call has succeeded")
	}
	c.Sweep()
	if err := get(within(t), c, ask(1, 3, plain)); !errors.Is(err, vmmc.ErrProtocol) {
		t.Errorf("%v", err)
	}
}

// A server whose buffer for requests is too small is none.
func TestSmallLane(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	pretend(t, node.Open(t), 128)
	_, err := call.Dial[question, answer](within(t), node.Open(t), name)
	if !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("%v", err)
	}
}

// An answer that is no whole number of words has nothing of an earlier one, which may have been
// another client's, behind it.
func TestPaddingOfAnswers(t *testing.T) {
	b := bytes.Repeat([]byte{0xFF}, 64)
	for n := range 9 {
		got := call.PutText(b, call.Failed, strings.Repeat("a", n), 7)
		if tail := got[n : (n+3)&^3]; !bytes.Equal(tail, make([]byte, len(tail))) {
			t.Errorf("%x is behind %d bytes of text", tail, n)
		}
	}
}

// The text of a false server's error is valid UTF-8 all the same.
func FuzzAnswer(f *testing.F) {
	b := make([]byte, 1088)
	f.Add(b, uint64(1))
	for _, status := range []int{call.Succeeded, call.Failed, call.Panicked, call.NotRun, call.Voided, 0, 9} {
		for _, n := range []int{0, 1, 3, 4, call.MaxText, call.MaxText + 1, 1<<24 - 1} {
			b := bytes.Repeat([]byte{0xC3}, 1088)
			call.PutAnswerTail(b, status, n, 5)
			f.Add(b, uint64(5))
		}
	}
	f.Add(call.PutText(make([]byte, 1088), call.Failed, "no such item", 1<<40+7), uint64(1<<40+7))
	f.Fuzz(func(t *testing.T, b []byte, number uint64) {
		if len(b) < 1012 { // a slot has room for a text
			return
		}
		status, text, err := call.ReadAnswer(b, number)
		if err != nil {
			return
		}
		if status < call.Succeeded || status > call.Voided {
			t.Errorf("status %d", status)
		}
		if !utf8.ValidString(text) || len(text) > 3*call.MaxText {
			t.Errorf("a text of %d bytes", len(text))
		}
		if got := binary.NativeEndian.Uint32(b[len(b)-4:]); got != uint32(number) {
			t.Errorf("number %d, want %d", got, uint32(number))
		}
	})
}

// Whatever text an error has, the client gets a beginning of it that is valid, and whole if it is
// short.
func FuzzText(f *testing.F) {
	f.Add("no such item")
	f.Add(strings.Repeat("é", 700))
	f.Add("a\xff" + strings.Repeat("\xff\xfe", 800))
	f.Fuzz(func(t *testing.T, text string) {
		b := make([]byte, 1088)
		m := call.PutText(b, call.Failed, text, 9)
		if len(m)%4 != 0 {
			t.Fatalf("a message of %d bytes", len(m))
		}
		_, got, err := call.ReadAnswer(b, 9)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !utf8.ValidString(got) || len(got) > call.MaxText:
			t.Errorf("%d bytes: %q", len(got), got)
		case len(text) <= call.MaxText && utf8.ValidString(text) && got != text:
			t.Errorf("%q, want %q", got, text)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(make([]byte, 8), uint32(0), uint64(0))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, uint32(1), uint64(0))
	f.Add([]byte{2, 0, 0, 0, 1, 0, 0, 0}, uint32(1), uint64(1<<32))
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255}, uint32(1<<32-1), uint64(1<<64-1))
	f.Fuzz(func(t *testing.T, b []byte, last uint32, before uint64) {
		if len(b) < 8 {
			return
		}
		number, kind, err := call.ReadRequest(b, last, before)
		if err == nil && (number <= before || uint32(number) != last || kind != call.Runs && kind != call.Void) {
			t.Errorf("number %d of kind %d, after %d", number, kind, before)
		}
	})
}
