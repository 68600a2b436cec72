package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/childproc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Child is the hidden command in which the tool runs itself as one end.
const Child = "bench-end"

// The paths.
const (
	Local = "local" // one node; Remote is two, TCP on loopback
)

// The places of the ends, if they are pinned.
const (
	Same  = "same"
	Apart = "apart"
)

// Config says what is measured, and how much.
type Config struct {
	What   []string `json:"what"` // names of [Measurements]
	Path   string   `json:"path"`
	Sizes  []int    `json:"sizes"`  // nil: each measurement's own
	Rounds int      `json:"rounds"` // that count
	Count  int      `json:"count"`  // exchanges in a round; 0: by size
	Quick  bool     `json:"quick"`
	Curve  bool     `json:"curve"` // of what is drawn, without Sizes: 4 bytes to 4 MiB
	Pin    string   `json:"pin"`   // "", Same or Apart
	// Whose calls are measured beside ours; C's are added where they can be.
	Peers []Peer `json:"peers"`
	C     Peer   `json:"c"` // both ends in C, where they can be measured; [Run] finds them

	Pings   []Peer `json:"pings"`   // whose latency is
	Streams []Peer `json:"streams"` // whose bandwidth is

	Encrypt bool `json:"encrypt"` // the links; raw TCP is in clear

	Near childproc.Site `json:"near"` // of the remote path
	Far  childproc.Site `json:"far"`
}

// Sink is told what is found; Progress may be nil.
type Sink struct {
	Result   func(Result)
	Progress func(what string, done, of int)
	Log      io.Writer // the children's standard error
}

// event is a line that the near end prints.
type event struct {
	Result *Result `json:"result,omitempty"`
	What   string  `json:"what,omitempty"`
	Done   int     `json:"done,omitempty"`
	Of     int     `json:"of,omitempty"`
	Over   bool    `json:"over,omitempty"`
}

// Run starts the nodes and both ends, and passes on what the near one finds. What
// it started has ended when it returns.
func Run(ctx context.Context, c Config, to Sink) (err error) {
	f := childproc.New(ctx, "benchmark", to.Log)
	defer f.End()
	defer func() {
		if cause := context.Cause(f.Context()); err != nil && cause != nil {
			err = cause // and not what that did to the call under way
		}
	}()
	if slices.Contains(c.What, "rpc") && c.Pin == "" {
		dir, err := os.MkdirTemp(env.TempDir(), "vmmc-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if p, err := buildTIRPC(f.Context(), dir); err == nil {
			c.Peers = append([]Peer{p}, c.Peers...)
		} else {
			fmt.Fprintf(to.Log, "rpc: calls of libtirpc are not measured: %v\n", err)
		}
	}
	if slices.Contains(c.What, "c") {
		if err := c.whyNotC(); err != nil {
			fmt.Fprintf(to.Log, "c: the library for C is not measured: %v\n", err)
		}
	}
	at := sites(c)
	n := 1
	if c.Path == Remote {
		n = 2
	}
	sockets, err := f.ClusterAt(at[:n]...)
	if err != nil {
		return fmt.Errorf("start nodes: %w", err)
	}
	var introduced [2]*os.File
	if c.Path == Local {
		i, importer, exporter, err := baseline.NewIntroducer()
		if err != nil {
			return err
		}
		defer i.Close()
		introduced = [2]*os.File{importer, exporter}
	}
	near, err := startEnds(f, c, sockets[0], sockets[n-1], introduced)
	if err != nil {
		return err
	}
	for d := json.NewDecoder(near.Out); ; {
		var e event
		if err := d.Decode(&e); err != nil {
			return errors.Join(fmt.Errorf("what the near end says: %w", err), near.Wait())
		}
		switch {
		case e.Over:
			return nil
		case e.Result != nil:
			if c.Encrypt {
				e.Result.Variant = strings.TrimSpace(e.Result.Variant + " encrypted")
			}
			to.Result(*e.Result)
		case to.Progress != nil:
			to.Progress(e.What, e.Done, e.Of)
		}
	}
}

// sites are those of the ends. On the local path both have one node.
func sites(c Config) []childproc.Site {
	if c.Path == Remote {
		return []childproc.Site{c.Near, c.Far}
	}
	return make([]childproc.Site, 2)
}

// startEnds starts both ends and returns the near one. A socket and raw memory join them, and on
// one node also the introducer of the baseline for imports. It owns the files.
func startEnds(
	f *childproc.Group, c Config, nearSocket, farSocket string, introduced [2]*os.File,
) (near *childproc.Child, err error) {
	var ends [2][]*os.File
	defer func() {
		for _, e := range append(ends[:], introduced[:]) {
			for _, x := range e {
				_ = x.Close() // of none an error, and of one that is there twice
			}
		}
	}()
	conf, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	a, b, err := unix.StreamPair()
	if err != nil {
		return nil, err
	}
	ends = [2][]*os.File{{os.NewFile(uintptr(a), "near")}, {os.NewFile(uintptr(b), "far")}}
	one, other, err := baseline.ShareMemory(c.inbox())
	if err != nil {
		return nil, err
	}
	ends[0], ends[1] = append(ends[0], one...), append(ends[1], other...)
	if c.Path == Local {
		ends[0], ends[1] = append(ends[0], introduced[0]), append(ends[1], introduced[1])
	}
	near, err = startEnd(f, c.Pin, 0, ends[0], "near", nearSocket, string(conf))
	if err != nil {
		return nil, err
	}
	err = unix.InNetwork(sites(c)[1].Network, func() error {
		_, err := startEnd(f, c.Pin, 1, ends[1], "far", farSocket, string(conf))
		return err
	})
	return near, err
}

// startEnd starts one, on a processor of its own if that is wanted.
func startEnd(
	f *childproc.Group, pin string, which int, files []*os.File, args ...string,
) (c *childproc.Child, err error) {
	args = append([]string{Child}, args...)
	if pin == "" {
		return f.Start(files, args...)
	}
	cpus, err := unix.CPUs()
	if err != nil {
		return nil, err
	}
	if pin == Same {
		which = 0
	}
	if which >= len(cpus) {
		return nil, fmt.Errorf("--pin %s: this machine gives one processor", pin)
	}
	err = unix.OnCPU(cpus[which], func() error {
		c, err = f.Start(files, args...)
		return err
	})
	return c, err
}
