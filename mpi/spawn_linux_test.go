package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("spawned rank", spawned)
	vmmctest.Role("spawning rank", spawner)
}

// itself is this test binary, in a role.
func itself(n int, role string, args ...string) mpi.Command {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return mpi.Command{Path: exe, Args: append([]string{"--"}, args...), N: n, Env: []string{"VMMC_TEST_ROLE=" + role}}
}

// spawned is a child. It talks with its parents, and does what its first argument says.
func spawned(ctx context.Context, _ *vmmc.Process, args ...string) error {
	if args[0] == "ends before Init" {
		return errWrong
	}
	if args[0] == "two at most" {
		if rank, err := strconv.Atoi(os.Getenv(nodeproto.RankEnv)); err != nil || rank >= 2 {
			return fmt.Errorf("rank %d: %w", rank, errors.Join(err, errWrong))
		}
	}
	if args[0] == "hangs before Init" {
		time.Sleep(bound)
		return errWrong
	}
	c, err := mpi.Init(ctx)
	if err != nil {
		return err
	}
	parent := c.Parent()
	if parent == nil {
		return fmt.Errorf("no parent: %w", errWrong)
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := talkAcross(ctx, parent, size); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	tell := fmt.Sprintf("%d %s %s %d", c.AppNum(), filepath.Base(dir), os.Getenv("LEVEL"), os.Getpid())
	if err := mpi.Send(ctx, parent, []byte(tell), 0, 9); err != nil {
		return err
	}
	switch args[0] {
	case "finalizes", "two at most":
		if c.UniverseSize() != 7 {
			return fmt.Errorf("the universe has %d ranks: %w", c.UniverseSize(), errWrong)
		}
		return c.Finalize(ctx)
	case "disconnects":
		if err := parent.Disconnect(ctx); err != nil {
			return err
		}
		if c.Parent() != nil {
			return errors.New("there is a parent after Disconnect")
		}
	}
	if args[0] == "hears" { // that a parent is gone: its own job goes on
		if err := mpi.Send(ctx, parent, []int{1}, 0, 2); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		if _, err := mpi.Recv(ctx, parent, []int{0}, 0, 1); !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := os.WriteFile(args[2], []byte("heard"), 0o600); err != nil {
				return err
			}
		}
		return c.Finalize(ctx)
	}
	select {}
}

// spawner is a job of one rank that spawns two children, and waits.
func spawner(ctx context.Context, _ *vmmc.Process, args ...string) error {
	c, err := mpi.Init(ctx)
	if err != nil {
		return err
	}
	inter, err := c.Spawn(ctx, 0, itself(2, "spawned rank", args[0], "1", args[1]))
	if err != nil {
		return err
	}
	if err := talkAcross(ctx, inter, 2); err != nil {
		return err
	}
	for rank := range 2 { // A parent that is through with the barrier knows nothing of the children.
		if args[0] != "hears" {
			break
		}
		if _, err := mpi.Recv(ctx, inter, []int{0}, rank, 2); err != nil {
			return err
		}
	}
	fmt.Println("waits")
	select {}
}

// told is what a child has told.
func told(ctx context.Context, inter *mpi.Comm, rank int) ([]string, error) {
	buf := make([]byte, 200)
	st, err := mpi.Recv(ctx, inter, buf, rank, 9)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(buf[:st.Bytes])), nil
}

// alone has the children of a test started with no group.
func alone(t *testing.T) {
	for _, name := range []string{nodeproto.GroupEnv, nodeproto.RankEnv, nodeproto.SizeEnv} {
		t.Setenv(name, "")
	}
}

