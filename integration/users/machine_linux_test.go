package users

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("join", joinRole) }

// joinRole is a program that joins the node as programs do by default, and imports
// and exports nothing.
func joinRole() int {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	p, err := vmmc.Open(ctx)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer p.Close()
	fmt.Println("joined", p.Node())
	return 0
}

// bound is longer than any script takes.
const bound = 2 * time.Minute

// The users of the scripts: $VICTIM, $OTHER and $DAEMON. They need no account.
const (
	victim = 64_401
	other  = 64_402
	system = 64_403
)

// prelude makes a machine of the namespaces: /bin of the programs, and nothing in /tmp,
// /run and /var/lib.
const prelude = `set -eu
mount -t tmpfs -o mode=755 none /run
mkdir /run/bin
cp "$BIN"/* /run/bin/
cp "$JOIN" /run/bin/join
mount -t tmpfs -o mode=1777 none /tmp
mount -t tmpfs -o mode=755 none /var/lib
mount -t tmpfs -o mode=755 none /mnt
cd /
export PATH=/run/bin:$PATH
unset VMMC_SOCKET VMMC_ROOT XDG_RUNTIME_DIR XDG_STATE_HOME TMPDIR
as() { # USER COMMAND...
	u=$1; shift
	mkdir -p /mnt/$u; chown $u:$u /mnt/$u
	HOME=/mnt/$u setpriv --reuid=$u --regid=$u --clear-groups timeout 60 "$@"
}
join() { # USER: its program joins the node
	VMMC_TEST_ROLE=join as "$1" join --
}
await() { # COMMAND...: until it succeeds
	n=0
	until "$@" >/dev/null 2>&1; do
		n=$((n+1)); [ $n -lt 600 ] || { echo "in vain: $*"; "$@"; exit 1; }
		sleep 0.1
	done
}
refused() { # COMMAND...: it fails, and what it says is shown in one line
	if said=$("$@" 2>&1); then echo "succeeded: $*: $said"; else echo "status $?: $(printf %s "$said" | tr '\n' ' ')"; fi
}
`

// built has the programs, made once.
var built struct {
	sync.Once
	dir string
	err error
}

func programs() (string, error) {
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "vmmc-users-"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", built.dir, "../../cmd/...").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	return built.dir, built.err
}

// remove is for what was built, when the last test has ended.
func remove() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}

// run runs a script as root of the machine and gives what it printed.
func run(t *testing.T, script string) string {
	t.Helper()
	testutil.Require(t, testutil.Slow == 1, "the programs are built without the race detector: it has nothing to see here")
	testutil.Require(t, os.Getuid() == 0, "becoming other users, in a mount namespace, needs root; run the tests as root")
	for _, tool := range []string{"unshare", "setpriv"} {
		_, err := exec.LookPath(tool)
		testutil.Require(t, err == nil, "there is no "+tool+"; install util-linux")
	}
	err := exec.Command("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/run").Run()
	testutil.Require(t, err == nil, "mounting in namespaces of its own is not possible here (unshare --mount --pid)")
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	c := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private", "sh", "-c", prelude+script)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), "BIN="+bin, "JOIN="+exe, fmt.Sprintf("VICTIM=%d", victim), fmt.Sprintf("OTHER=%d", other), fmt.Sprintf("DAEMON=%d", system))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("the script: %v", err)
	}
	return string(out)
}

// says wants each pattern in what was printed, line by line in their order.
func says(t *testing.T, out string, patterns ...string) {
	t.Helper()
	rest := strings.Split(out, "\n")
	for _, p := range patterns {
		r := regexp.MustCompile(p)
		at := 0
		for at < len(rest) && !r.MatchString(rest[at]) {
			at++
		}
		if at == len(rest) {
			t.Errorf("no line matches %q (in its place) in:\n%s", p, out)
			return
		}
		rest = rest[at+1:]
	}
}
