//go:build linux

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// export announces a buffer of a raw process.
func (r *raw) export(t testing.TB, id uint32, serial uint64) {
	t.Helper()
	if _, err := r.Call(t.Context(), nodeproto.Export, nodeproto.ExportRequest{
		ID: id, Serial: serial, Size: 4, Rights: 3,
	}, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// publish publishes one. Its error is also that of a name that another process has.
func (r *raw) publish(ctx context.Context, q nodeproto.PublishRequest) error {
	a, _, err := nodeproto.Ask[nodeproto.Published](ctx, r.Conn, nodeproto.Publish, q, nil)
	if err == nil && a.Taken != nil {
		return code.NameTaken
	}
	return err
}

func (r *raw) find(ctx context.Context, name string) (nodeproto.Grant, error) {
	return r.findAt(ctx, "", name)
}

// findAt finds a name of a node; "": its own.
func (r *raw) findAt(ctx context.Context, node, name string) (nodeproto.Grant, error) {
	g, fds, err := nodeproto.Ask[nodeproto.Grant](ctx, r.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Name: &nodeproto.NameRef{Node: node, Name: name}}, nil)
	closeAll(fds)
	return g, err
}

func (r *raw) list(t testing.TB) (rows []nodeproto.NameRow) {
	t.Helper()
	q := nodeproto.ListNamesRequest{Pattern: "*"}
	for {
		a, _, err := nodeproto.Ask[nodeproto.NameList](t.Context(), r.Conn, nodeproto.ListNames, q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rows = append(rows, a.Rows...); !a.More {
			return rows
		}
		last := rows[len(rows)-1]
		q.After, q.AfterPID, q.AfterBuffer = last.Name, last.PID, last.Buffer
	}
}

// What a process says of names is checked, and its names end with its exports however they end.
func TestNameRequests(t *testing.T) {
	n := alone(t)
	r, other := newRaw(t, n, 1, nil), newRaw(t, n, 2, nil)
	r.export(t, 1, 1)
	ctx := t.Context()
	for _, name := range []string{"", "a/b", "\xff\x00", strings.Repeat("x", 129)} {
		check(t, "publish", r.publish(ctx, nodeproto.PublishRequest{Name: name, ID: 1, Serial: 1}),
			code.BadName)
		_, err := r.find(ctx, name)
		check(t, "find", err, code.BadName)
	}
	for _, q := range []nodeproto.PublishRequest{{ID: 2, Serial: 1}, {ID: 1, Serial: 2}, {ID: 1}} {
		q.Name = "x"
		check(t, fmt.Sprintf("%+v", q), r.publish(ctx, q), code.BadRbufState)
	}
	for _, q := range []nodeproto.ListNamesRequest{
		{Pattern: "["}, {Pattern: strings.Repeat("*", nodeproto.MaxPattern+1)},
	} {
		_, err := r.Call(ctx, nodeproto.ListNames, q, nil, nil)
		check(t, "list", err, code.BadArg)
	}
	x := nodeproto.PublishRequest{Name: "x", ID: 1, Serial: 1}
	for how, end := range map[string]func(){
		"by its serial": func() {
			_, _ = r.Call(ctx, nodeproto.Unexport, nodeproto.ExportRequest{ID: 1, Serial: 1}, nil, nil)
		},
		"without a serial": func() {
			_, _ = r.Call(ctx, nodeproto.Unexport, nodeproto.ExportRequest{ID: 1}, nil, nil)
		},
		"by another export": func() { r.export(t, 1, 7) },
	} {
		if err := r.publish(ctx, x); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		check(t, how, other.publish(ctx, nodeproto.PublishRequest{Name: "x", ID: 1, Serial: 1}),
			code.BadRbufState)
		if end(); len(other.list(t)) > 0 {
			t.Errorf("%s: the name is there after its export", how)
		}
		r.export(t, 1, 1)
	}
	if err := r.publish(ctx, x); err != nil {
		t.Fatal(err)
	}
	// Another process cannot take the name away.
	if _, err := other.Call(ctx, nodeproto.Unpublish, x, nil, nil); err != nil {
		t.Error(err)
	}
	g, err := other.find(ctx, "x")
	if err != nil || g.Found == nil || g.Found.PID != r.id.PID || g.Found.Serial != 1 {
		t.Errorf("found %+v, %v", g.Found, err)
	}
	// An import of another export than was found does not wait for it.
	_, err = other.Call(ctx, nodeproto.Import, nodeproto.ImportRequest{
		Node: r.id.Node, PID: r.id.PID, ID: 1, Serial: 8,
	}, nil, nil)
	check(t, "another export", err, code.BadRbufState)
}

// One process can have so many imports wait for names, and then its other requests are served.
func TestWaitsForNames(t *testing.T) {
	t.Run("this node", func(t *testing.T) { waitsForNames(t, alone(t), "") })
	t.Run("another node", func(t *testing.T) { waitsForNames(t, newCluster(t).a, "b") })
}

// waitsForNames has a process of n wait for names of a node.
func waitsForNames(t *testing.T, n *daemon.Node, node string) {
	r := newRaw(t, n, 1, nil)
	const most = 1024
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	full := make(chan error, 1)
	for i := range most + 100 {
		all.Go(func() {
			if _, err := r.findAt(ctx, node, fmt.Sprint("x", i)); !errors.Is(err, context.Canceled) {
				select {
				case full <- err:
				default:
				}
			}
		})
	}
	check(t, "one import too many", <-full, code.NoMem, "1024 imports wait for names")
	r.export(t, 1, 1)
	if err := r.publish(t.Context(), nodeproto.PublishRequest{Name: "y", ID: 1, Serial: 1}); err != nil {
		t.Error(err)
	}
	other := newRaw(t, n, 2, nil)
	if _, err := other.find(t.Context(), "y"); err != nil {
		t.Error(err)
	}
	stop()
	all.Wait()
	// What was cancelled waits no longer, when its node has seen it.
	for {
		_, err := r.findAt(expired(t), node, "z")
		if !errors.Is(err, code.NoMem) {
			break
		}
	}
}

// The names of a process that has ended are free at once, also while a request of it waits for
// another process.
func TestNameOfAProcessThatWaits(t *testing.T) {
	n := alone(t)
	asked := make(chan context.Context, 1)
	silent := newRaw(t, n, 1, func(
		ctx context.Context, m nodeproto.Method, _ []byte, fds []int,
	) (any, []int, error) {
		closeAll(fds)
		asked <- ctx
		<-ctx.Done() // its node gives up, after ten seconds
		return nil, nil, ctx.Err()
	})
	silent.export(t, 1, 1)
	p, q := newRaw(t, n, 2, nil), newRaw(t, n, 3, nil)
	x := nodeproto.PublishRequest{Name: "x", ID: 1, Serial: 1}
	for _, r := range []*raw{p, q} {
		r.export(t, 1, 1)
	}
	if err := p.publish(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = p.Call(t.Context(), nodeproto.Import, nodeproto.ImportRequest{
			Node: silent.id.Node, PID: silent.id.PID, ID: 1,
		}, nil, nil)
	}()
	request := <-asked
	p.Close()
	if err := q.publish(t.Context(), x); err != nil {
		t.Error(err)
	}
	silent.export(t, 2, 2) // so it has read what its node has sent before
	if request.Err() != nil {
		t.Error("the name was free only when the request had ended")
	}
}

// expired is a context that has ended; its call is made and cancelled.
func expired(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 5*patience)
	t.Cleanup(stop)
	return ctx
}

// A process asks anything about names, thousands of times and at once, and closes in between. Names
// of another one are there all the time, nothing of it is left, and the node serves others.
func TestHostileNames(t *testing.T) {
	n := alone(t)
	good := newRaw(t, n, 1, nil)
	good.export(t, 1, 1)
	if err := good.publish(t.Context(), nodeproto.PublishRequest{Name: "good", ID: 1, Serial: 1}); err != nil {
		t.Fatal(err)
	}
	var goodOnes sync.WaitGroup
	over := make(chan struct{})
	goodOnes.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if _, err := good.find(t.Context(), "good"); err != nil {
				t.Error(err)
			}
			check(t, "the name of the other", good.publish(t.Context(),
				nodeproto.PublishRequest{Name: "good", Set: true, ID: 1, Serial: 1}), code.NameTaken)
		}
	})
	for round := range uint64(6) {
		var all sync.WaitGroup
		for h := range uint64(4) {
			r := newRaw(t, n, 10*round+h+10, nil)
			all.Go(func() { hostileNames(t, r) })
		}
		all.Wait()
	}
	close(over)
	goodOnes.Wait()
	// The node has seen the end of each connection when a name of each is free.
	for i := range 16 {
		good.export(t, uint32(i)+10, uint64(i)+10)
		if err := good.publish(t.Context(), nodeproto.PublishRequest{
			Name: fmt.Sprint("x", i), ID: uint32(i) + 10, Serial: uint64(i) + 10,
		}); err != nil {
			t.Errorf("name x%d: %v", i, err)
		}
	}
	if rows := good.list(t); len(rows) != 17 {
		t.Errorf("%d names, want 17: %+v", len(rows), rows)
	}
}

