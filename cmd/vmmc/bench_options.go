package main

import (
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vmmc-go/vmmc/internal/bench"
	"github.com/vmmc-go/vmmc/internal/childproc"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// benchOptions are the flags of all measurements.
type benchOptions struct {
	path, size, sizes, pin string
	plot, peers            string
	rounds, count          int
	quick, asJSON, encrypt bool
	farNetns               string
	others                 []string
	nearAddr, farAddr      string
}

func (o *benchOptions) register(c *cobra.Command, sized, drawn bool) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.path, "path", "", "measure one `path`: local or remote (default: both)")
	if sized {
		f.StringVar(&o.size, "size", "", "measure messages of `N` bytes, for instance 64 or 64K")
		f.StringVar(&o.sizes, "sizes", "", "measure sizes `FROM:TO`, each twice the one before")
		c.MarkFlagsMutuallyExclusive("size", "sizes")
	}
	f.StringVar(&o.pin, "pin", "", "have both ends on one processor (same) or one on each (`apart`)")
	f.IntVar(&o.rounds, "rounds", 7, "how many `rounds` count, after one that does not")
	f.IntVar(&o.count, "count", 0, "how many `exchanges` a round has (default: by size)")
	f.BoolVar(&o.quick, "quick", false, "fewer rounds and exchanges: figures that are less certain")
	if drawn {
		f.StringVar(&o.plot, "plot", "",
			"draw figures into a `directory`, as SVG and PNG, beside those there; sizes are 4:4M then")
		f.StringVar(&o.peers, "peers", "", "draw other libraries' lines too, from a `file` of bench/results")
		_ = c.MarkFlagDirname("plot")
		_ = c.MarkFlagFilename("peers", "json")
	}
	f.BoolVar(&o.encrypt, "encrypt", false, "measure the remote path once more, over links that are encrypted")
	f.StringVar(&o.farNetns, "far-netns", "", "have the far end and its node in another network namespace, by its `name`; needs both addresses")
	f.StringVar(&o.nearAddr, "near-addr", "", "the `address` of the near end's node on the remote path (default: loopback)")
	f.StringVar(&o.farAddr, "far-addr", "", "the `address` of the far end's node on the remote path (default: loopback)")
	jsonFlag(c, &o.asJSON)
	fixed := func(name string, values ...string) {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	fixed("path", bench.Local, bench.Remote)
	fixed("pin", bench.Same, bench.Apart)
}

// registerPeers adds the flag of what is measured beside ours.
func (o *benchOptions) registerPeers(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.others, "peer", nil, "measure what another library does, too: `NAME=COMMAND`; spaces part the command's words")
}

// configs are what to run, a path each.
func (o *benchOptions) configs(what []string) ([]bench.Config, error) {
	paths, err := o.paths()
	if err != nil {
		return nil, err
	}
	c := bench.Config{What: what, Rounds: o.rounds, Count: o.count, Quick: o.quick, Pin: o.pin, Curve: o.plot != ""}
	var peers []bench.Peer
	for _, s := range o.others {
		p, err := bench.ParsePeer(s)
		if err != nil {
			return nil, serve.Usage("--peer: %w", err)
		}
		peers = append(peers, p)
	}
	switch what[0] { // the flag is of commands of one measurement
	case "rpc":
		c.Peers = peers
	case "latency":
		c.Pings = peers
	case "bandwidth":
		c.Streams = peers
	}
	if len(peers) > 0 && o.pin != "" {
		return nil, serve.Usage("--peer and --pin: peers are not pinned")
	}
	if len(peers) > 0 && o.plot != "" {
		return nil, serve.Usage("--peer and --plot: what others did is drawn from a file, by --peers")
	}
	if o.farNetns != "" && (o.nearAddr == "" || o.farAddr == "" || o.path != bench.Remote) {
		return nil, serve.Usage("--far-netns %s needs --path remote, --near-addr and --far-addr", o.farNetns)
	}
	for _, a := range []struct{ flag, value string }{{"near-addr", o.nearAddr}, {"far-addr", o.farAddr}} {
		if a.value != "" && net.ParseIP(a.value) == nil {
			return nil, serve.Usage("--%s %s: it is no IP address", a.flag, a.value)
		}
	}
	c.Near, c.Far = childproc.Site{Host: o.nearAddr}, childproc.Site{Host: o.farAddr, Network: o.farNetns}
	if o.pin != "" && o.pin != bench.Same && o.pin != bench.Apart {
		return nil, serve.Usage("--pin %s: there are same and apart", o.pin)
	}
	if o.rounds < 1 || o.rounds > 1000 {
		return nil, serve.Usage("--rounds %d: want 1 to 1000", o.rounds)
	}
	if o.count < 0 || o.count > 1<<24 {
		return nil, serve.Usage("--count %d: want 1 to %d", o.count, 1<<24)
	}
	if o.quick {
		c.Rounds = min(c.Rounds, 3)
	}
	if o.peers != "" && o.plot == "" {
		return nil, serve.Usage("--peers %s is for --plot: what they did is drawn", o.peers)
	}
	switch {
	case o.size != "":
		n, err := bench.ParseSize(o.size)
		if err != nil {
			return nil, serve.Usage("--size %s: %w", o.size, err)
		}
		c.Sizes = []int{n}
	case o.sizes != "":
		if c.Sizes, err = bench.ParseSizes(o.sizes); err != nil {
			return nil, serve.Usage("--sizes %s: %w", o.sizes, err)
		}
	}
	var out []bench.Config
	for _, p := range paths {
		c.Path = p
		out = append(out, c)
		if c.Encrypt = o.encrypt && p == bench.Remote; c.Encrypt {
			out = append(out, c)
		}
		c.Encrypt = false
	}
	return out, nil
}

// progress reports whether to show progress: a user watches on a terminal.
func (o *benchOptions) progress() bool {
	return !o.asJSON && term.IsTerminal(int(os.Stderr.Fd()))
}
