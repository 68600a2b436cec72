package guide

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/testutil/script"
)

const (
	nodes    = 4
	patience = script.Patience // bounds every wait
	// guest is the account of the manual's examples. The machines of the lab have it,
	// with an id that no account of this machine has.
	guest = 64077
)

// lab is four nodes, node1 to node4, and a machine without a node, each in a network
// namespace. They share files, as machines with a file server do.
type lab struct {
	dir     string
	net     []*testutil.NS // the nodes' and, last, the machine's that is none
	daemons []*exec.Cmd
}

func newLab(t *testing.T) *lab {
	testutil.Require(t, !raceEnabled, "the programs are built without the race detector: it has nothing to see here")
	l := &lab{net: testutil.NewNet(t, nodes+1)}
	for _, tool := range []string{"go", "setpriv", "mount"} {
		_, err := exec.LookPath(tool)
		testutil.Require(t, err == nil, "needs the program "+tool)
	}
	// Not of t: that one is closed to other users, and has long names for sockets.
	dir, err := os.MkdirTemp("", "vmmcguide")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755))
	l.dir = dir
	for _, d := range []string{"share", "share/bin", "share/tmp", "share/mytestdir", "home"} {
		check(t, os.Mkdir(l.path(d), 0o755))
		check(t, os.Chown(l.path(d), guest, guest))
	}
	l.build(t)
	l.files(t)
	// Before the namespaces go, and with what a failed script has left.
	t.Cleanup(func() { l.killLeft(t) })
	for i := range nodes {
		l.start(t, i)
	}
	for i := range nodes {
		l.await(t, "vmmc", "node", "ls", "--socket", l.socket(i))
	}
	return l
}

func (l *lab) path(p string) string      { return filepath.Join(l.dir, p) }
func (l *lab) socket(i int) string       { return l.path(name(i) + ".sock") }
func name(i int) string                  { return fmt.Sprintf("node%d", i+1) }
func (l *lab) bin(program string) string { return l.path("bin/" + program) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build makes the programs as a user has them: the tools, and in the share the
// samples.
func (l *lab) build(t *testing.T) {
	// "go test" gives an old result again unless a file has changed that the test
	// itself has looked at, and not only the programs that it starts.
	check(t, filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.' {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	}))
	for out, packages := range map[string]string{"bin/": "./cmd/...", "share/bin/": "./samples/..."} {
		args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", l.path(out) + "/"}
		if invariant.Enabled {
			args = append(args, "-tags=vmmcdebug")
		}
		c := exec.CommandContext(t.Context(), "go", append(args, packages)...)
		c.Dir = "../.."
		if b, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, b)
		}
	}
}

// run runs a tool on this machine to its end.
func (l *lab) run(t *testing.T, program string, args ...string) {
	t.Helper()
	if b, err := exec.CommandContext(t.Context(), l.bin(program), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, b)
	}
}

// await runs it until it succeeds.
func (l *lab) await(t *testing.T, program string, args ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		b, err := exec.CommandContext(t.Context(), l.bin(program), args...).CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s %v: %v\n%s", program, args, err, b)
		}
	}
}