// A job spawns two commands, on all nodes, and both finalize while they are connected.
func TestSpawn(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			parents := jobOn(t, nodes, w.module, 2)
			dir := filepath.Join(t.TempDir(), "there")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			first, second := itself(2, "spawned rank", "disconnects", "2"), itself(1, "spawned rank", "disconnects", "2")
			for _, n := range nodes {
				if os.Getuid() == 0 && n != nodes[len(nodes)-1] {
					continue // a node starts nothing as root for other nodes
				}
				first.Hosts = append(first.Hosts, n.Name())
			}
			second.Dir = dir
			second.Env = append(second.Env, "LEVEL=3")
			each(t, parents, func(ctx context.Context, c *mpi.Comm) error {
				if c.Parent() != nil || c.AppNum() != mpi.Undefined {
					return fmt.Errorf("a job that was not spawned has a parent: %w", errWrong)
				}
				var cmds []mpi.Command
				if c.Rank() == 1 {
					cmds = []mpi.Command{first, second}
				}
				inter, err := c.Spawn(ctx, 1, cmds...) // rank 1 is on the last node
				if err != nil {
					return err
				}
				if err := talkAcross(ctx, inter, 3); err != nil {
					return err
				}
				var pids []int
				for rank := range 3 {
					if c.Rank() != 0 {
						break
					}
					got, err := told(ctx, inter, rank)
					if err != nil {
						return err
					}
					pid, err := strconv.Atoi(got[len(got)-1])
					if err != nil {
						return err
					}
					pids = append(pids, pid)
					if rank == 2 && (got[0] != "1" || got[1] != "there" || got[2] != "3") || rank < 2 && got[0] != "0" {
						return fmt.Errorf("child %d has %q: %w", rank, got, errWrong)
					}
				}
				if err := inter.Disconnect(ctx); err != nil {
					return err
				}
				for _, pid := range pids { // they live, because nothing connects them any more
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						return fmt.Errorf("kill child %d: %w", pid, err)
					}
				}
				return c.Barrier(ctx)
			})
		})
	}
}

// Parents and children that are connected finalize together.
func TestSpawnFinalize(t *testing.T) {
	t.Setenv(nodeproto.UniverseEnv, "7")
	parents := jobOn(t, vmmctest.Nodes(t, 1), "", 2)
	each(t, parents, func(ctx context.Context, c *mpi.Comm) error {
		if c.UniverseSize() != 7 {
			return fmt.Errorf("the universe has %d ranks: %w", c.UniverseSize(), errWrong)
		}
		inter, err := c.Spawn(ctx, 0, itself(2, "spawned rank", "finalizes", "2"))
		if err != nil {
			return err
		}
		return talkAcross(ctx, inter, 2)
	})
}

// Of four programs two can be started. A command to which two are enough starts two, and one to which only
// three are does not.
func TestSpawnSoft(t *testing.T) {
	t.Setenv(nodeproto.UniverseEnv, "7")
	parents := jobOn(t, vmmctest.Nodes(t, 1), "", 2)
	each(t, parents, func(ctx context.Context, c *mpi.Comm) error {
		cmd := itself(4, "spawned rank", "two at most", "2")
		cmd.Soft = []int{4, 3}
		if _, err := c.Spawn(ctx, 0, cmd); c.Rank() == 0 && !errors.Is(err, mpi.ErrSpawn) || err == nil {
			return fmt.Errorf("two programs where three are wanted: %w", err)
		}
		cmd.Soft = []int{1, 3, 2}
		inter, err := c.Spawn(ctx, 0, cmd)
		if err != nil {
			return err
		}
		if got := inter.RemoteSize(); got != 2 {
			return fmt.Errorf("%d programs: %w", got, errWrong)
		}
		if cmd.N != 4 || len(cmd.Soft) != 3 {
			return fmt.Errorf("the command has changed: %w", errWrong)
		}
		cmd.Soft = []int{5}
		if _, err := c.Spawn(ctx, 0, cmd); c.Rank() == 0 && !errors.Is(err, mpi.ErrArg) || err == nil {
			return fmt.Errorf("more than all: %w", err)
		}
		return talkAcross(ctx, inter, 2)
	})
}

