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

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Peer is another library's calls, measured in turn with ours by a program with both ends:
//
//	COMMAND serve PATH HOST  listens as the library does best on the local or the remote PATH, at an
//	                         address of HOST if it is one of a network, prints a line with the
//	                         address, and serves until its standard input ends
//	COMMAND call ADDRESS     for each line of its standard input, a number, makes so many calls of a
//	                         procedure that does nothing, one after another, and prints how many
//	                         nanoseconds each took, as an array of JSON
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

// half is one of its ends.
type half struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startHalf(ctx context.Context, command []string, args ...string) (*half, error) {
	c := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], args...)...)
	c.Stderr, c.WaitDelay = os.Stderr, time.Second
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &half{c, in, bufio.NewReader(out)}, c.Start()
}

// end ends it by its input, which also ends with this process.
func (h *half) end() error {
	_ = h.in.Close()
	_, _ = io.Copy(io.Discard, h.out)
	return h.cmd.Wait()
}

// start runs a peer's server, in the far end's network, and its client.
func (e *end) start(ctx context.Context, p Peer) (r *peer, err error) {
	r = &peer{Peer: p}
	err = unix.InNetwork(e.Far.Network, func() (err error) {
		r.server, err = startHalf(ctx, p.Command, "serve", e.Path, e.farHost())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	at, err := r.server.out.ReadString('\n')
	if err == nil {
		r.client, err = startHalf(ctx, p.Command, "call", strings.TrimSpace(at))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.Name, err), r.server.end())
	}
	return r, nil
}

// calls has n calls made, and adds the times of all but the first few.
func (r *peer) calls(n, skip int, h *hist) error {
	if _, err := fmt.Fprintln(r.client.in, n+skip); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	line, err := r.client.out.ReadBytes('\n')
	var took []int64
	if err == nil {
		err = json.Unmarshal(line, &took)
	}
	if err != nil {
		return fmt.Errorf("what %s says: %w", r.Name, err)
	}
	if len(took) != n+skip {
		return fmt.Errorf("%s has made %d calls of %d", r.Name, len(took), n+skip)
	}
	for _, ns := range took[skip:] {
		h.add(time.Duration(ns))
	}
	return nil
}

func (r *peer) end() error {
	return errors.Join(r.client.end(), r.server.end())
}
