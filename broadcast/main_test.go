package broadcast_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	pair.Step = steps.At
	vmmctest.Role("writer", writeLog)
	vmmctest.Role("reader", readLog)
	vmmctest.Main(m)
}

// bound is a guard against hanging.
const bound = testutil.Bound

var (
	within     = testutil.Context
	eventually = testutil.Eventually
)

// length is that of entry i: all lengths, 0 too.
func length(i int) int { return i * 7 % 61 }

// entry is entry i of a log, which can be told from a torn one: its number and a check stand before
// and behind, if it is long enough. All entries of fewer bytes are prefixes of their numbers.
func entry(i int) []byte { return entryOf(i, length(i)) }

func entryOf(i, n int) []byte {
	b := make([]byte, n)
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(i))
	copy(b, number[:])
	if n < 16 {
		return b
	}
	for k := 8; k < n-4; k++ {
		b[k] = byte(i>>(k%4*8)) ^ byte(k*131)
	}
	binary.LittleEndian.PutUint32(b[n-4:], crc32.ChecksumIEEE(b[:n-4]))
	return b
}

// size is how many bytes of the log an entry takes.
func size(n int) uint64 { return uint64(8 + (n+3)/4*4) }

// track follows what a reader gets of a log of which entry i is entry(i), at positions that follow
// from the lengths before.
type track struct {
	at    map[uint64]int // the entries by their positions
	ends  uint64         // the position behind them
	n     int
	next  uint64 // where the reader is to go on
	got   int    // entries
	loss  uint64
	begun bool
}

func newTrack(start uint64) *track {
	return &track{at: map[uint64]int{}, ends: start}
}

// extend makes positions known up to one.
func (s *track) extend(pos uint64) {
	for s.ends <= pos {
		s.at[s.ends] = s.n
		s.ends += size(length(s.n))
		s.n++
	}
}

// add checks what a read has returned. It reports whether that was an entry or an overrun.
func (s *track) add(b []byte, pos uint64, err error) error {
	var over *broadcast.Overrun
	switch {
	case errors.As(err, &over):
		if over.Lost == 0 || b != nil {
			return fmt.Errorf("an overrun of %d bytes, with %d bytes", over.Lost, len(b))
		}
		s.next += over.Lost
		s.loss += over.Lost
		return nil
	case err != nil:
		return err
	case s.begun && pos != s.next:
		return fmt.Errorf("an entry at %d, want one at %d", pos, s.next)
	}
	s.begun = true
	s.extend(pos)
	i, ok := s.at[pos]
	if !ok {
		return fmt.Errorf("no entry was appended at %d", pos)
	}
	if !bytes.Equal(b, entry(i)) {
		return fmt.Errorf("entry %d at %d is %x, want %x", i, pos, b, entry(i))
	}
	s.next = pos + size(len(b))
	s.got++
	return nil
}

// ringSize is that of the logs of children.
const ringSize = 4096

// writeLog is a child: name, entries, step, how often, file. It appends entries once a reader waits,
// and closes the log.
func writeLog(ctx context.Context, p *vmmc.Process, args ...string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	steps.PauseAt(args[2], args[3], args[4])
	w, err := broadcast.NewWriter(ctx, p, args[0], ringSize, broadcast.StartAt(0))
	if err != nil {
		return err
	}
	for i := range n {
		for i == 0 && w.Waiting() == 0 {
			time.Sleep(time.Millisecond)
		}
		if _, err := w.Append(entry(i)); err != nil {
			return err
		}
	}
	return w.Close(ctx)
}

// readLog is a child: name, step, how often, file. It reads to the log's end, checks all, and prints
// how many entries it has got and how many bytes it has lost.
func readLog(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[1], args[2], args[3])
	r, err := broadcast.NewReader(ctx, p, args[0], broadcast.Oldest)
	if err != nil {
		return err
	}
	fmt.Println("joined")
	s := newTrack(0)
	for buf := []byte(nil); ; {
		b, pos, err := r.Next(ctx, buf)
		if errors.Is(err, broadcast.ErrEnded) {
			break
		}
		if err := s.add(b, pos, err); err != nil {
			return err
		}
		buf = b
	}
	fmt.Println(s.got, s.loss)
	return r.Close()
}

// way is how entries travel.
type way struct {
	name     string
	nodes    int
	unmapped bool
}

var ways = []way{{"mapped", 1, false}, {"stream", 1, true}, {"between nodes", 2, false}}

var deathWays = []way{ways[0], ways[2]}

const name = "n1/log"

// start starts nodes, and a writer on the first one. Readers are on the last one.
func (w way) start(
	t testing.TB, size int, opts ...broadcast.Option,
) (nodes []*vmmctest.Node, log *broadcast.Writer) {
	t.Helper()
	nodes = vmmctest.Nodes(t, w.nodes)
	return nodes, w.writer(t, nodes[0].Open(t), size, opts...)
}

// writer makes a writer whose entries travel that way.
func (w way) writer(
	t testing.TB, p *vmmc.Process, size int, opts ...broadcast.Option,
) *broadcast.Writer {
	t.Helper()
	if w.unmapped {
		opts = append(opts, broadcast.Unmapped())
	}
	return newWriter(t, p, size, opts...)
}

func newWriter(
	t testing.TB, p *vmmc.Process, size int, opts ...broadcast.Option,
) *broadcast.Writer {
	t.Helper()
	opts = append([]broadcast.Option{broadcast.StartAt(0)}, opts...) // what tracks begin with
	w, err := broadcast.NewWriter(within(t), p, name, size, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(ended()); err != nil && !errors.Is(err, vmmc.ErrCanceled) {
			t.Error(err)
		}
	})
	return w
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}

func newReader(t testing.TB, p *vmmc.Process, from broadcast.Start) *broadcast.Reader {
	t.Helper()
	r, err := broadcast.NewReader(within(t), p, name, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// appendAll appends entries first to first+n-1.
func appendAll(t testing.TB, w *broadcast.Writer, first, n int) {
	t.Helper()
	for i := range n {
		if _, err := w.Append(entry(first + i)); err != nil {
			t.Fatal(err)
		}
	}
}

// read reads n entries without an overrun.
func read(t testing.TB, r *broadcast.Reader, s *track, n int) {
	t.Helper()
	ctx := within(t)
	for buf := []byte(nil); n > 0; n-- {
		b, pos, err := r.Next(ctx, buf)
		if err := errors.Join(err, s.add(b, pos, err)); err != nil {
			t.Fatal(err)
		}
		buf = b
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
