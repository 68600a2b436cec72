//go:build linux

package daemon_test

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Where the machine starts again, the socket's directory is empty and the
// sessions are there: a pid that one of their programs has is not given again.
func TestPIDsOutliveTheSocket(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	_, p := output(t, s, "job", "exit 3")
	c.nodes["a"].Close()
	if err := os.Remove(c.at("a.sock.lock")); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	s = c.as("user", me(t), "a", nil)
	_, q := output(t, s, "job", "exit 4")
	if p.GetPid() == q.GetPid() || q.GetExitStatus() != 4 {
		t.Errorf("a program is %v, and after that one is %v", p, q)
	}
}

// A node that was started when another one had its state directory does not know
// the sessions there, and leaves them alone when the other one is gone.
func TestStateOfAnotherDaemon(t *testing.T) {
	c := newSessionCluster(t)
	a := c.as("user", me(t), "a", nil)
	b := c.as("user", me(t), "b", nil)
	c.nodes["b"].Close()
	if err := os.Symlink(c.at("state-a"), c.at("state-b")); err != nil {
		t.Fatal(err)
	}
	c.add(a, "job", t.TempDir())
	_, real := sleeper(t, a)
	c.start("b")
	c.nodes["a"].Close()
	_, err := b.AddSession(t.Context(), connect.NewRequest(&nodev1.AddSessionRequest{
		Name: "job", Drive: "-", Share: t.TempDir(), OutputDirectory: "/out",
	}))
	if !errors.Is(ownCode(err), code.BadConfig) {
		t.Errorf("it makes a session that is there: %v", err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(real[0]) + "/stat"); err != nil {
		t.Errorf("a program of the session is gone: %v", err)
	}
	c.nodes["b"].Close()
	c.start("a")
	if _, err := c.as("user", me(t), "a", nil).DeleteSession(t.Context(),
		connect.NewRequest(&nodev1.DeleteSessionRequest{Name: "job"})); err != nil {
		t.Error(err)
	}
}

// Sessions with long names of directories are listed all the same, in answers
// that get through.
func TestLongSessionsAreListed(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	for i := range 6 {
		_, err := s.AddSession(t.Context(), connect.NewRequest(&nodev1.AddSessionRequest{
			Name: strconv.Itoa(i), Drive: "-", Share: t.TempDir(),
			OutputDirectory: strings.Repeat("/"+strings.Repeat("d", 199), 18),
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for after, more := "", true; more; {
		l, err := s.ListSessions(t.Context(), connect.NewRequest(&nodev1.ListSessionsRequest{
			After: after,
		}))
		if err != nil || len(l.Msg.GetSessions()) == 0 || proto.Size(l.Msg) > nodeproto.MaxControl/2 {
			t.Fatalf("%d sessions in %d bytes (%v)", len(l.Msg.GetSessions()), proto.Size(l.Msg), err)
		}
		for _, s := range l.Msg.GetSessions() {
			after = s.GetName()
			names = append(names, after)
		}
		more = l.Msg.GetMore()
	}
	if got := strings.Join(names, ""); got != "012345" {
		t.Errorf("sessions %s are listed", got)
	}
	if _, err := s.AddSession(t.Context(), connect.NewRequest(&nodev1.AddSessionRequest{
		Name: "x", Drive: "-", Share: t.TempDir(), OutputDirectory: strings.Repeat("/d", 4000),
	})); !errors.Is(ownCode(err), code.BadArg) {
		t.Errorf("a longer one: %v", err)
	}
}

// A daemon that died between its record of a session and the drive for it leaves
// nothing of that, and another session's drive alone, although both are for one
// directory.
func TestHalfMadeSession(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	base := t.TempDir()
	c.add(s, "job", base)
	c.nodes["a"].Close()
	file := c.at("state-a/sessions/job.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	drives := c.at("state-a/drives")
	half := func(name, drive string) {
		var r map[string]any
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		r["Name"], r["Drive"], r["Ending"], r["Marker"], r["Cgroup"] = name, drive, true, t.Name()+name, ""
		b, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(c.at("state-a/sessions/"+name+".json"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	half("a", "Z:") // which is job's
	half("more", "Q:")
	if err := os.Symlink(base, drives+"/Q:"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	s = c.as("user", me(t), "a", nil)
	for deadline := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		es, err := os.ReadDir(c.at("state-a/sessions"))
		if err == nil && len(es) == 1 && es[0].Name() == "job.json" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the records are %v (%v)", es, err)
		}
	}
	if es, err := os.ReadDir(drives); err != nil || len(es) != 1 || es[0].Name() != "Z:" {
		t.Errorf("the drives are %v (%v)", es, err)
	}
	if got, _ := output(t, s, "job", "echo here"); got != "here\n" {
		t.Errorf("the session that was made prints %q", got)
	}
}
