// Package demo is `vmmc demo`: two nodes and three processes of its own, a file
// moved through remote memory on both paths and checked, latency and bandwidth
// beside the machine's own limits, and the death of a peer.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/childproc"
)

// Result is what the demo found, in the form that --json prints.
type Result struct {
	OK                   bool    `json:"ok"`
	Paths                []Path  `json:"paths"`
	PeerGoneMS           float64 `json:"peer_gone_ms"`
	PeerGoneDaemonDeadMS float64 `json:"peer_gone_daemon_dead_ms"`
	Error                string  `json:"error,omitempty"`
}

// Path is one of the two ways: "local" to a process of the same node, "remote"
// to one of the other.
type Path struct {
	Path                string  `json:"path"`
	Bytes               int64   `json:"bytes"`
	SHA256OK            bool    `json:"sha256_ok"`
	LatencyP50NS        float64 `json:"latency_p50_ns"`
	LimitLatencyP50NS   float64 `json:"limit_latency_p50_ns"`
	BandwidthMBps       float64 `json:"bandwidth_MBps"`
	LimitBandwidthMBps  float64 `json:"limit_bandwidth_MBps"`
	TransferMBps        float64 `json:"transfer_MBps"`
	LatencyMessageBytes int     `json:"latency_message_bytes"`

	// How often the limits were measured: more than what was compared with them if that was faster.
	// Of those the best is given then, and the median else.
	LimitRounds int `json:"limit_rounds"`
}

// Config is what to move, and where to report.
type Config struct {
	Open     func() (io.ReadCloser, error) // the file; read once a path
	Size     int64                         // of it, for the progress; -1 if not known
	Progress func(path string, done int64) // may be nil
	Log      io.Writer                     // the children's standard error
}

// Run runs the demo. What it started has ended when it returns.
func Run(ctx context.Context, c Config) (Result, error) {
	r, err := run(ctx, c)
	r.OK = err == nil
	for _, p := range r.Paths {
		r.OK = r.OK && p.SHA256OK
	}
	if err == nil && !r.OK {
		err = errors.New("what arrived is not what was sent: the SHA-256 differs")
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r, err
}

func run(ctx context.Context, c Config) (r Result, err error) {
	f := childproc.New(ctx, "demo", c.Log)
	defer f.End()
	ctx = f.Context()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // and not what that did to the call under way
		}
	}()
	r.Paths = []Path{} // [] in JSON, however soon it fails
	sockets, err := f.Cluster(2)
	if err != nil {
		return r, err
	}
	p, err := vmmc.Open(ctx, vmmc.WithSocket(sockets[0]))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	master, err := newSender(p)
	if err != nil {
		return r, err
	}
	for i, name := range []string{"local", "remote"} {
		path, err := master.measure(ctx, f, c, name, fmt.Sprintf("n%d", i+1), sockets[i])
		if err != nil {
			return r, fmt.Errorf("%s path: %w", name, err)
		}
		r.Paths = append(r.Paths, path)
	}
	if r.PeerGoneMS, err = master.death(ctx, f, sockets[0], nil); err != nil {
		return r, err
	}
	r.PeerGoneDaemonDeadMS, err = master.death(ctx, f, sockets[0], f.Nodes()[0])
	return r, err
}

// death kills a process that this one imports from, and measures how long
// calls go on to succeed. With a daemon, that is killed first.
func (s *sender) death(
	ctx context.Context, f *childproc.Group, socket string, daemon *childproc.Child,
) (ms float64, err error) {
	victim, pid, err := startPeer(f, "hold", socket)
	if err != nil {
		return 0, err
	}
	im, err := s.p.Import(ctx, s.p.Node(), pid, 1)
	if err != nil {
		return 0, err
	}
	if daemon != nil {
		daemon.Kill()
	}
	b := make([]byte, 64)
	if err := im.Send(ctx, b, 0); err != nil {
		return 0, fmt.Errorf("send to a peer that lives: %w", err)
	}
	start := time.Now()
	victim.KillGroup()
	for ctx.Err() == nil {
		err := im.Send(ctx, b, 0)
		d := time.Since(start)
		if errors.Is(err, vmmc.ErrPeerGone) {
			return float64(d) / 1e6, nil
		}
		if err != nil {
			return 0, fmt.Errorf("send to a killed peer: %w", err)
		}
		if d > 10*time.Second {
			return 0, errors.New("10 s after a peer was killed, sends to it still succeed")
		}
	}
	return 0, context.Cause(ctx)
}
