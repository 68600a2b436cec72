//go:build linux

package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os/user"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// material is what a request is made of: an input, byte by byte, and zeros when it is used up.
type material []byte

func (m *material) next() byte {
	if len(*m) == 0 {
		return 0
	}
	b := (*m)[0]
	*m = (*m)[1:]
	return b
}

func (m *material) text() string {
	n := min(int(m.next()), len(*m))
	s := string((*m)[:n])
	*m = (*m)[n:]
	return s
}

// pick is one of what there is, so that requests are often about what is there.
func pick[T any](m *material, of ...T) T { return of[int(m.next())%len(of)] }

func (m *material) number() uint64 { return uint64(m.next()) << (m.next() & 63) }

// patience is how long a request may take that waits for what never comes.
const patience = 10 * time.Millisecond

// victims are two nodes with processes that have no part in the hostile traffic.
type victims struct {
	a, b     *daemon.Node
	p, q     *vmmc.Process // on a and b; each exports buffer 9
	near     *traffic      // on a
	far      *traffic      // from a to b
	memories [][]byte

	user        string // of all
	incarnation uint64 // of q
	runs        int
}

func newVictims(t testing.TB, a, b *daemon.Node) *victims {
	t.Helper()
	w := &victims{
		a: a, b: b, p: open(t, a), q: open(t, b), near: newTraffic(t, a, a), far: newTraffic(t, a, b),
	}
	for _, p := range []*vmmc.Process{w.p, w.q} {
		m, err := p.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Export(9, m.Bytes(), vmmc.Unmapped()); err != nil {
			t.Fatal(err)
		}
		w.memories = append(w.memories, m.Bytes())
	}
	return w
}

func (w *victims) goesOn(t testing.TB) {
	t.Helper()
	w.near.goesOn(t)
	w.far.goesOn(t)
	for i, m := range w.memories {
		if n := bytes.Count(m, []byte{0}); n != len(m) {
			t.Fatalf("%d bytes of the memory of process %d have changed", len(m)-n, i)
		}
	}
	if w.runs++; w.runs%500 == 0 {
		testutil.Bounded(t, 500, 500, 128<<20)
	}
}

// about is a process that a request names.
func (w *victims) about(m *material, self nodeproto.ProcessID) nodeproto.ProcessID {
	id := self
	switch m.next() % 4 {
	case 0:
		id = nodeproto.ProcessID{Node: "a", PID: uint32(w.p.PID())}
	case 1:
		id = nodeproto.ProcessID{Node: "b", PID: uint32(w.q.PID())}
	case 2:
		id = nodeproto.ProcessID{Node: pick(m, "a", "b", "c", "", m.text()), PID: uint32(m.number())}
	}
	if m.next()%4 == 0 {
		id.Incarnation = m.number()
	}
	return id
}