// A child is killed: an error of the intercommunicator, and the parents go on.
func TestSpawnedKilled(t *testing.T) {
	parents := jobOn(t, vmmctest.Nodes(t, 1), "", 2)
	each(t, parents, func(ctx context.Context, c *mpi.Comm) error {
		inter, err := c.Spawn(ctx, 0, itself(2, "spawned rank", "waits", "2"))
		if err != nil {
			return err
		}
		if err := talkAcross(ctx, inter, 2); err != nil {
			return err
		}
		for rank := range 2 {
			if c.Rank() != 0 {
				break
			}
			got, err := told(ctx, inter, rank)
			if err != nil {
				return err
			}
			pid, err := strconv.Atoi(got[len(got)-1])
			if err != nil {
				return err
			}
			_ = syscall.Kill(pid, syscall.SIGKILL) // the second one may have ended by the first one's end
		}
		if _, err := mpi.Recv(ctx, inter, []int{0}, 0, 1); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("a receive from it: %w", err)
		}
		if err := inter.Disconnect(ctx); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("Disconnect: %w", err)
		}
		return c.Barrier(ctx)
	})
}

// A rank that was started alone spawns, and is killed: its children hear of it, and go on.
func TestSpawnerKilled(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	alone(t)
	heard := filepath.Join(t.TempDir(), "heard")
	child := vmmctest.Child(t, node, "spawning rank", "hears", heard)
	for child.Line() != "waits" { // its children print the numbers of their processes there
	}
	child.Kill()
	for end := time.Now().Add(bound); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(heard); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the children have not heard that their parent is gone")
		}
	}
}

// What cannot be started is an error at all ranks, and nothing is left.
func TestSpawnRefused(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	parents := jobOn(t, nodes, "", 2)
	good := itself(1, "spawned rank", "hangs before Init", "2")
	for what, c := range map[string]struct {
		cmds []mpi.Command
		want mpi.Class
	}{
		"no program":    {[]mpi.Command{good, {Path: "/nonexistent/program", N: 1}}, mpi.ErrSpawn},
		"not in PATH":   {[]mpi.Command{{Path: "no-such-program-of-any-kind", N: 2}}, mpi.ErrSpawn},
		"no directory":  {[]mpi.Command{good, {Path: "/bin/true", N: 1, Dir: "/nonexistent"}}, mpi.ErrSpawn},
		"no MPI":        {[]mpi.Command{good, {Path: "true", N: 1}}, mpi.ErrSpawn},
		"ends":          {[]mpi.Command{good, itself(1, "spawned rank", "ends before Init", "2")}, mpi.ErrSpawn},
		"no node":       {[]mpi.Command{{Path: "true", N: 1, Hosts: []string{"n9"}}}, mpi.ErrArg},
		"no path":       {[]mpi.Command{{N: 1}}, mpi.ErrArg},
		"no command":    {nil, mpi.ErrArg},
		"none":          {[]mpi.Command{{Path: "true"}}, mpi.ErrArg},
		"too many":      {[]mpi.Command{{Path: "true", N: mpi.MaxSpawned}, {Path: "true", N: 1}}, mpi.ErrArg},
		"a bad setting": {[]mpi.Command{{Path: "true", N: 1, Env: []string{"=x"}}}, mpi.ErrArg},
	} {
		each(t, parents, func(ctx context.Context, rank *mpi.Comm) error {
			_, err := rank.Spawn(ctx, 0, c.cmds...)
			want := c.want
			if rank.Rank() != 0 {
				want = mpi.ErrOther
			}
			if !errors.Is(err, want) {
				return fmt.Errorf("%s: %w", what, err)
			}
			var codes *mpi.SpawnError
			if found := errors.As(err, &codes); found != (want == mpi.ErrSpawn) {
				return fmt.Errorf("%s: a SpawnError: %v", what, found)
			}
			if codes != nil && codes.Errs[len(codes.Errs)-1] == nil && codes.Errs[0] == nil {
				return fmt.Errorf("%s: the errors are %v: %w", what, codes.Errs, errWrong)
			}
			return rank.Barrier(ctx)
		})
	}
	var ws syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
	// The context ends while a child has not called Init.
	short, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer stop()
	if _, err := parents[0].Self().Spawn(short, 0, good); !errors.Is(err, mpi.ErrCanceled) {
		t.Errorf("a child that does not call Init: %v", err)
	}
}
