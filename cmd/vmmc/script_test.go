package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/testutil/script"
)

// patience bounds every wait of a script.
const patience = script.Patience

func TestScripts(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "nodes need Linux")
	socket := leash(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
			e.Setenv("VMMC_SOCKET", "")
			e.Setenv("JOBS", cmp.Or(os.Getenv("VMMC_TEST_JOBS"), "25"))
			if u, err := user.Current(); err == nil {
				e.Setenv("ME", u.Username)
			}
			e.Setenv(leashEnv, socket)
			// Under the race detector each command would wait a second at its end for
			// reports of other threads.
			e.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
			e.Defer(func() { stopClusters(e.WorkDir) })
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "mounts":
				return mounts(), nil
			case "root":
				return os.Getuid() == 0, nil
			case "race":
				return testutil.Slow > 1, nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":   script.Status,
			"await":    script.Await,
			"nodes":    nodesOf,
			"killnode": killNode,
			"rpcbind":  rpcbind,
			"restart":  restart,
			"freeport": freePort,
			"terminal": terminal,
			"asks":     asks,
		},
	})
}

// mounts reports whether a script can have programs of mount(8) of its own.
func mounts() bool {
	if os.Getuid() != 0 {
		return false
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		return false
	}
	return exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount -t overlay -o lowerdir=/bin:"$(readlink -f /sbin)" none "$(readlink -f /sbin)"`).Run() == nil
}

// stopClusters ends what a script that failed half way left running.
func stopClusters(work string) {
	_ = filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == stateFile {
			if s, err := readState(filepath.Dir(path)); err == nil {
				_ = s.stop()
			}
		}
		return nil
	})
}

// nodes DIR: sets NAME1, SOCKET1, ADDRESS1, CERTS1 and so on from the cluster.
func nodesOf(ts *testscript.TestScript, _ bool, args []string) {
	s, err := readState(ts.MkAbs(args[0]))
	ts.Check(err)
	for i, n := range s.Nodes {
		set := func(what, value string) { ts.Setenv(fmt.Sprintf("%s%d", what, i+1), value) }
		set("NAME", n.Name)
		set("SOCKET", n.Socket)
		set("ADDRESS", n.Address)
		set("PID", strconv.Itoa(n.Process.PID))
		set("CERTS", n.Args[slices.Index(n.Args, "--certs")+1])
	}
}

func find(ts *testscript.TestScript, dir, name string) nodeState {
	s, err := readState(ts.MkAbs(dir))
	ts.Check(err)
	i := slices.IndexFunc(s.Nodes, func(n nodeState) bool { return n.Name == name })
	if i < 0 {
		ts.Fatalf("no node %q in %s", name, dir)
	}
	return s.Nodes[i]
}

// killnode DIR NAME: kills the node as kill -9 does, and waits for its end.
func killNode(ts *testscript.TestScript, _ bool, args []string) {
	p := find(ts, args[0], args[1]).Process
	ts.Check(p.signal(syscall.SIGKILL))
	if !gone([]process{p}, patience) {
		ts.Fatalf("%s is there after %v", args[1], patience)
	}
}

// restart DIR NAME [COMMAND...]: runs the node again, by a command if there is one,
// until the script ends.
func restart(ts *testscript.TestScript, _ bool, args []string) {
	exe, err := exec.LookPath("vmmcd")
	ts.Check(err)
	node := find(ts, args[0], args[1])
	argv := append(slices.Clone(args[2:]), exe)
	argv = append(argv, node.Args...)
	// Another test that looks for a free port may have it for a moment.
	for range 100 {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), leashEnv+"="+ts.Getenv(leashEnv))
		log, err := os.OpenFile(node.Log, os.O_APPEND|os.O_WRONLY, 0)
		ts.Check(err)
		cmd.Stderr = log
		err = cmd.Start()
		_ = log.Close()
		ts.Check(err)
		over := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(over)
		}()
		ts.Defer(func() {
			_ = cmd.Process.Kill()
			<-over
		})
		if answers(node.Socket, over) {
			return
		}
	}
	log, _ := os.ReadFile(node.Log)
	ts.Fatalf("node %s does not start: %s", args[1], log)
}

// answers waits until a node does, or is over. One that finds its port taken listens
// at its socket before, and never answers.
func answers(socket string, over <-chan struct{}) bool {
	for {
		if c, err := nodeproto.Dial(context.Background(), socket); err == nil {
			conn := nodeproto.NewConn(c, nil)
			_, err = conn.Call(context.Background(), nodeproto.Unexport, nodeproto.ExportRequest{}, nil, nil)
			conn.Close()
			if !errors.Is(err, code.NoDaemon) { // it has refused
				return true
			}
		}
		select {
		case <-over:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freeport VAR: an address on this machine at which no program listens.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	as, err := cluster.FreeAddresses(1)
	ts.Check(err)
	ts.Setenv(args[0], as[0])
}
