package hostileuser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// What one user may cost another one.
const (
	slowdown    = 10              // of each operation's p99, against the same operation in quiet
	longest     = 2 * time.Second // of each operation's p99
	mostThread  = 200             // of the daemon
	mostClosing = 16              // of these, in close(2): few for each sender of descriptors
	mostMemory  = 512 << 20       // resident bytes of the daemon
)

// floor is the least p99 that the slowdown is asked against. Below it the scheduler of two busy
// processors decides, and not the daemon.
const floor = 5 * time.Millisecond

// stage is root's daemon on a socket that all may use, the commands, and the users.
type stage struct {
	dir, socket      string
	vmmc, vmmcd      string
	self, nice       string // this test binary, where all may execute it, and nice(1)
	attacker, victim *user.User
	peer             *user.User // of the hostile exporter and importer: the attacker's flood of rights is not theirs
	daemon           *exec.Cmd
	log              bytes.Buffer
}

func newStage(t *testing.T) *stage {
	t.Helper()
	testutil.Require(t, os.Getuid() == 0, "becoming three other users needs root; run the tests as root")
	s := &stage{}
	for _, id := range []string{"1", "2", "5", "65534"} {
		u, err := user.LookupId(id)
		switch {
		case err != nil:
		case s.attacker == nil:
			s.attacker = u
		case s.victim == nil:
			s.victim = u
		case s.peer == nil:
			s.peer = u
		}
	}
	testutil.Require(t, s.peer != nil, "needs three accounts among the users 1, 2, 5 and 65534")
	var err error
	if s.dir, err = os.MkdirTemp("", "vmmc-hostile"); err != nil { // t.TempDir lets no other user in
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command("rm", "-rf", s.dir).Run() }) // some of it is deep
	check(t, os.Chmod(s.dir, 0o755))
	s.vmmc, s.vmmcd = filepath.Join(s.dir, "vmmc"), filepath.Join(s.dir, "vmmcd")
	s.socket = filepath.Join(s.dir, "node.sock")
	if s.nice, err = exec.LookPath("nice"); err != nil {
		t.Skip("needs nice(1), of coreutils: ", err)
	}
	own, err := os.ReadFile("/proc/self/exe")
	check(t, err)
	s.self = filepath.Join(s.dir, "test")
	check(t, os.WriteFile(s.self, own, 0o700))
	check(t, os.Chmod(s.self, 0o755))
	if out, err := exec.Command("go", "build", "-o", s.dir, "../../cmd/vmmc", "../../cmd/vmmcd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, u := range []*user.User{s.attacker, s.victim, s.peer} {
		home := s.home(u)
		check(t, os.Mkdir(home, 0o700))
		uid, gid := ids(t, u)
		check(t, os.Chown(home, int(uid), int(gid)))
	}
	s.daemon = exec.Command(s.vmmcd, "--name", "one", "--socket", s.socket, "--state", filepath.Join(s.dir, "state"))
	s.daemon.Stdout, s.daemon.Stderr = &s.log, &s.log
	s.daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, s.daemon.Start())
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(s.socket); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the daemon does not start: %s", s.log.String())
		}
	}
	return s
}

// end stops the daemon, which must do that in time whatever the attacker has left it.
func (s *stage) end(t *testing.T) {
	t.Helper()
	check(t, s.daemon.Process.Signal(syscall.SIGTERM))
	done := make(chan error, 1)
	go func() { done <- s.daemon.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the daemon, told to stop, ends with %v:\n%s", err, tail(s.log.String()))
		}
	case <-time.After(30 * time.Second):
		_ = s.daemon.Process.Signal(syscall.SIGQUIT) // its goroutines are in the log
		err := <-done
		t.Errorf("the daemon, told to stop, does not, and is ended with %v:\n%s", err, tail(s.log.String()))
	}
}

func (s *stage) home(u *user.User) string { return filepath.Join(s.dir, "home-"+u.Uid) }

// attacking runs this test binary in a role as u, at the lowest priority. How the kernel
// divides processors among users is its administrator's affair, and not what is measured here. What
// the attacker has the daemon do is done at the daemon's priority.
func (s *stage) attacking(t *testing.T, u *user.User, role string, args ...string) *exec.Cmd {
	t.Helper()
	c := s.as(t, u, role, args...)
	c.Args = append([]string{"nice", "-n", "19", s.self}, c.Args[1:]...)
	c.Path = s.nice
	return c
}

// as runs this test binary in a role as a user.
func (s *stage) as(t *testing.T, u *user.User, role string, args ...string) *exec.Cmd {
	t.Helper()
	c := testutil.Command(t, role, args...)
	c.Path = "/proc/self/exe" // the directory that it is in may be root's alone
	c.Dir = s.home(u)
	uid, gid := ids(t, u)
	c.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	c.Env = append(c.Env, nodeproto.Env+"="+s.socket, "HOME="+s.home(u), "TMPDIR="+s.home(u))
	return c
}