// files makes what the nodes and the user have: certificates, a list of the nodes,
// accounts, drives, and the tools of the scripts.
func (l *lab) files(t *testing.T) {
	l.run(t, "vmmc", "cert", "init", "--dir", l.path("ca"), "--cluster", "guide")
	l.run(t, "vmmc", "cert", "user", "--dir", l.path("ca"), "--out", l.path("certs"), "guest")
	var hosts strings.Builder
	for i := range nodes {
		l.run(t, "vmmc", "cert", "node", "--dir", l.path("ca"), "--out", l.path("certs"), name(i))
		fmt.Fprintf(&hosts, "%s %s:7411\n", name(i), l.net[i].Addr)
		check(t, os.Mkdir(l.path(name(i)+".drives"), 0o755))
	}
	check(t, filepath.Walk(l.path("certs"), func(p string, _ os.FileInfo, err error) error {
		if err == nil {
			err = os.Chown(p, guest, guest)
		}
		return err
	}))
	accounts, err := os.ReadFile("/etc/passwd")
	check(t, err)
	accounts = fmt.Appendf(accounts, "guest:x:%d:%d:guest:%s:/bin/sh\n", guest, guest, l.path("home"))
	tools := map[string]string{"vmmc-hosts.txt": hosts.String(), "passwd": string(accounts)}
	check(t, os.Mkdir(l.path("tools"), 0o755))
	// A command on the machine without a node, as guest. Two quotation marks are an
	// empty argument, as the manual's shell has it.
	for _, p := range []string{"vmmc", "cfgvmmc"} {
		flags := ""
		if p == "cfgvmmc" { // "vmmc" needs them said, this one finds them in the environment
			flags = "VMMC_HOSTS_FILE=" + l.path("vmmc-hosts.txt") + " VMMC_CERTS=" + l.path("certs")
		}
		tools["tools/"+p] = l.asGuest(nodes, `for a; do shift; [ "$a" != '""' ] || a=; set -- "$@" "$a"; done`, "env -u VMMC_SOCKET "+flags+" "+l.bin(p))
	}
	// on nodeN COMMAND...: a command on a node, as guest.
	tools["tools/on"] = "#!/bin/sh\nnode=$1; shift; exec " + l.path("tools/on-") + `$node "$@"` + "\n"
	for i := range nodes {
		tools["tools/on-"+name(i)] = l.asGuest(i, "", "env VMMC_SOCKET="+l.socket(i)+" PATH="+l.path("bin")+":/usr/bin:/bin")
	}
	// cut nodeN down|up: a node's network.
	tools["tools/cut"] = "#!/bin/sh\ncase $1 in\n"
	for i := range nodes {
		tools["tools/cut"] += name(i) + ") exec ip -n " + l.net[i].Name + " link set eth0 $2;;\n"
	}
	tools["tools/cut"] += "esac\nexit 2\n"
	for f, text := range tools {
		check(t, os.WriteFile(l.path(f), []byte(text), 0o755))
	}
}

// asGuest is a script that runs a command with its arguments on machine i.
func (l *lab) asGuest(i int, first, command string) string {
	return fmt.Sprintf("#!/bin/sh\n%s\nexec ip netns exec %s sh -c '%s' %s setpriv --reuid=%d --regid=%[5]d --clear-groups %s \"$@\"\n",
		first, l.net[i].Name, `mount --bind "$0" /etc/passwd && exec "$@"`, l.path("passwd"), guest, command)
}

// start starts a node's daemon.
func (l *lab) start(t *testing.T, i int) {
	log, err := os.Create(l.path(name(i) + ".log"))
	check(t, err)
	defer log.Close()
	// Each machine has the account; what "ip netns exec" mounts is its own.
	c := l.net[i].Command("sh", "-c", `mount --bind "$0" /etc/passwd && exec "$@"`, l.path("passwd"),
		l.bin("vmmcd"), "--name", name(i), "--hosts", l.path("vmmc-hosts.txt"), "--certs", l.path("certs/"+name(i)),
		"--socket", l.socket(i), "--state", l.path(name(i)+".state"), "--drives", l.path(name(i)+".drives"), "--log-level", "warn")
	c.Stdout, c.Stderr = log, log
	check(t, c.Start())
	l.daemons = append(l.daemons, c)
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("%s has logged:\n%s", name(i), b)
		}
	})
}

// stop ends the nodes in good order, and sees that nothing is left of them and of
// all sessions.
func (l *lab) stop(t *testing.T) {
	for _, c := range l.daemons {
		check(t, c.Process.Signal(syscall.SIGTERM))
	}
	for i, c := range l.daemons {
		if err := c.Wait(); err != nil {
			t.Errorf("%s ends with %v", name(i), err)
		}
	}
	if left := l.left(t); len(left) > 0 {
		t.Errorf("there are processes left: %v", left)
	}
	for i := range nodes {
		for _, d := range []string{".state/sessions", ".state/run", ".drives"} {
			list, err := os.ReadDir(l.path(name(i) + d))
			check(t, err)
			if len(list) > 0 {
				t.Errorf("%s%s has %v left in it", name(i), d, list)
			}
		}
	}
}
