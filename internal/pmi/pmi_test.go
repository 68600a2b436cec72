package pmi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/pmi"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

// launcher is a small launcher of one version of PMI: it has a key-value space, and a fence.
type launcher struct {
	version int
	size    int

	mu sync.Mutex
	// Guarded by mu.
	values  map[string]string // that a fence has published
	staged  map[string]string
	waiting int
	fence   chan struct{} // closed when all ranks have come
	asked   []string
}

func newLauncher(version, size int) *launcher {
	return &launcher{version: version, size: size, values: map[string]string{}, staged: map[string]string{}, fence: make(chan struct{})}
}

// connect starts the launcher's side of a rank, and returns the rank's. ended is closed when the rank
// has finalized, or its connection has ended.
func (l *launcher) connect(t *testing.T) (c net.Conn, ended <-chan error) {
	c, own := net.Pipe()
	over := make(chan error, 1)
	go func() {
		defer own.Close()
		over <- l.serve(own)
	}()
	t.Cleanup(func() { c.Close() })
	return c, over
}

// serve answers a rank until it has finalized.
func (l *launcher) serve(c net.Conn) error {
	in := bufio.NewReader(c)
	for framed := false; ; {
		text, err := readCommand(in, framed)
		if err != nil {
			return err
		}
		sep := " "
		if framed {
			sep = ";"
		}
		q := map[string]string{}
		for word := range strings.SplitSeq(text, sep) {
			if k, v, ok := strings.Cut(word, "="); ok {
				q[k] = v
			}
		}
		l.mu.Lock()
		l.asked = append(l.asked, q["cmd"])
		l.mu.Unlock()
		answer := l.answer(q)
		if framed {
			answer = strings.ReplaceAll(strings.TrimSpace(answer), " ", ";") + ";"
			answer = fmt.Sprintf("%6d%s", len(answer), answer)
		} else {
			answer += "\n"
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return err
		}
		switch {
		case q["cmd"] == "finalize":
			return nil
		case q["cmd"] == "init" && q["pmi_version"] == "2":
			framed = l.version == 2
		}
	}
}

// readCommand reads one command of a rank.
func readCommand(in *bufio.Reader, framed bool) (string, error) {
	if !framed {
		line, err := in.ReadString('\n')
		return strings.TrimSuffix(line, "\n"), err
	}
	var n int
	length := make([]byte, 6)
	if _, err := io.ReadFull(in, length); err != nil {
		return "", err
	}
	if _, err := fmt.Sscan(string(length), &n); err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(in, b)
	return string(b), err
}

// answer is the launcher's answer, as words.
func (l *launcher) answer(q map[string]string) string {
	const ok = " rc=0"
	switch cmd := q["cmd"]; cmd {
	case "init":
		if q["pmi_version"] != fmt.Sprint(l.version) {
			return fmt.Sprintf("cmd=response_to_init pmi_version=%d pmi_subversion=0 rc=-1", l.version)
		}
		return fmt.Sprintf("cmd=response_to_init pmi_version=%d pmi_subversion=0", l.version) + ok
	case "fullinit":
		return "cmd=fullinit-response pmi-version=2 rank=" + q["pmirank"] + ok
	case "job-getid":
		return "cmd=job-getid-response jobid=j" + ok
	case "get_my_kvsname":
		return "cmd=my_kvsname kvsname=j"
	case "put", "kvs-put":
		l.mu.Lock()
		l.staged[q["key"]] = q["value"]
		l.mu.Unlock()
		if cmd == "put" {
			return "cmd=put_result msg=success" + ok
		}
		return "cmd=kvs-put-response" + ok
	case "barrier_in", "kvs-fence":
		l.await()
		if cmd == "barrier_in" {
			return "cmd=barrier_out"
		}
		return "cmd=kvs-fence-response" + ok
	case "get", "kvs-get":
		l.mu.Lock()
		v, found := l.values[q["key"]]
		l.mu.Unlock()
		switch {
		case cmd == "get" && found:
			return "cmd=get_result msg=success value=" + v + ok
		case cmd == "get":
			return "cmd=get_result msg=key_not_found value=unknown rc=-1"
		case found:
			return "cmd=kvs-get-response found=TRUE value=" + v + ok
		}
		return "cmd=kvs-get-response found=FALSE" + ok
	case "finalize":
		if l.version == 2 {
			return "cmd=finalize-response" + ok
		}
		return "cmd=finalize_ack"
	}
	return "cmd=unknown rc=-1"
}