func ids(t *testing.T, u *user.User) (uid, gid uint32) {
	t.Helper()
	var n [2]uint64
	for i, s := range []string{u.Uid, u.Gid} {
		var err error
		n[i], err = strconv.ParseUint(s, 10, 32)
		check(t, err)
	}
	return uint32(n[0]), uint32(n[1])
}

// member is a process that the test talks with by its input and output.
type member struct {
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

func start(t *testing.T, c *exec.Cmd) *member {
	t.Helper()
	in, err := c.StdinPipe()
	check(t, err)
	out, err := c.StdoutPipe()
	check(t, err)
	c.Stderr = os.Stderr
	check(t, c.Start())
	m := &member{in, bufio.NewReader(out), c}
	if s := m.line(t); s != "ready" {
		t.Fatalf("%s says %q", c.Args, s)
	}
	return m
}

func (m *member) line(t *testing.T) string {
	t.Helper()
	s, err := m.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, then %v", s, err)
	}
	return strings.TrimSuffix(s, "\n")
}

// measured ends the victim's phase and returns what it recorded.
func (m *member) measured(t *testing.T, command string) map[string]*latencies {
	t.Helper()
	_, err := io.WriteString(m.in, command+"\n")
	check(t, err)
	var ops map[string]*latencies
	check(t, json.Unmarshal([]byte(m.line(t)), &ops))
	return ops
}

// usage is what the daemon has at most.
type usage struct{ threads, closing, files, memory int }

// watch looks at the daemon until done is closed.
func (s *stage) watch(done <-chan struct{}) (u usage) {
	for i := 0; ; i++ {
		now := s.usage()
		u.threads, u.files, u.memory = max(u.threads, now.threads), max(u.files, now.files), max(u.memory, now.memory)
		if i%10 == 0 { // it takes a look at each thread
			u.closing = max(u.closing, s.closing())
		}
		select {
		case <-done:
			return u
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// limit is how many descriptors the daemon may have.
func (s *stage) limit(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.daemon.Process.Pid))
	check(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			check(t, err)
			return n
		}
	}
	t.Fatalf("no limit of open files in %s", b)
	return 0
}

// closing is how many threads of the daemon are in close(2).
func (s *stage) closing() (n int) {
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", s.daemon.Process.Pid))
	for _, f := range calls {
		if b, _ := os.ReadFile(f); bytes.HasPrefix(b, fmt.Appendf(nil, "%d ", syscall.SYS_CLOSE)) {
			n++
		}
	}
	return n
}

func (s *stage) usage() (u usage) {
	proc := fmt.Sprintf("/proc/%d/", s.daemon.Process.Pid)
	status, _ := os.ReadFile(proc + "status")
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "Threads:":
			u.threads = n
		case "VmRSS:":
			u.memory = n << 10
		}
	}
	fds, _ := os.ReadDir(proc + "fd")
	u.files = len(fds)
	return u
}

// newDirtyFiles makes the file system of dirty.
func newDirtyFiles(t *testing.T, owner uint32) *testutil.FUSE {
	t.Helper()
	var all []testutil.FUSEFile
	for _, of := range []string{"attacker", "exporter", "importer"} {
		for n := range dirtyEach {
			all = append(all, testutil.FUSEFile{Name: dirtyFile(of, n), Mode: 0o666, UID: owner})
		}
	}
	return testutil.NewFUSE(t, true, all...)
}

// needConnections are the attacks that achieve something only with connections of their own. They
// begin before the others take all that a user may have.
var needConnections = []string{"names", "flood of names"}

