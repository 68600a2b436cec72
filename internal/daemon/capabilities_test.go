//go:build linux

package daemon_test

import (
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/testutil"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func init() { testutil.RegisterRole("node with capabilities", capableRole) }

// capableRole is a node of vmmcd, in a directory.
func capableRole() int {
	dir := testutil.Args()[0]
	n, err := daemon.Start(daemon.Config{
		Name: "one", Socket: filepath.Join(dir, "one.sock"), State: filepath.Join(dir,
			"state"), Supervisor: []string{"/proc/self/exe", supervisorArg, supervisorArg},
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer n.Close()
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// The capabilities of packaging/vmmcd.service: chown, dac_override, fowner, kill, setgid, setuid
// and sys_ptrace.
var capabilities = []uintptr{0, 1, 3, 5, 6, 7, 19}

// A daemon that is not root's but has capabilities runs sessions and programs as their users,
// without these capabilities.
func TestSessionsByADaemonWithCapabilities(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	guest, err := user.LookupId("1")
	testutil.Require(t, err == nil, "this system has no user 1")
	home, dir := openDir(t), openDir(t)
	cmd := testutil.Command(t, "node with capabilities", home)
	cmd.Path = "/proc/self/exe" // the directory that it is in may be root's alone
	cmd.Dir = home
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	cmd.SysProcAttr.AmbientCaps = capabilities
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var up string
	if testutil.Start(t, cmd, &up); up != "up" {
		t.Fatal(up)
	}
	closeDir(t, home)
	where := ask.Flags{Socket: filepath.Join(home, "one.sock")}
	a, err := where.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := a.First.Client
	if _, err := s.AddSession(t.Context(), connect.NewRequest(&nodev1.AddSessionRequest{
		Name: "s", User: guest.Username, Drive: "-", Share: dir, OutputDirectory: "/out",
	})); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := s.DeleteSession(t.Context(), connect.NewRequest(&nodev1.DeleteSessionRequest{
			Name: "s",
		})); err != nil {
			t.Errorf("delete the session: %v", err)
		}
		_ = in.Close()
		_ = cmd.Wait()
	}()
	// Of the program, and of its supervisor.
	const look = `for p in $$ $PPID; do grep -E '^(Uid|CapInh|CapPrm|CapEff|CapAmb):' /proc/$p/status; done`
	want := strings.Repeat("Uid:\t1\t1\t1\t1\n"+none("Inh")+none("Prm")+none("Eff")+none("Amb"), 2)
	said, p := output(t, s, "s", look)
	if said != want || p.GetExitStatus() != 0 {
		t.Errorf("the session's program printed %q, want %q", said, want)
	}

	file := filepath.Join(dir, "spawned")
	spawn := testutil.Command(t, "spawn as", strconv.Itoa(otherUser), where.Socket, "one", "/bin/sh",
		"-c", `grep -E '^(Uid|Cap...):' /proc/$$/status >"$0"`, file)
	spawn.Dir = dir
	if answer, err := spawn.Output(); err != nil || !strings.HasPrefix(string(answer), "ended: true") {
		t.Errorf("spawn: %q, %v", answer, err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(b), fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n",
		otherUser)+none("Inh")+none("Prm")+none("Eff")) || !strings.HasSuffix(string(b), none("Amb")) {
		t.Errorf("the spawned program printed %q (%v)", b, err)
	}
}

func none(set string) string { return "Cap" + set + ":\t0000000000000000\n" }