// await is the fence.
func (l *launcher) await() {
	l.mu.Lock()
	all := l.fence
	if l.waiting++; l.waiting == l.size {
		for k, v := range l.staged {
			l.values[k] = v
		}
		l.waiting, l.fence = 0, make(chan struct{})
		close(all)
	}
	l.mu.Unlock()
	<-all
}

// Ranks find each other's values with both versions of the protocol, and finalize in order.
func TestRanks(t *testing.T) {
	for version, last := range map[int]string{1: "get", 2: "kvs-get"} {
		const size = 4
		l := newLauncher(version, size)
		var ranks sync.WaitGroup
		for rank := range size {
			conn, ended := l.connect(t)
			ranks.Go(func() {
				if err := exchange(conn, rank, size); err != nil {
					t.Errorf("version %d, rank %d: %v", version, rank, err)
				}
				if err := <-ended; err != nil {
					t.Errorf("version %d, rank %d: the launcher's side: %v", version, rank, err)
				}
			})
		}
		ranks.Wait()
		if n := len(l.asked); n == 0 || !strings.Contains(strings.Join(l.asked, " "), last) || l.asked[n-1] != "finalize" {
			t.Errorf("version %d: the ranks asked %q", version, l.asked)
		}
	}
}

// exchange is what a rank does.
func exchange(conn net.Conn, rank, size int) error {
	c, err := pmi.New(conn, rank)
	if err != nil {
		return err
	}
	if err := c.Put(fmt.Sprint("key-", rank), fmt.Sprint("value-", rank)); err != nil {
		return err
	}
	if err := c.Fence(); err != nil {
		return err
	}
	for other := range size {
		v, err := c.Get(fmt.Sprint("key-", other))
		if err != nil || v != fmt.Sprint("value-", other) {
			return fmt.Errorf("rank %d's value is %q, %w", other, v, err)
		}
	}
	if v, err := c.Get("nosuch"); err == nil {
		return fmt.Errorf("a key that no rank has put is %q", v)
	}
	return c.Close(context.Background())
}