// TestHostileUser has one user attack root's daemon in all ways at once while another user works.
func TestHostileUser(t *testing.T) {
	total := 15 * time.Second
	if d := os.Getenv("VMMC_HOSTILE_USER"); d != "" {
		var err error
		total, err = time.ParseDuration(d)
		check(t, err)
	} else {
		testutil.Require(t, !testing.Short(), "takes half a minute")
	}
	s := newStage(t)
	base := filepath.Join(s.home(s.victim), "base")
	check(t, os.Mkdir(base, 0o700))
	uid, gid := ids(t, s.victim)
	check(t, os.Chown(base, int(uid), int(gid)))
	attackerID, _ := ids(t, s.attacker)
	program, err := os.ReadFile("/bin/true")
	check(t, err)
	files := newDirtyFiles(t, attackerID)
	stuck := testutil.NewFUSE(t, false, testutil.FUSEFile{Name: "true", Data: program, Mode: 0o755, UID: attackerID})
	for _, f := range []*testutil.FUSE{files, stuck} { // the directories that they are in are root's alone
		for d := filepath.Dir(f.Dir); len(d) > len(os.TempDir()); d = filepath.Dir(d) {
			check(t, os.Chmod(d, 0o755))
		}
	}
	victim := start(t, s.as(t, s.victim, "victim", s.vmmc, base))
	time.Sleep(time.Second) // what is made for the first time is no measure
	prey := victim.line(t)
	victim.measured(t, "")
	time.Sleep(max(5*time.Second, total/6))
	quiet := victim.measured(t, "")
	before := s.usage()

	files.Hang("flush", "write", "release")
	stuck.Hang("open", "read")
	done := make(chan struct{})
	used := make(chan usage, 1)
	go func() { used <- s.watch(done) }()
	counts := map[string]*counter{}
	var attackers []*exec.Cmd
	var inputs []io.Closer
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(attacks)), func(name string) bool {
		return slices.Contains(needConnections, name)
	})
	for _, name := range slices.Concat(needConnections, others) {
		c := s.attacking(t, s.attacker, "attacker", name, s.socket, s.vmmc, s.home(s.attacker), files.Dir, stuck.Dir)
		counts[name] = &counter{}
		c.Stdout, c.Stderr = counts[name], io.Discard
		in, err := c.StdinPipe()
		check(t, err)
		check(t, c.Start())
		attackers, inputs = append(attackers, c), append(inputs, in)
		if !slices.Contains(needConnections, name) {
			continue
		}
		for end := time.Now().Add(20 * time.Second); counts[name].n.Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("attack %q does not begin", name)
			}
		}
	}
	exporter := start(t, s.attacking(t, s.peer, "hostile exporter", s.socket, files.Dir))
	victim.measured(t, exporter.line(t)) // what is measured from here on is under attack
	importer := start(t, s.attacking(t, s.peer, "hostile importer", s.socket, files.Dir, prey))
	importer.line(t)
	for name, m := range map[string]*member{"exporter": exporter, "importer": importer} {
		count := &counter{}
		counts[name] = count
		go func() { _, _ = io.Copy(count, m.out) }()
		attackers, inputs = append(attackers, m.cmd), append(inputs, m.in)
	}
	time.Sleep(total)
	attacked := victim.measured(t, "")
	files.Answer() // else a process that waits for the server could not be killed
	stuck.Answer()
	close(done)
	most := <-used
	for i, c := range attackers {
		_ = inputs[i].Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	}

	for _, name := range slices.Sorted(maps.Keys(quiet)) {
		q, a := quiet[name], attacked[name]
		if a == nil {
			t.Errorf("%s: none ended during the attack", name)
			continue
		}
		t.Logf("%-24s quiet:    %v", name, q)
		t.Logf("%-24s attacked: %v", "", a)
		bound := longest
		if len(q.Times) >= 100 { // of fewer the longest is no 99th percentile, and no measure of ten times as much
			bound = min(longest, slowdown*max(q.quantile(.99), floor))
		}
		if a.quantile(.99) > bound {
			t.Errorf("%s: p99 is %v under attack, at most %v", name, a.quantile(.99), bound)
		}
		if len(q.Failures)+len(a.Failures) > 0 {
			t.Errorf("%s: failed, for instance %s", name, append(q.Failures, a.Failures...)[0])
		}
	}
	late := attacked[careless]
	if late == nil || len(late.Times) == 0 {
		t.Fatalf("no %s ended", careless)
	}
	t.Logf("%-24s late:     %v", careless, late)
	if l := late.quantile(1); l > testutil.Slack { // without what the machine delays, see testutil.Within
		t.Errorf("%s: ends %v after its context, at most %v", careless, l, testutil.Slack)
	}
	if closed := attacked[carelessClose]; closed != nil {
		t.Logf("%-24s %v", carelessClose, closed)
		if l := closed.quantile(1); l > testutil.Slack {
			t.Errorf("%s takes %v, at most %v", carelessClose, l, testutil.Slack)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n := counts[name].n.Load()
		t.Logf("attack %-20s %6d times", name, n)
		if n == 0 {
			t.Errorf("attack %q was never made", name)
		}
	}
	t.Logf("the daemon had %d threads, %d of them in close, %d descriptors, %d MiB; before: %d, %d, %d",
		most.threads, most.closing, most.files, most.memory>>20, before.threads, before.files, before.memory>>20)
	// One user may have half of them, and 1/8 in flight.
	if mostFiles := s.limit(t) * 3 / 4; most.threads > mostThread || most.files > mostFiles || most.memory > mostMemory {
		t.Errorf("the daemon had more than %d threads, %d descriptors or %d MiB", mostThread, mostFiles, mostMemory>>20)
	}
	if most.closing == 0 || most.closing > mostClosing {
		t.Errorf("%d threads of the daemon were in close, want 1 to %d: the attacker's descriptors are slow to close", most.closing, mostClosing)
	}
	// What the attacker has cost is given back once it is gone.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		now := s.usage()
		if now.files <= before.files+32 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("the daemon has %d descriptors when the attacker is gone, before it had %d", now.files, before.files)
			break
		}
	}
	_ = victim.in.Close()
	if err := victim.cmd.Wait(); err != nil {
		t.Errorf("the victim ends with %v", err)
	}
	s.end(t)
}

func tail(s string) string { return s[max(0, len(s)-16<<10):] }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
