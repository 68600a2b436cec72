package simnet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func pair(t interface{ Fatal(...any) }, there, back []Fault) (a, b *net.TCPConn, c *Conn) {
	a, b, c, err := Pair(there, back)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*net.TCPConn{a, b} {
		_ = e.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return a, b, c
}

// However the bytes are written, each fault happens at its byte, through both forms of the network.
func TestFaultsHappenAtTheirBytes(t *testing.T) {
	t.Run("tcp", rapid.MakeCheck(func(rt *rapid.T) {
		through(rt, time.Microsecond, func(there, back []Fault) (a, b end,
			c *Conn,
		) {
			return pair(rt, there, back)
		})
	}))
	t.Run("memory", rapid.MakeCheck(func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			through(rt, time.Hour, func(there, back []Fault) (a, b end,
				c *Conn,
			) {
				return Pipe(there, back)
			})
		})
	}))
}

// through sends bytes one way and compares what comes with what has to.
func through(rt *rapid.T, stall time.Duration, open func(there, back []Fault) (a, b end, c *Conn)) {
	sent := rapid.SliceOfN(rapid.Byte(), 1, 1000).Draw(rt, "sent")
	period := len(sent)
	sent = bytes.Repeat(sent, rapid.SampledFrom([]int{1, 1, 300}).Draw(rt, "times"))
	for i := range sent {
		sent[i] += byte(i / period)
	}
	sizes := rapid.SliceOfN(rapid.IntRange(1, len(sent)), 1, 5).Draw(rt, "sizes")
	faults := drawWay(rt, len(sent), stall)
	var from, to end
	var c *Conn
	var passed func() int64
	if rapid.Bool().Draw(rt, "back") {
		to, from, c = open(nil, faults)
		passed = func() int64 { _, n := c.Passed(); return n }
	} else {
		from, to, c = open(faults, nil)
		passed = func() int64 { n, _ := c.Passed(); return n }
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer c.Close()
	defer func() { _, _ = from.Close(), to.Close() }()
	writing.Go(func() {
		for i, w := 0, sent; len(w) > 0; i++ {
			n := min(len(w), max(sizes[i%len(sizes)], len(sent)/100))
			if _, err := from.Write(w[:n]); err != nil {
				return
			}
			w = w[n:]
		}
		_ = from.CloseWrite()
	})
	want, last := harmed(sent, faults)
	var got []byte
	var err error
	if last == Part {
		got = make([]byte, len(want))
		if _, err := io.ReadFull(to, got); err != nil {
			rt.Fatal(err)
		}
		<-c.parted
		_ = to.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := to.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			rt.Fatalf("%d bytes more, %v", n, err)
		}
	} else {
		got, err = io.ReadAll(to)
	}
	if last == Reset {
		if want = want[:min(len(got), len(want))]; !errors.Is(err, syscall.ECONNRESET) {
			rt.Errorf("a reset connection: %v", err)
		}
	} else if err != nil {
		rt.Error(err)
	}
	if !bytes.Equal(got, want) {
		rt.Errorf("%d bytes have come, want %d of %d, or other ones, by %v", len(got), len(want),
			len(sent), faults)
	}
	c.Close()
	want, _ = harmed(sent, faults)
	if n := passed(); n != int64(len(want)) {
		rt.Errorf("%d bytes are said to have passed, want %d", n, len(want))
	}
}

func TestResetIsSeenByBothEnds(t *testing.T) {
	a, b, c := pair(t, []Fault{{At: 100, Kind: Reset}}, nil)
	defer c.Close()
	defer func() { _, _ = a.Close(), b.Close() }()
	if _, err := a.Write(make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]*net.TCPConn{"the writer": a, "the reader": b} {
		if _, err := io.ReadAll(e); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPartIsSeenByNobody(t *testing.T) {
	a, b, c := pair(t, []Fault{{At: 4, Kind: Part}}, nil)
	defer c.Close()
	defer func() { _, _ = a.Close(), b.Close() }()
	if _, err := a.Write([]byte("12345678")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if n, err := io.ReadFull(b, got[:4]); err != nil {
		t.Fatal(n, err)
	}
	<-c.parted
	if _, err := b.Write([]byte("answer")); err != nil { // into the kernel
		t.Fatal(err)
	}
	for name, e := range map[string]*net.TCPConn{"the writer": a, "the reader": b} {
		_ = e.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := e.Read(got); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

func TestStallPasses(t *testing.T) {
	a, b, c := pair(t, nil, []Fault{{At: 2, Kind: Stall, For: time.Millisecond}})
	defer c.Close()
	defer func() { _, _ = a.Close(), b.Close() }()
	if _, err := b.Write([]byte("back")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(a, got); err != nil || string(got) != "back" {
		t.Errorf("%q, %v", got, err)
	}
	c.Close()
	if there, back := c.Passed(); there != 0 || back != 4 {
		t.Errorf("%d and %d bytes were passed on", there, back)
	}
}

// The way that ends takes what is written to it all the same, however much that is.
func TestTruncEndsOneWay(t *testing.T) {
	test := func(t *testing.T, a, b end, c *Conn) {
		defer c.Close()
		defer func() { _, _ = a.Close(), b.Close() }()
		if n, err := a.Write(bytes.Repeat([]byte("1234"), 1<<20)); err != nil {
			t.Fatal(n, err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "123412" {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := b.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(a, got); err != nil || string(got) != "answer" {
			t.Errorf("%q, %v", got, err)
		}
	}
	faults := []Fault{{At: 6, Kind: Trunc}, {At: 7, Kind: Reset}}
	t.Run("tcp", func(t *testing.T) {
		a, b, c := pair(t, faults, nil)
		test(t, a, b, c)
	})
	t.Run("memory", func(t *testing.T) {
		a, b, c := Pipe(faults, nil)
		test(t, a, b, c)
	})
}

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for k := Kind(0); k <= Part+1; k++ {
		seen[k.String()] = true
	}
	if len(seen) != int(Part)+2 || !seen["part"] || !seen["flip"] || !seen["fault 0"] {
		t.Error(seen)
	}
}
