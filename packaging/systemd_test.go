//go:build linux

package packaging

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestUnderSystemd runs the unit under a systemd of its own, in namespaces: the
// daemon is a user without root's rights, and sessions go on when it is restarted or
// killed.
func TestUnderSystemd(t *testing.T) {
	testutil.Require(t, testutil.Slow == 1, "the programs are built without the race detector: it has nothing to see here")
	testutil.Require(t, os.Getuid() == 0, "running systemd needs root")
	for _, tool := range []string{"unshare", "systemd-sysusers", "systemd-tmpfiles", "systemctl", "pivot_root", "pgrep"} {
		_, err := exec.LookPath(tool)
		testutil.Require(t, err == nil, "there is no "+tool)
	}
	home, err := cgroup.Home()
	if err != nil {
		t.Skip("systemd needs a cgroup of its own: ", err)
	}
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", dir, "../cmd/vmmc", "../cmd/vmmcd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range []string{"vmmcd.service", "vmmc.sysusers", "vmmc.tmpfiles", "testdata/script"} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// In a cgroup of its own before it takes that for the root of all.
	group := filepath.Join(home, "vmmc-test-"+filepath.Base(filepath.Dir(dir)))
	c := exec.CommandContext(ctx, "sh", "-c", `read go; exec unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child sh testdata/boot.sh "$1"`, "sh", dir)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var console strings.Builder
	c.Stdout, c.Stderr = &console, &console
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cgroup.Kill(group, 10*time.Second); err != nil {
			t.Error(err)
		}
		if err := cgroup.Remove(group); err != nil {
			t.Error(err)
		}
	}()
	if err := cgroup.Enter(group, c.Process.Pid); err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(in, "\n")
	_ = in.Close()
	ended := c.Wait()
	b, _ := os.ReadFile(filepath.Join(dir, "out", "log"))
	log := string(b)
	if !strings.HasPrefix(log, "systemd is up\n") {
		t.Skipf("systemd does not run in namespaces here: %v\n%s", ended, console.String())
	}
	for _, says := range []string{
		"\nvmmc 755 /run/vmmc\n", "\nvmmc 711 /var/lib/vmmc\n", "\nvmmc 640 /var/log/vmmc/server.log\n", "\nvmmc\n", "\nroot\n",
		"\n0::/system.slice/vmmcd.service/vmmc-", "\nActiveState=inactive\n", "\nResult=success\n", "\nall is done\n",
	} {
		if !strings.Contains(log, says) {
			t.Errorf("it does not say %q", says)
		}
	}
	if n := strings.Count(log, " sleep 1000\n"); n != 2+1 { // and the command itself
		t.Errorf("the program was seen %d times", n)
	}
	if t.Failed() {
		t.Logf("%v\n%s\n%s", ended, log, console.String())
	}
}