// request makes one of a process's requests to its node.
func (w *victims) request(m *material, self nodeproto.ProcessID) (nodeproto.Method, any) {
	method := nodeproto.Method(m.next() % 22)
	if m.next()%8 == 0 {
		return method, json.RawMessage(pick(m, "{}", "[]", "null", `""`, "1e999", `{"ID":-1}`,
			`{"Size":1e300}`, `{"Permit":[null]}`))
	}
	rights := nodeproto.Rights(m.next() % 6)
	switch method {
	case nodeproto.Register:
		return method, nodeproto.Hello{
			Version: int(m.next() % 5), Incarnation: m.number(), Session: m.text(), Token: m.text(),
		}
	case nodeproto.Export, nodeproto.Unexport:
		return method, nodeproto.ExportRequest{
			ID: uint32(m.next() % 4), Size: int(m.number()), Rights: rights, Serial: m.number(),
			Permit: make([]nodeproto.Permission, m.next()%3),
		}
	case nodeproto.Import:
		id := w.about(m, self)
		r := nodeproto.ImportRequest{
			Node: id.Node, PID: id.PID, ID: uint32(pick(m, 9, 0, 1, 2, 3)),
		}
		if m.next()%2 == 1 {
			r.Name = &nodeproto.NameRef{
				Name: pick(m, "x", "y", "", m.text()), Node: id.Node, Cluster: m.next()&1 == 0,
			}
			if m.next()%4 == 0 {
				r.Name.User, r.Name.Session = &w.user, new(m.text())
			}
			r.Serial = m.number()
		}
		return method, r
	case nodeproto.Publish, nodeproto.Unpublish:
		return method, nodeproto.PublishRequest{
			Name: pick(m, "x", "y", "", m.text()), Cluster: m.next()&1 == 0, Set: m.next()&1 == 0,
			ID: uint32(m.next() % 4), Serial: uint64(m.next() % 3),
		}
	case nodeproto.ListNames:
		return method, nodeproto.ListNamesRequest{
			Node: pick(m, "", "a", "b", m.text()), Cluster: m.next()&1 == 0, Pattern: m.text(), After: m.text(),
			AfterPID: uint32(m.number()), AfterBuffer: uint32(m.number()),
		}
	case nodeproto.Connect, nodeproto.Departed:
		id := w.about(m, self)
		if method == nodeproto.Departed {
			return method, id
		}
		return method, nodeproto.ConnectRequest{Exporter: id}
	case nodeproto.Release, nodeproto.Withdraw:
		return method, nodeproto.ReleaseRequest{
			Importer: w.about(m, self), Exporter: w.about(m, self), Handle: uint32(m.number()),
		}
	case nodeproto.Forget:
		return method, nodeproto.ForgetRequest{Link: m.number()}
	case nodeproto.ReportEvent:
		return method, nodeproto.LinkEvent{
			Kind: pick(m, nodeproto.LinkDown, nodeproto.LinkResumed, "", m.text()), Peer: w.about(m, self),
			Imports: m.next()&1 == 0, Why: m.text(),
		}
	case nodeproto.Expect:
		return method, nodeproto.ExpectRequest{Session: m.text(), Name: pick(m, "", "x", m.text())}
	case nodeproto.Unexpect:
		return method, nodeproto.UnexpectRequest{PID: uint32(m.number())}
	case nodeproto.Sever:
		return method, nodeproto.SeverRequest{Node: m.text(), Epoch: m.number(), Why: m.text()}
	}
	return method, nodeproto.OfferRequest{
		Importer: nodeproto.Importer{Process: w.about(m, self), User: m.text(), Session: m.text()},
		ID:       uint32(m.next()), Serial: m.number(),
	}
}

// answer makes an answer to what its node asks of a process.
func (w *victims) answer(m *material, self nodeproto.ProcessID, method nodeproto.Method) any {
	switch method {
	case nodeproto.Offer:
		return nodeproto.Grant{
			Exporter: w.about(m, self), Handle: uint32(m.number()), Size: int(m.number()),
			Rights: nodeproto.Rights(m.next() % 6), Mapped: m.next()&1 == 0,
			Memory: int(m.number()), Offset: int(m.number()), Slot: uint32(m.number()),
			State: uint32(m.next()), Place: m.number(), Claims: uint32(m.number()), Targets: make([]int,
				m.next()%4), Label: make([]byte, 2*int(m.next())),
			Found: &nodeproto.Found{PID: uint32(w.p.PID())},
		}
	case nodeproto.Accept:
		return nodeproto.Accepted{Imports: m.next()&1 == 0}
	case nodeproto.Sever:
		return nodeproto.Severed{Links: int(m.number())}
	}
	return json.RawMessage(pick(m, "{}", "[]", "null", "7"))
}

