package vmmc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// joinAs opens a process of a session.
func joinAs(t testing.TB, socket, session string) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(socket), vmmc.WithSession(session))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// me is this program's user, as a refusal of p to s names it.
func me(t testing.TB, p *vmmc.Process, s *vmmc.Process) string {
	t.Helper()
	_, err := s.Import(t.Context(), p.Node(), p.PID(), 1<<31)
	_, rest, ok := strings.Cut(fmt.Sprint(err), `(user "`)
	user, _, end := strings.Cut(rest, `"`)
	if !ok || !end {
		t.Fatalf("a refusal does not name the user: %v", err)
	}
	return user
}

func TestPermit(t *testing.T) {
	for _, way := range []string{"one node", "between nodes"} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			exp := joinAs(t, far, "mine")
			same, other, none := joinAs(t, near, "mine"), joinAs(t, near, "theirs"), joinAs(t, near, "")
			user := me(t, exp, other)
			here, there := []vmmc.NodeID{same.Node()}, []vmmc.NodeID{exp.Node()}
			if way == "one node" {
				there = []vmmc.NodeID{nodeNamed(t, "elsewhere")}
			}
			for i, c := range []struct {
				opts              []vmmc.ExportOption
				same, other, none bool
				says              string
			}{
				{nil, true, false, false, ""},
				{permit(vmmc.Permission{}), true, false, false, ""},
				{permit(vmmc.Permission{Nodes: here}), true, false, false, ""},
				{permit(vmmc.Permission{Nodes: there}), false, false, false, "its own user and session, certain nodes"},
				{permit(vmmc.Permission{Users: []string{user}}), true, true, true, ""},
				{permit(vmmc.Permission{Users: []string{"*"}}), true, true, true, ""},
				{permit(vmmc.Permission{Users: []string{"nobody-at-all"}}), false, false, false, "certain users"},
				{permit(vmmc.Permission{Users: []string{"*"}, Nodes: there}), false, false, false, "certain users, certain nodes"},
				{permit(vmmc.Permission{Sessions: []string{"theirs"}}), false, true, false, "certain sessions"},
				{permit(vmmc.Permission{Sessions: []string{"theirs"}, Users: []string{user}}), false, true, false, ""},
				{permit(vmmc.Permission{Sessions: []string{"theirs"}, Users: []string{"nobody-at-all"}}), false, false, false, "certain users, certain sessions"},
				{permit(vmmc.Permission{Sessions: []string{""}}), false, false, true, ""},
				{permit(vmmc.Permission{Sessions: []string{"*"}}), true, true, true, ""},
				{permit(vmmc.Permission{Processes: []vmmc.ProcessID{other.ID()}}), false, true, false, "certain processes"},
				{permit(vmmc.Permission{Processes: []vmmc.ProcessID{other.ID()}, Sessions: []string{"mine"}}), false, false, false, ""},
				{permit(vmmc.Permission{Processes: []vmmc.ProcessID{{Node: there[0], PID: other.PID()}}}), false, false, false, ""},
				{permit(vmmc.Permission{}, vmmc.Permission{Processes: []vmmc.ProcessID{none.ID()}}), true, false, true, ""},
				{append(permit(vmmc.Permission{}), permit(vmmc.Permission{Sessions: []string{"theirs"}})...), true, true, false, ""},
			} {
				e, err := exp.Export(uint32(i), make([]byte, 8), c.opts...)
				if err != nil {
					t.Fatalf("case %d: %v", i, err)
				}
				for _, im := range []struct {
					who   *vmmc.Process
					may   bool
					calls string
				}{{same, c.same, "the same session"}, {other, c.other, "another session"}, {none, c.none, "no session"}} {
					ctx, stop := context.WithTimeout(t.Context(), bound)
					got, err := im.who.Import(ctx, exp.Node(), exp.PID(), uint32(i))
					stop()
					switch {
					case im.may && err != nil:
						t.Errorf("case %d: %s: %v", i, im.calls, err)
					case im.may:
						if err := got.Send(t.Context(), word, 0); err != nil {
							t.Errorf("case %d: %s: %v", i, im.calls, err)
						}
					case !errors.Is(err, vmmc.ErrNoRights), !errors.Is(err, vmmc.ErrBadIbufState):
						t.Errorf("case %d: %s: %v, want %v", i, im.calls, err, vmmc.ErrNoRights)
					case im.who == same && !strings.Contains(err.Error(), c.says), !strings.Contains(err.Error(), fmt.Sprint("buffer ", i)):
						t.Errorf("case %d: %q does not say %q", i, err, c.says)
					}
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func permit(ps ...vmmc.Permission) []vmmc.ExportOption {
	return []vmmc.ExportOption{vmmc.Permit(ps...)}
}

func nodeNamed(t testing.TB, name string) (n vmmc.NodeID) {
	t.Helper()
	if err := n.UnmarshalText([]byte(name)); err != nil {
		t.Fatal(err)
	}
	return n
}

// A process that may import no buffer learns nothing: it is refused at once, in the same
// words, whether the buffer exists or not. A process that may import some buffer may wait.
func TestWhoMayWait(t *testing.T) {
	for _, way := range []string{"one node", "between nodes"} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			exp, guest, stranger := joinAs(t, far, "mine"), joinAs(t, near, "guest"), joinAs(t, near, "stranger")
			ask := func(p *vmmc.Process, id uint32) error {
				_, err := p.Import(t.Context(), exp.Node(), exp.PID(), id)
				return err
			}
			says := func(id uint32) string {
				err := ask(stranger, id)
				if !errors.Is(err, vmmc.ErrNoRights) {
					t.Errorf("a stranger: %v, want %v", err, vmmc.ErrNoRights)
				}
				return strings.Replace(err.Error(), fmt.Sprint("buffer ", id), "buffer N", 1)
			}
			export := func(id uint32, opts ...vmmc.ExportOption) *vmmc.Export {
				e, err := exp.Export(id, make([]byte, 8), opts...)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			forGuest := vmmc.Permit(vmmc.Permission{Sessions: []string{"guest"}})
			before := says(1)
			if err := ask(guest, 1); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("a guest before anything is exported for it: %v", err)
			}
			export(1)
			first := export(2, forGuest)
			for _, id := range []uint32{1, 2, 3} {
				if now := says(id); now != before {
					t.Errorf("a stranger can tell the buffers apart:\n%s\n%s", before, now)
				}
			}
			if err := ask(guest, 2); err != nil {
				t.Errorf("a guest: %v", err)
			}
			if err := ask(guest, 1); !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("a guest, where it is not let in: %v", err)
			}
			errs := make(chan error, 3)
			for id := range uint32(3) {
				go func() { errs <- ask(guest, 10+id) }()
			}
			export(10, forGuest)
			if err := <-errs; err != nil {
				t.Errorf("a guest that waited: %v", err)
			}
			export(11)
			if err := <-errs; !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("a guest that waited for a buffer that it may not import: %v", err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-errs:
				t.Errorf("another export still lets it in: %v", err)
			default:
			}
			export(12, forGuest)
			if err := <-errs; err != nil {
				t.Errorf("a guest that waited: %v", err)
			}
		})
	}
}

