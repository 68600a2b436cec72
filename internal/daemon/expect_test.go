//go:build linux

package daemon_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// expect has a node expect a program for which it keeps a name.
func expect(t *testing.T, c *nodeproto.Conn, name string) nodeproto.Expected {
	t.Helper()
	e, _, err := nodeproto.Ask[nodeproto.Expected](t.Context(), c, nodeproto.Expect,
		nodeproto.ExpectRequest{Name: name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// newExpected joins n with a token.
func newExpected(t *testing.T, n *daemon.Node, token string) *raw {
	t.Helper()
	r := &raw{Conn: join(t, n, nil)}
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), r.Conn, nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 7, Token: token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.id = w.Process
	return r
}

// A program that another one starts is the process that the node has said, and has the name that is
// kept for it. Those that wait for it hear of its end.
func TestExpect(t *testing.T) {
	n := alone(t)
	starter, waiter := join(t, n, nil), newRaw(t, n, 1, nil)
	ctx := t.Context()
	_, err := starter.Call(ctx, nodeproto.Expect, nodeproto.ExpectRequest{Name: "a/b"}, nil, nil)
	check(t, "a bad name", err, code.BadName)
	_, err = starter.Call(ctx, nodeproto.Expect,
		nodeproto.ExpectRequest{Session: strings.Repeat("s", 300)}, nil, nil)
	check(t, "a long session", err, code.BadArg)
	unexpect := func(c *nodeproto.Conn, e nodeproto.Expected) {
		t.Helper()
		if _, err := c.Call(ctx, nodeproto.Unexpect, nodeproto.UnexpectRequest{PID: e.Process.PID}, nil,
			nil); err != nil {
			t.Error(err)
		}
	}
	hears := func(what, name string) {
		t.Helper()
		_, err := waiter.find(ctx, name)
		check(t, what, err, code.NoSuchProcess, "for which the name", "was kept, has ended")
	}
	// One that joins.
	x := expect(t, starter, "x")
	waiter.export(t, 1, 1)
	check(t, "another process", waiter.publish(ctx, nodeproto.PublishRequest{Name: "x", ID: 1, Serial: 1}),
		code.NameTaken)
	_, err = starter.Call(ctx, nodeproto.Expect, nodeproto.ExpectRequest{Name: "x"}, nil, nil)
	check(t, "another program", err, code.NameTaken)
	p := newExpected(t, n, x.Token)
	if p.id.PID != x.Process.PID || p.id.Node != x.Process.Node {
		t.Errorf("it joined as %v, expected as %v", p.id, x.Process)
	}
	p.export(t, 1, 1)
	if err := p.publish(ctx, nodeproto.PublishRequest{Name: "x", ID: 1, Serial: 1}); err != nil {
		t.Error(err)
	}
	unexpect(starter, x) // it has ended, and its connection need not have
	if g, err := waiter.find(ctx, "x"); err != nil || g.Found == nil || g.Found.PID != p.id.PID {
		t.Errorf("a name that is published: %+v, %v", g, err)
	}
	p.Close()
	hears("a process that has left", "x")

	// One that does not, and one whose starter has ended.
	y, z := expect(t, starter, "y"), expect(t, starter, "z")
	unexpect(waiter.Conn, y) // is not its starter
	if q := newExpected(t, n, y.Token); q.id.PID != y.Process.PID {
		t.Errorf("another process ended what the starter expects")
	} else {
		q.Close()
	}
	hears("one that joined and left", "y")
	w := expect(t, starter, "w")
	imports := make(chan error, 1)
	go func() { imports <- waiter.importFrom(ctx, w.Process.PID) }()
	if err := waiter.publish(ctx, nodeproto.PublishRequest{Name: "v", ID: 1, Serial: 1}); err != nil {
		t.Error(err) // the import has begun by now, most likely
	}
	unexpect(starter, w)
	hears("a program that has not joined", "w")
	check(t, "an import by its pid", <-imports, code.NoSuchProcess)
	starter.Close()
	hears("a program whose starter has ended", "z")
	if q := newExpected(t, n, z.Token); q.id.PID == z.Process.PID {
		t.Error("a program whose starter has ended is expected")
	}
}

// importFrom imports from a process of its own node.
func (r *raw) importFrom(ctx context.Context, pid uint32) error {
	_, fds, err := nodeproto.Ask[nodeproto.Grant](ctx, r.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Node: r.id.Node, PID: pid, ID: 1}, nil)
	closeAll(fds)
	return err
}

// A user has so many programs expected at a time. The node waits for none of them to begin.
func TestExpectedPrograms(t *testing.T) {
	n := alone(t)
	c, r := join(t, n, nil), newRaw(t, n, 1, nil)
	expect(t, c, "x")
	_, err := c.Call(t.Context(), nodeproto.Expect, nodeproto.ExpectRequest{Name: "x"}, nil, nil)
	check(t, "one that is not expected", err, code.NameTaken)
	for range 1023 {
		expect(t, c, "")
	}
	other := join(t, n, nil)
	_, err = other.Call(t.Context(), nodeproto.Expect, nodeproto.ExpectRequest{}, nil, nil)
	check(t, "one too many", err, code.NoMem)
	_, err = r.Call(t.Context(), nodeproto.Spawn,
		nodeproto.SpawnRequest{Node: "one", Path: []byte("/bin/true"), Directory: []byte("/")}, nil, nil)
	check(t, "a program of the node's", err, code.NoMem)
	c.Close()
	<-c.Done()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for err != nil && ctx.Err() == nil { // the node has not seen the end yet
		_, err = other.Call(ctx, nodeproto.Expect, nodeproto.ExpectRequest{}, nil, nil)
	}
	if err != nil {
		t.Error(err)
	}
}