// FuzzHostileProcess has a process that has joined its node as it should ask anything of it, with
// any descriptors, and answer anything when it is asked because others import from it.
func FuzzHostileProcess(f *testing.F) {
	c := newCluster(f)
	w := newVictims(f, c.a, c.b)
	f.Add([]byte{2, 1, 2, 1, 16, 8, 1, 0, 0, 0, 3, 4, 1, 0, 4, 0, 4, 1, 0, 4})
	f.Fuzz(func(t *testing.T, in []byte) {
		m := material(in)
		var mu sync.Mutex // the node asks on goroutines of its own
		fds, end := pipe(t, 3)
		defer end.Close()
		var self nodeproto.ProcessID
		r := newRaw(t, w.a, rand.Uint64()|1, func(_ context.Context, method nodeproto.Method, _ []byte,
			got []int,
		) (any, []int, error) {
			closeAll(got)
			mu.Lock()
			defer mu.Unlock()
			var out []int
			for range m.next() % 5 {
				f, w := pipe(t, 1)
				_ = w.Close()
				out = append(out, f...)
			}
			return w.answer(&m, self, method), out, nil
		})
		mu.Lock()
		self = r.id
		mu.Unlock()
		var all sync.WaitGroup
		// Others import what it may export.
		for id := range uint32(4) {
			all.Go(func() {
				ctx, stop := context.WithTimeout(context.Background(), patience)
				defer stop()
				if im, err := w.p.Import(ctx, w.p.Node(), vmmc.PID(self.PID), id); err == nil {
					_ = im.Close()
				}
			})
		}
		for range 16 {
			mu.Lock()
			if len(m) == 0 {
				mu.Unlock()
				break
			}
			n := int(m.next() & 3)
			method, body := w.request(&m, self)
			mu.Unlock()
			all.Go(func() {
				ctx, stop := context.WithTimeout(context.Background(), patience)
				defer stop()
				got, _ := r.Call(ctx, method, body, fds[:n], nil)
				closeAll(got)
			})
		}
		all.Wait()
		r.Close()
		<-r.Done()
		closeAll(fds)
		testutil.PipeClosed(t, end)
		w.goesOn(t)
	})
}

// ask makes a request of a node: the path, and the message.
func (w *victims) ask(m *material) (string, proto.Message) {
	id := w.about(m, nodeproto.ProcessID{Node: "c", PID: 1, Incarnation: 1})
	if m.next()%2 == 0 {
		id.Node = "c" // it may speak for these
	}
	of := &nodev1.ProcessID{Node: id.Node, Pid: id.PID, Incarnation: id.Incarnation}
	if m.next()%16 == 0 {
		of = nil
	}
	target := pick(m, uint32(w.q.PID()), uint32(w.q.PID()), uint32(w.p.PID()), uint32(m.number()))
	user := pick(m, w.user, w.user, "", "root", m.text())
	const node = "/vmmc.node.v1.NodeService/"
	switch m.next() % 17 {
	case 0, 1, 2:
		return node + "Import", &nodev1.ImportRequest{
			Importer: of, User: user, Session: m.text(), TargetPid: target,
			BufferId: uint32(pick(m, 9, 9, 1, m.next())),
		}
	case 3, 4, 5:
		return node + "Connect", &nodev1.ConnectRequest{
			Importer: of, User: user, Session: m.text(), TargetPid: target, TargetIncarnation: pick(m,
				w.incarnation, m.number()),
		}
	case 6, 7:
		return node + "Release", &nodev1.ReleaseRequest{
			Importer: of, TargetPid: target, TargetIncarnation: pick(m, w.incarnation, m.number()),
			Handle: uint32(m.number()),
		}
	case 8:
		// What is to run is not there.
		return node + "Spawn", &nodev1.SpawnRequest{
			Parent: of, User: user, Session: m.text(), Path: []byte("/nonexistent/" + m.text()),
			Args: [][]byte{[]byte(m.text())}, Directory: []byte(m.text()),
		}
	case 9:
		return node + "Leave", &nodev1.LeaveRequest{Reason: m.text()}
	case 10:
		return node + "Departed", &nodev1.DepartedRequest{Process: of}
	case 11:
		return node + "Ping", &nodev1.PingRequest{}
	case 12:
		return "/vmmc.node.v1.LinkService/Links", &nodev1.LinksRequest{
			AfterPid: uint32(m.number()), AfterPlace: uint32(m.number()),
		}
	case 13:
		return "/vmmc.node.v1.ClusterService/" + pick(m, "TakeDown", "BringUp",
			"Nodes"), &nodev1.PingRequest{}
	case 15:
		owner := pick(m, w.user, "root", m.text())
		return node + "ImportName", &nodev1.ImportNameRequest{
			Importer: of, User: user, Session: m.text(), Name: pick(m, "x", "published", m.text()),
			OwnerUser: owner, OwnerSession: pick(m, "", m.text()),
		}
	case 16:
		return "/vmmc.node.v1.NameService/ListNames", &nodev1.ListNamesRequest{
			Pattern: m.text(), Cluster: m.next()&1 == 0, OwnScope: m.next()&1 == 0, Session: m.text(),
			After: &nodev1.Name{Name: m.text(), Pid: uint32(m.number())},
		}
	case 14:
		return "/vmmc.node.v1.SystemService/ReadSystemLog", &nodev1.PingRequest{}
	}
	return "/vmmc.node.v1.SessionService/" + pick(m, "AddSession", "DeleteSession", "ListSessions",
		"Run", "ListProcesses", "Wait", "Kill", "ReadLog", "Attend", "WriteInput",
		"SessionOrigin"), &nodev1.PingRequest{}
}

