package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/childproc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// RestartConfig says of what node the daemon is killed and started again, and how often.
type RestartConfig struct {
	Processes int           // half of them of programs that the daemon has spawned
	Restarts  int           // that are measured
	Away      time.Duration // from the kill to the start of the next daemon
}

// Restart is what one took, from the start of the next daemon on.
type Restart struct {
	UpNS int64 `json:"up_ns"` // until it takes connections
	// Until a process that is new has imported from each of those of before.
	FullNS int64 `json:"full_ns"`

	// What the same imports take another process then, from its beginning on.
	AgainNS int64 `json:"again_ns"`
}

// Restarts is what all took. Traffic goes on all the while between two of the processes.
type Restarts struct {
	Processes int       `json:"processes"`
	Spawned   int       `json:"spawned"`
	AwayNS    int64     `json:"away_ns"`
	Restarts  []Restart `json:"restarts"`
	Messages  uint64    `json:"messages"`
	// The longest time between two looks in which no message came.
	StillNS int64 `json:"still_ns"`
}

// What the command's own process exports: the pids of the others, and where the traffic goes.
const (
	boardID = 1
	flowID  = 2
)

// RunRestart measures. What it started has ended when it returns.
func RunRestart(ctx context.Context, c RestartConfig, log io.Writer) (out Restarts, err error) {
	out = Restarts{Processes: c.Processes, AwayNS: int64(c.Away)}
	f := childproc.New(ctx, "benchmark", log)
	defer f.End()
	ctx = f.Context()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	dir, err := os.MkdirTemp(env.TempDir(), "vmmc-restart-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "s")
	node := func() (*childproc.Child, error) {
		d, err := f.Start(nil, "vmmcd", "--log-level", "error", "--parent-pipe", "0", "--name", "local", "--socket", socket, "--state", filepath.Join(dir, "state"))
		if err == nil {
			err = listens(ctx, socket)
		}
		return d, err
	}
	daemon, err := node()
	if err != nil {
		return out, err
	}
	p, err := vmmc.Open(ctx, vmmc.WithSocket(socket))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, p.Close()) }() // and all others end
	board, err := word(p, boardID, 4*c.Processes)
	if err != nil {
		return out, err
	}
	flow, err := word(p, flowID, 4096)
	if err != nil {
		return out, err
	}
	exe, err := os.Executable()
	if err != nil {
		return out, err
	}
	for i := range c.Processes {
		args := []string{Child, restartMember, socket, strconv.FormatUint(uint64(p.PID()), 10), strconv.Itoa(i)}
		if i%2 == 0 {
			_, err = f.Start(nil, args...)
		} else {
			out.Spawned++
			_, err = p.Spawn(ctx, p.Node(), exe, args...)
		}
		if err != nil {
			return out, err
		}
	}
	at := func(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	if err := p.WaitUntil(ctx, func() bool {
		for i := range c.Processes {
			if at(board, i) == 0 {
				return false
			}
		}
		return at(flow, 0) > 0
	}); err != nil {
		return out, err
	}
	still := watchFlow(ctx, func() uint32 { return at(flow, 0) })
	for range c.Restarts {
		daemon.Kill()
		time.Sleep(c.Away)
		begun := time.Now()
		if daemon, err = node(); err != nil {
			return out, err
		}
		r := Restart{UpNS: int64(time.Since(begun))}
		if r.FullNS, err = importAll(ctx, socket, board, begun); err != nil {
			return out, err
		}
		if r.AgainNS, err = importAll(ctx, socket, board, time.Now()); err != nil {
			return out, err
		}
		out.Restarts = append(out.Restarts, r)
	}
	out.StillNS = int64(still())
	out.Messages = uint64(at(flow, 0))
	return out, nil
}

// listens waits until a daemon takes connections.
func listens(ctx context.Context, socket string) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := nodeproto.Dial(ctx, socket)
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("a node of the benchmark does not come up: %w", err)
		}
	}
}

// word exports memory of the process.
func word(p *vmmc.Process, id uint32, n int) ([]byte, error) {
	m, err := p.Alloc(n)
	if err != nil {
		return nil, err
	}
	_, err = p.Export(id, m.Bytes())
	return m.Bytes(), err
}

// importAll has a process that is new import from all others, one after another, and says how long
// after begun it had. The process's own end, with that of its links, comes after that.
func importAll(
	ctx context.Context, socket string, board []byte, begun time.Time,
) (ns int64, err error) {
	q, err := vmmc.Open(ctx, vmmc.WithSocket(socket))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	for i := 0; i < len(board)/4; i++ {
		pid := binary.LittleEndian.Uint32(board[4*i:])
		im, err := q.Import(ctx, q.Node(), vmmc.PID(pid), boardID)
		if err == nil {
			err = im.Get(ctx, make([]byte, 4), 0)
		}
		if err != nil {
			return 0, fmt.Errorf("process %d of %d after a restart: %w", i+1, len(board)/4, err)
		}
	}
	return int64(time.Since(begun)), nil
}

// watchFlow looks until its answer is asked for: the longest time in which nothing came.
func watchFlow(ctx context.Context, n func() uint32) func() time.Duration {
	ctx, stop := context.WithCancel(ctx)
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for last, at := n(), time.Now(); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if now := n(); now != last {
				last, at = now, time.Now()
			}
			most = max(most, time.Since(at))
		}
		longest <- most
	}()
	return func() time.Duration {
		stop()
		return <-longest
	}
}

// restartMember is the first argument of a process that is only there.
const restartMember = "restart"

// runRestartMember exports a buffer, writes its pid to its place on the board, and stays as long as
// the board; the first one sends numbers meanwhile.
func runRestartMember(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want a socket, a pid and a place, have %q", args)
	}
	pid, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return err
	}
	place, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	p, err := vmmc.Open(ctx, vmmc.WithSocket(args[0]))
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	e, err := p.Export(boardID, m.Bytes())
	if err != nil {
		return err
	}
	board, err := p.Import(ctx, p.Node(), vmmc.PID(pid), boardID)
	if err != nil {
		return err
	}
	if err := board.Send(ctx, binary.LittleEndian.AppendUint32(nil, uint32(p.PID())), 4*place); err != nil {
		return err
	}
	if place == 0 {
		flow, err := p.Import(ctx, p.Node(), vmmc.PID(pid), flowID)
		if err != nil {
			return err
		}
		for i := uint32(1); flow.Send(ctx, binary.LittleEndian.AppendUint32(nil, i), 0) == nil; i++ {
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	}
	w, err := e.Word(4092)
	if err != nil {
		return err
	}
	_, _ = board.WaitWord(ctx, w, 0) // until the board is gone
	return nil
}