// scripted answers each command with the next of its texts, and then ends the connection.
func scripted(t *testing.T, texts ...string) net.Conn {
	c, own := net.Pipe()
	go func() {
		defer own.Close()
		b := make([]byte, 4096)
		for _, text := range texts {
			if _, err := own.Read(b); err != nil {
				return
			}
			if _, err := io.WriteString(own, text); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { c.Close() })
	return c
}

const (
	init1 = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
	only2 = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n"
	init2 = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"
	name1 = "cmd=my_kvsname kvsname=j\n"
)

// A launcher whose answers are not those of the protocol is told apart, by an error that says what
// was asked and answered.
func TestHostileLauncher(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name    string
		answers []string
		want    string
	}{
		{"no answer", nil, "pmi: init: "},
		{"another protocol", []string{"HTTP/1.1 400 Bad Request\n"}, `answers "", want "response_to_init"`},
		{"binary", []string{"\x00\xff\x7fELF\n"}, `answers "", want "response_to_init"`},
		{"no end of line", []string{"cmd=response_to_init"}, "EOF"},
		{"a long line", []string{long + "\n"}, "more than 65536 bytes"},
		{"an unknown version", []string{"cmd=response_to_init pmi_version=3 pmi_subversion=0 rc=-1\n"}, "refuses it: rc=-1"},
		{"an unknown answer", []string{init1, "cmd=barrier_out\n"}, `get_my_kvsname: the launcher answers "barrier_out"`},
		{"no name", []string{init1, "cmd=my_kvsname\n"}, "no key-value space"},
		{"no length", []string{only2, init2, "cmd=fu"}, `"cmd=fu" is no length`},
		{"a negative length", []string{only2, init2, "    -1"}, "is no length"},
		{"a great length", []string{only2, init2, "999999"}, "is no length"},
		{"a signed length", []string{only2, init2, "    +5cmd=x"}, "is no length"},
		{"too short", []string{only2, init2, "   100cmd=fullinit-response;"}, "EOF"},
		{"an empty message", []string{only2, init2, "     0"}, `answers ""`},
		{"refused", []string{only2, init2, "    51cmd=fullinit-response;rc=15;errmsg=no such process;"}, "rc=15"},
		{"refused with an escape sequence", []string{only2, init2, "    53cmd=fullinit-response;rc=\x1b[2J;errmsg=no such process;"}, "rc=?[2J"},
	} {
		_, err := pmi.New(scripted(t, c.answers...), 0)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "pmi: ") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A command that the launcher refuses, or answers with another one's answer, is an error of that
// command.
func TestRefused(t *testing.T) {
	for name, ask := range map[string]func(*pmi.Client) error{
		"put":        func(c *pmi.Client) error { return c.Put("k", "v") },
		"barrier_in": func(c *pmi.Client) error { return c.Fence() },
		"get": func(c *pmi.Client) error {
			_, err := c.Get("k")
			return err
		},
		"finalize": func(c *pmi.Client) error { return c.Close(context.Background()) },
	} {
		for _, answer := range []string{"cmd=unknown rc=-1\n", "\n", ""} {
			c, err := pmi.New(scripted(t, init1, name1, answer), 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := ask(c); err == nil || !strings.Contains(err.Error(), "pmi: "+name) {
				t.Errorf("%s with answer %q: %v", name, answer, err)
			}
		}
	}
}

// Texts that would be another command are refused, before anything is sent.
func TestPutBadText(t *testing.T) {
	for _, bad := range []string{"", "a b", "a=b", "a;b", "a\ncmd=finalize", "a\x00", "ä", strings.Repeat("x", 1025)} {
		c, err := pmi.New(scripted(t, init1, name1), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{c.Put(bad, "v"), c.Put("k", bad)} {
			if !errors.Is(err, pmi.ErrText) {
				t.Errorf("put %.20q: %v", bad, err)
			}
		}
		if _, err := c.Get(bad); !errors.Is(err, pmi.ErrText) {
			t.Errorf("get %.20q: %v", bad, err)
		}
	}
}

// FuzzAnswers has a launcher answer anything: each answer is taken or is an error, and takes bounded
// memory.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		init1 + name1, only2 + init2 + "    28cmd=fullinit-response;rc=0;",
		only2 + init2 + "999999", "cmd=response_to_init rc=\n", "\n\n\n", "cmd=cmd=cmd\n", init1 + "cmd=my_kvsname kvsname=\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rw := &replay{answers: b}
		c, err := pmi.New(rw, 0)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pmi: ") {
				t.Errorf("%v does not say that it is about PMI", err)
			}
			return
		}
		_, _ = c.Put("k", "v"), c.Fence()
		_, _ = c.Get("k")
		_ = c.Close(context.Background())
		if !rw.closed {
			t.Error("the connection is open after Close")
		}
	})
}

// replay is a connection whose answers are there already.
type replay struct {
	answers []byte
	closed  bool
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.answers) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.answers)
	r.answers = r.answers[n:]
	return n, nil
}

func (r *replay) Write(b []byte) (int, error) { return len(b), nil }

func (r *replay) Close() error {
	r.closed = true
	return nil
}

// A launcher that does not answer holds up the end of a rank only as long as its context.
func TestSilentLauncher(t *testing.T) {
	c, own := net.Pipe()
	defer own.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		in := bufio.NewReader(own)
		for _, answer := range []string{init1, name1} {
			if _, err := in.ReadString('\n'); err == nil {
				_, _ = io.WriteString(own, answer)
			}
		}
		_, _ = in.ReadString('\n') // finalize
		cancel()
	}()
	client, err := pmi.New(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if _, err := c.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection is not closed: %v", err)
	}
}