// FuzzHostileNode has a node of the cluster ask anything of another one, for processes of its own
// and of others, and in messages that it has damaged.
func FuzzHostileNode(f *testing.F) {
	ids, err := cert.Ephemeral("test", "a", "b", "c")
	if err != nil {
		f.Fatal(err)
	}
	c := &cluster{ids: ids}
	for _, n := range []string{"a", "b", "c"} {
		addr := freePort(f)
		c.hosts = append(c.hosts, hosts.Host{Name: n, Control: addr, Data: addr})
	}
	w := newVictims(f, c.start(f, "a", c.hosts), c.start(f, "b", c.hosts))
	// What it can know.
	me, err := user.Current()
	if err != nil {
		f.Fatal(err)
	}
	w.user = me.Username
	g, _, err := nodeproto.Ask[nodeproto.Grant](f.Context(), newRaw(f, w.a, 3, nil).Conn,
		nodeproto.Import, nodeproto.ImportRequest{Node: "b", PID: uint32(w.q.PID()), ID: 9}, nil)
	if err != nil {
		f.Fatal(err)
	}
	w.incarnation = g.Exporter.Incarnation
	tr := &http.Transport{TLSClientConfig: ids["c"].ClientTLS("b"), ForceAttemptHTTP2: true}
	f.Cleanup(tr.CloseIdleConnections)
	cl := &http.Client{Transport: tr, Timeout: patience}
	f.Add([]byte{0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0})
	f.Add([]byte{3, 1, 0, 1, 0, 0, 4, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		m := material(in)
		for range 8 {
			if len(m) == 0 {
				break
			}
			damage := m.next()
			path, msg := w.ask(&m)
			b, err := proto.Marshal(msg)
			if err != nil { // what is no text cannot be in it
				continue
			}
			if damage > 200 {
				b = append(b, m.text()...)
			}
			if damage > 220 && len(b) > 0 {
				b[int(m.next())%len(b)] ^= m.next()
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.b.Addr()+path,
				bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", pick(&m, "application/proto", "application/proto",
				"application/json", "text/plain"))
			r.Header.Set("Connect-Protocol-Version", "1")
			if a, err := cl.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, a.Body)
				_ = a.Body.Close()
			}
		}
		w.goesOn(t)
	})
}