// hostileNames is one process of TestHostileNames.
func hostileNames(t *testing.T, r *raw) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for i := range 800 {
		id := uint32(i % 8)
		all.Go(func() {
			var err error
			name := fmt.Sprint("x", i%16)
			switch i % 7 {
			case 0:
				_, err = r.Call(ctx, nodeproto.Export, nodeproto.ExportRequest{
					ID: id, Serial: uint64(i%3) + 1, Size: 4, Rights: 3,
				}, nil, nil)
			case 1:
				_, err = r.Call(ctx, nodeproto.Unexport, nodeproto.ExportRequest{
					ID: id, Serial: uint64(i % 3),
				}, nil, nil)
			case 2, 3:
				err = r.publish(ctx, nodeproto.PublishRequest{
					Name: name, Set: i%5 == 0, ID: id, Serial: uint64(i%3) + 1,
				})
			case 4:
				_, err = r.Call(ctx, nodeproto.Unpublish, nodeproto.PublishRequest{
					Name: []string{name, "good"}[i%2], Serial: uint64(i % 3),
				}, nil, nil)
			case 5:
				err = r.publish(ctx, nodeproto.PublishRequest{Name: strings.Repeat("x", i), ID: id, Serial: 1})
			case 6:
				_, err = r.find(ctx, name)
			}
			_ = err // anything but a hang
		})
		if i == 700 {
			stop() // those that wait, too
		}
	}
	r.Close()
	all.Wait()
	<-r.Done()
}