// When nothing lets a guest in any more, it does not wait any more.
func TestGuestWhoIsLetIntoNothingAnyMore(t *testing.T) {
	near, far := nodes(t, "between nodes")
	exp, guest := joinAs(t, far, "mine"), joinAs(t, near, "guest")
	e, err := exp.Export(1, make([]byte, 8), vmmc.Permit(vmmc.Permission{Sessions: []string{"*"}}))
	if err != nil {
		t.Fatal(err)
	}
	full := make(chan error, 65)
	for range cap(full) {
		go func() {
			_, err := guest.Import(t.Context(), exp.Node(), exp.PID(), 2)
			full <- err
		}()
	}
	if err := <-full; !errors.Is(err, vmmc.ErrNoMem) {
		t.Errorf("more than 64 imports that wait: %v, want %v", err, vmmc.ErrNoMem)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for range cap(full) - 1 {
		select {
		case err := <-full:
			if !errors.Is(err, vmmc.ErrNoRights) {
				t.Errorf("%v, want %v", err, vmmc.ErrNoRights)
			}
		case <-time.After(bound):
			t.Fatal("a guest waits on though nothing lets it in")
		}
	}
}

func TestPermissionsThatCannotBe(t *testing.T) {
	p := open(t, start(t))
	for what, opt := range map[string]vmmc.ExportOption{
		"none":             vmmc.Permit(),
		"too many":         vmmc.Permit(make([]vmmc.Permission, 257)...),
		"too long a name":  vmmc.Permit(vmmc.Permission{Users: []string{strings.Repeat("x", 8193)}}),
		"too many entries": vmmc.Permit(vmmc.Permission{Processes: make([]vmmc.ProcessID, 300)}),
		"no name":          vmmc.Permit(vmmc.Permission{Sessions: []string{"\xff"}}),
		"no node":          vmmc.Permit(vmmc.Permission{Nodes: make([]vmmc.NodeID, 1)}),
	} {
		if _, err := p.Export(1, make([]byte, 8), opt); !errors.Is(err, vmmc.ErrBadArg) || !strings.Contains(err.Error(), "buffer 1") {
			t.Errorf("%s: %v, want %v", what, err, vmmc.ErrBadArg)
		}
	}
	names := []string{strings.Repeat("\x01", 8192)} // the longest in JSON
	if _, err := p.Export(1, make([]byte, 8), vmmc.Permit(vmmc.Permission{Users: names})); err != nil {
		t.Errorf("as much as there may be: %v", err)
	}
	if _, err := p.Export(2, make([]byte, 8)); err != nil {
		t.Errorf("the connection to the node: %v", err)
	}
}

// A permission is of one export, not of its number: what was allowed for the
// export before is not allowed for the next one.
func TestPermissionDoesNotOutliveItsExport(t *testing.T) {
	n := start(t)
	exp, guest := joinAs(t, n.Socket(), "mine"), joinAs(t, n.Socket(), "guest")
	all := vmmc.Permit(vmmc.Permission{Users: []string{"*"}})
	if _, err := exp.Export(2, make([]byte, 4), all); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			im, err := guest.Import(t.Context(), exp.Node(), exp.PID(), 1)
			switch {
			case err == nil && im.Size() != 4:
				t.Error("it was let in where only the exporter's session may be")
				return
			case err == nil:
				_ = im.Close()
			case !errors.Is(err, vmmc.ErrNoRights) && !errors.Is(err, vmmc.ErrBadRbufState): // the latter: closed meanwhile
				t.Error(err)
				return
			}
		}
	}()
	for range 200 {
		for size, opts := range map[int][]vmmc.ExportOption{4: {all}, 8: nil} {
			e, err := exp.Export(1, make([]byte, size), opts...)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	// It may be waiting for the next one.
	if _, err := exp.Export(1, make([]byte, 4), all); err != nil {
		t.Fatal(err)
	}
	<-done
}
