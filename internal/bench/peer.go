package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Peer is another library, or none, measured in turn with ours by a program with both ends:
//
//	COMMAND serve PATH HOST  listens as the library does best on the local or the remote PATH, at an
//	                         address of HOST if it is one of a network, prints a line with the
//	                         address, and serves until its standard input ends
//	COMMAND call ADDRESS     for each line of its standard input, a number, makes so many calls of a
//	                         procedure that does nothing, one after another, and prints how many
//	                         nanoseconds each took, as an array of JSON
//	COMMAND ping ADDRESS     for each line of its standard input, two numbers, sends messages of so
//	                         many bytes there and back, so many, one after another, and prints how
//	                         many nanoseconds each took, there and back, as an array of JSON
//	COMMAND send ADDRESS     for each line of its standard input, two numbers, moves messages of so
//	                         many bytes, so many of them that count, and prints a number, how many
//	                         megabytes a second those were
type Peer struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
}

// ParsePeer reads NAME=COMMAND. Spaces part the words of the command; no shell sees it.
func ParsePeer(s string) (Peer, error) {
	name, command, _ := strings.Cut(s, "=")
	p := Peer{name, strings.Fields(command)}
	if name == "" || len(p.Command) == 0 {
		return p, fmt.Errorf("%q is not NAME=COMMAND", s)
	}
	return p, nil
}

// peer is one that runs.
type peer struct {
	Peer
	server, client *half
}

// patience is how long a peer may take to end after its input has.
const patience = 2 * time.Second

// half is one of its ends.
type half struct {
	cmd *exec.Cmd
	cut context.CancelFunc
	in  io.WriteCloser
	out *bufio.Reader
}

func startHalf(ctx context.Context, env, command []string, args ...string) (*half, error) {
	ctx, cut := context.WithCancel(ctx)
	c := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], args...)...)
	c.Stderr, c.WaitDelay, c.Env = os.Stderr, time.Second, env
	in, err := c.StdinPipe()
	if err != nil {
		cut()
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		cut()
		return nil, err
	}
	if err := c.Start(); err != nil {
		cut()
		return nil, err
	}
	return &half{c, cut, in, bufio.NewReader(out)}, nil
}

// end closes the peer's input, which also ends with this process. It kills a peer that does not
// end then.
func (h *half) end() error {
	_ = h.in.Close()
	defer time.AfterFunc(patience, h.cut).Stop()
	defer h.cut()
	_, _ = io.Copy(io.Discard, h.out)
	return h.cmd.Wait()
}

// startAll runs all peers, whose clients call, ping or send.
func (e *end) startAll(ctx context.Context, all []Peer, does string) (running []*peer, err error) {
	for _, p := range all {
		r, err := e.start(ctx, p, does)
		if err != nil {
			return nil, errors.Join(err, endAll(running))
		}
		running = append(running, r)
	}
	return running, nil
}

func endAll(running []*peer) (err error) {
	for _, p := range running {
		if eerr := p.end(); eerr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.Name, eerr))
		}
	}
	return err
}

// start runs a peer's server, in the far end's network, and its client.
func (e *end) start(ctx context.Context, p Peer, does string) (*peer, error) {
	return e.startOn(ctx, p, does, "", "")
}

// startOn is start of a peer that joins nodes by these sockets.
func (e *end) startOn(ctx context.Context, p Peer, does, near, far string) (r *peer, err error) {
	r = &peer{Peer: p}
	joins := func(socket string) []string {
		if socket == "" {
			return nil
		}
		return append(env.All(), "VMMC_SOCKET="+socket)
	}
	err = unix.InNetwork(e.Far.Network, func() (err error) {
		r.server, err = startHalf(ctx, joins(far), p.Command, "serve", e.Path, e.farHost())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	at, err := r.server.out.ReadString('\n')
	if err == nil {
		r.client, err = startHalf(ctx, joins(near), p.Command, does, strings.TrimSpace(at))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.Name, err), r.server.end())
	}
	return r, nil
}

// told is what the client answers to a line of words.
func (r *peer) told(answer any, words ...any) error {
	if _, err := fmt.Fprintln(r.client.in, words...); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	line, err := r.client.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, answer)
	}
	if err != nil {
		return fmt.Errorf("what %s says: %w", r.Name, err)
	}
	return nil
}

// sends has n messages of size bytes moved, and returns the megabytes a second.
func (r *peer) sends(size, n int) (rate float64, err error) {
	if err := r.told(&rate, size, n); err != nil {
		return 0, err
	}
	if !(rate > 0) {
		return 0, fmt.Errorf("%s has moved %v megabytes a second", r.Name, rate)
	}
	return rate, nil
}

// calls has n calls made, and adds the times of all but the first few.
func (r *peer) calls(n, skip int, h *hist) error {
	return r.times("calls", n+skip, h.skipping(skip), n+skip)
}

// pings has n messages of size bytes sent there and back, and adds the times of one way of all but
// the first few.
func (r *peer) pings(size, n, skip int, h *hist) error {
	each := h.skipping(skip)
	return r.times("round trips", n+skip, func(d time.Duration) { each(d / 2) }, size, n+skip)
}

// times passes on the times of n of what the words ask for.
func (r *peer) times(of string, n int, each func(time.Duration), words ...any) error {
	var took []int64
	if err := r.told(&took, words...); err != nil {
		return err
	}
	if len(took) != n {
		return fmt.Errorf("%s has made %d %s of %d", r.Name, len(took), of, n)
	}
	for _, ns := range took {
		each(time.Duration(ns))
	}
	return nil
}

func (r *peer) end() error {
	return errors.Join(r.client.end(), r.server.end())
}
