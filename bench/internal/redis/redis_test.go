// Package redis_test measures a table and a queue beside Redis, which is another way to do their jobs.
package redis_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func TestMain(m *testing.M) { vmmctest.Main(m) }

const perTurn = 300 // operations of a turn

type value [64]byte

// client is a connection to a Redis server, of one goroutine.
type client struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
}

// startRedis starts a server on loopback that keeps nothing on disk, and returns its address.
func startRedis(b *testing.B) string {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skipf("Redis is not installed (apt-get install redis-server): %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no",
		"--dir", filepath.Clean(b.TempDir()))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			b.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	return addr
}

func connect(b *testing.B, addr string) *client {
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			b.Cleanup(func() { _ = conn.Close() })
			return &client{conn: conn, r: bufio.NewReader(conn)}
		}
		if time.Now().After(until) {
			b.Fatalf("connect to the Redis server: %v", err)
		}
	}
}

// do sends a command and returns the last string of its reply.
func (c *client) do(args ...[]byte) ([]byte, error) {
	c.out = fmt.Appendf(c.out[:0], "*%d\r\n", len(args))
	for _, a := range args {
		c.out = fmt.Appendf(c.out, "$%d\r\n", len(a))
		c.out = append(append(c.out, a...), "\r\n"...)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	return c.reply()
}

func (c *client) reply() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], string(bytes.TrimSpace(line[1:]))
	switch kind {
	case '+', ':':
		return []byte(rest), nil
	case '$', '*':
		n, err := strconv.Atoi(rest)
		if err != nil {
			return nil, fmt.Errorf("the reply is %c%s: %w", kind, rest, err)
		}
		if n < 0 {
			return nil, errors.New("the reply is that there is no such value")
		}
		if kind == '$' {
			s := make([]byte, n+2)
			_, err := io.ReadFull(c.r, s)
			return s[:n], err
		}
		var last []byte
		for range n {
			if last, err = c.reply(); err != nil {
				return nil, err
			}
		}
		return last, nil
	}
	return nil, fmt.Errorf("the reply is %c%s", kind, rest)
}

// contender is what is measured: op does one operation, and checks what it has got.
type contender struct {
	name string
	op   func(i int) error
}

// turns measures by turns, and reports the median time of an operation of each contender.
func turns(b *testing.B, all ...contender) {
	times := make([][]float64, len(all))
	for b.Loop() {
		for k, c := range all {
			begin := time.Now()
			for i := range perTurn {
				if err := c.op(i); err != nil {
					b.Fatalf("%s: %v", c.name, err)
				}
			}
			times[k] = append(times[k], float64(time.Since(begin).Nanoseconds())/perTurn)
		}
	}
	for k, c := range all {
		slices.Sort(times[k])
		b.ReportMetric(times[k][len(times[k])/2], c.name+"-ns/op")
	}
	b.ReportMetric(0, "ns/op") // of all contenders together: it says nothing
}

func keyOf(i int) uint64 { return uint64(i) * 7 % perTurn }

func valueOf(i int) (v value) {
	for k := range v {
		v[k] = byte(i + k)
	}
	return v
}

func right(i int, v []byte) error {
	if want := valueOf(i); !bytes.Equal(v, want[:]) {
		return fmt.Errorf("the value is %x, want %x", v, want)
	}
	return nil
}

// BenchmarkTable is a put and a look-up of 64 bytes, beside SET and GET.
func BenchmarkTable(b *testing.B) {
	ctx, c := context.Background(), connect(b, startRedis(b))
	nodes := vmmctest.Nodes(b, 2)
	t, err := table.New[uint64, value](ctx, nodes[0].Open(b), "n1/table", perTurn)
	if err != nil {
		b.Fatal(err)
	}
	defer t.Close()
	put := func(i int) error { return t.Put(ctx, keyOf(i), valueOf(int(keyOf(i)))) }
	var reads []contender
	for k, where := range []string{"one-node", "two-nodes"} {
		r, err := table.Open[uint64, value](ctx, nodes[k].Open(b), "n1/table")
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		reads = append(reads, contender{where, func(i int) error {
			v, ok, err := r.Get(ctx, keyOf(i))
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("key %d is not there", keyOf(i))
			}
			return right(int(keyOf(i)), v[:])
		}})
	}
	key := func(i int) []byte { return strconv.AppendUint(nil, keyOf(i), 10) }
	set := func(i int) error {
		v := valueOf(int(keyOf(i)))
		_, err := c.do([]byte("SET"), key(i), v[:])
		return err
	}
	get := func(i int) error {
		v, err := c.do([]byte("GET"), key(i))
		if err != nil {
			return err
		}
		return right(int(keyOf(i)), v)
	}
	for i := range perTurn {
		if err := put(i); err != nil {
			b.Fatal(err)
		}
		if err := set(i); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("put", func(b *testing.B) { turns(b, contender{"owner", put}, contender{"redis", set}) })
	b.Run("get", func(b *testing.B) { turns(b, append(reads, contender{"redis", get})...) })
}

// BenchmarkQueue is a put of 64 bytes and the get that takes it, beside LPUSH and BRPOP of two clients.
func BenchmarkQueue(b *testing.B) {
	ctx, addr := context.Background(), startRedis(b)
	from, to := connect(b, addr), connect(b, addr)
	nodes := vmmctest.Nodes(b, 2)
	var all []contender
	for k, where := range []string{"one-node", "two-nodes"} {
		name := "n1/" + where
		c, err := queue.Listen[value](ctx, nodes[0].Open(b), name)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		q, err := queue.Dial[value](ctx, nodes[k].Open(b), name)
		if err != nil {
			b.Fatal(err)
		}
		defer q.Close(ctx)
		all = append(all, contender{where, func(i int) error {
			if err := q.Put(ctx, valueOf(i)); err != nil {
				return err
			}
			v, err := c.Get(ctx)
			if err != nil {
				return err
			}
			return right(i, v[:])
		}})
	}
	turns(b, append(all, contender{"redis", func(i int) error {
		v := valueOf(i)
		if _, err := from.do([]byte("LPUSH"), []byte("queue"), v[:]); err != nil {
			return err
		}
		got, err := to.do([]byte("BRPOP"), []byte("queue"), []byte("0"))
		if err != nil {
			return err
		}
		return right(i, got)
	}})...)
}
