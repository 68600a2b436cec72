package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("ganesha", func() int {
		if err := askGanesha(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	})
}

// find finds a program where administrators' are too.
func find(program string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(program)
}

// A real NFS server that others wrote, with the system's rpcbind: NFS-Ganesha, in a network of its
// own.
func TestGanesha(t *testing.T) {
	for program, pack := range map[string]string{"rpcbind": "rpcbind", "ganesha.nfsd": "nfs-ganesha-mem"} {
		_, err := find(program)
		testutil.Require(t, err == nil, "there is no "+program+": install "+pack)
	}
	ns := testutil.NewNet(t, 1)[0]
	if out, err := ns.Enter(testutil.Command(t, "ganesha", t.TempDir())).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// ganeshaConf has one export, of memory.
const ganeshaConf = `
NFS_CORE_PARAM { Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; }
NFSV4 { Graceless = true; RecoveryRoot = /run/ganesha; }
EXPORT {
	Export_Id = 1; Path = %s; Pseudo = /pub; Access_Type = RO; Protocols = 3, 4;
	FSAL { Name = MEM; }
	CLIENT { Clients = 127.0.0.1/32; }
}
`

// askGanesha runs rpcbind and the server, asks it, and ends them. ip netns has given this process
// mounts of its own, so that no other process sees its /run.
func askGanesha(dir string) (err error) {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "none", "/run").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	conf, log := filepath.Join(dir, "conf"), filepath.Join(dir, "log")
	if err := errors.Join(os.Mkdir("/run/ganesha", 0o700), os.WriteFile(conf, fmt.Appendf(nil, ganeshaConf, dir), 0o600)); err != nil {
		return err
	}
	for _, command := range [][]string{{"rpcbind", "-f", "-w"}, {"ganesha.nfsd", "-F", "-f", conf, "-L", log, "-p", "/run/ganesha/pid"}} {
		path, err := find(command[0])
		if err != nil {
			return err
		}
		c := exec.CommandContext(ctx, path, command[1:]...)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return err
		}
		defer func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		}()
	}
	for ctx.Err() == nil {
		if err = answers(ctx, dir); err == nil {
			return answers(ctx, dir, "--network", "udp")
		}
		time.Sleep(20 * time.Millisecond) // the server does not announce that it is ready
	}
	said, _ := os.ReadFile(log)
	return fmt.Errorf("%w\n%s", err, said)
}

// answers says whether the server answers by what is expected of it. NFS 4 is not spoken by UDP.
func answers(ctx context.Context, dir string, args ...string) error {
	var out bytes.Buffer
	c := newCommand()
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(append(args, "--json", "--timeout", "2s", "127.0.0.1"))
	if err := c.ExecuteContext(ctx); err != nil {
		return err
	}
	var f found
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return err
	}
	here := slices.ContainsFunc(f.Exports, func(x export) bool {
		return x.Directory == dir && slices.Equal(x.Groups, []string{"127.0.0.1/32"})
	})
	if len(f.Versions) == 0 || f.Versions[0].Version != 3 || len(args) == 0 && len(f.Versions) != 2 || !here {
		return fmt.Errorf("it answers %s", out.Bytes())
	}
	return nil
}
