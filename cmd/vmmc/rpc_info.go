package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/vrpc/portmap"
	"github.com/vmmc-go/vmmc/xdr"
)

// rpcInfo is what "vmmc rpc info" asks.
type rpcInfo struct {
	host             string
	program, version uint32
	network, at      string
	port             uint16
	timeout          time.Duration
}

func newRPCInfo() *cobra.Command {
	var q rpcInfo
	var program string
	var asJSON bool
	c := &cobra.Command{
		Use:   "info [HOST]",
		Short: "List a machine's RPC programs, or see whether one answers",
		Long: `Ask the rpcbind (or older portmapper) of a machine, this one unless HOST says
otherwise, which programs are registered with it, as rpcinfo does.

With --program, call procedure 0 of that program, which does nothing: of the version
that --version says, else of all that the server has. rpcbind says where it is,
unless --at does. The program is a number, or a name of /etc/rpc.

Exit status: 0 all is well, 1 rpcbind or a version does not answer, 2 it was called
wrongly.`,
		Example: `  vmmc rpc info
  vmmc rpc info --json fileserver
  vmmc rpc info --program nfs --version 3 fileserver
  vmmc rpc info --program 100003 --network udp --at 10.0.0.7:2049`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.host = args[0]
			}
			if err := q.check(c, program); err != nil {
				return err
			}
			ctx, stop := context.WithTimeout(c.Context(), q.timeout)
			defer stop()
			if program == "" {
				return q.list(ctx, c.OutOrStdout(), asJSON)
			}
			return q.ping(ctx, c.OutOrStdout(), asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&program, "program", "", "call this program's procedure 0")
	f.Uint32Var(&q.version, "version", 0, "of this version only")
	f.StringVar(&q.network, "network", "tcp", "to call it on: tcp, udp, tcp6, udp6")
	f.StringVar(&q.at, "at", "", "its address, `HOST:PORT`, instead of asking rpcbind")
	f.Uint16Var(&q.port, "rpcbind-port", portmap.Port, "where rpcbind is")
	f.DurationVar(&q.timeout, "timeout", 10*time.Second, "for all of it")
	jsonFlag(c, &asJSON)
	_ = c.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{"tcp", "udp", "tcp6", "udp6"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// check looks at what was asked for, and finds the program's number.
func (q *rpcInfo) check(c *cobra.Command, program string) (err error) {
	switch q.network {
	case "tcp", "udp", "tcp6", "udp6":
	default:
		return serve.Usage("--network %s: it is tcp, udp, tcp6 or udp6", q.network)
	}
	if q.timeout <= 0 {
		return serve.Usage("--timeout %v: wanted more than 0", q.timeout)
	}
	if program == "" {
		for _, f := range []string{"version", "network", "at"} {
			if c.Flags().Changed(f) {
				return serve.Usage("--%s goes with --program", f)
			}
		}
		return nil
	}
	if q.at != "" && q.host != "" {
		return serve.Usage("--at says where the program is, so there is no HOST to ask")
	}
	if q.program, err = rpcProgram(program); err != nil {
		return serve.Usage("--program: %w", err)
	}
	if q.at != "" {
		if _, _, err := net.SplitHostPort(q.at); err != nil {
			return serve.Usage("--at %s: wanted HOST:PORT: %w", q.at, err)
		}
	}
	return nil
}

// rpcbind connects to it.
func (q *rpcInfo) rpcbind(ctx context.Context) (*portmap.Client, error) {
	if q.host == "" && q.port == portmap.Port {
		return portmap.Local(ctx)
	}
	host := q.host
	if host == "" {
		host = "127.0.0.1"
	}
	return portmap.Dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(q.port))))
}

func (q *rpcInfo) list(ctx context.Context, w io.Writer, asJSON bool) error {
	c, err := q.rpcbind(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := c.Dump(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, append([]portmap.Mapping{}, all...))
	}
	names := rpcNames()
	rows := [][]string{{"PROGRAM", "VERSION", "NETWORK", "ADDRESS", "SERVICE", "OWNER"}}
	for _, m := range all {
		rows = append(rows, []string{
			strconv.FormatUint(uint64(m.Program), 10), strconv.FormatUint(uint64(m.Version), 10),
			m.Network, dialled(&m), names[m.Program], m.Owner,
		})
	}
	return printTable(w, rows)
}

// dialled is an address as people write it.
func dialled(m *portmap.Mapping) string {
	if _, a, err := m.Endpoint(); err == nil {
		return a
	}
	return m.Address
}

// rpcAnswer is how a version of a program answers.
type rpcAnswer struct {
	Program uint32 `json:"program"`
	Version uint32 `json:"version"`
	Address string `json:"address"`
	RTT     int64  `json:"rtt_ns,omitempty"`
	Error   string `json:"error,omitempty"`
}

func (q *rpcInfo) ping(ctx context.Context, w io.Writer, asJSON bool) error {
	network, address, err := q.where(ctx)
	if err != nil {
		return err
	}
	c, err := vrpc.Dial(ctx, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := q.versions(ctx, c, address)
	if asJSON {
		return errors.Join(printJSON(w, all), err)
	}
	for _, a := range all {
		if a.Error == "" {
			fmt.Fprintf(w, "program %d version %d at %s is ready: %v\n",
				a.Program, a.Version, a.Address, time.Duration(a.RTT))
		}
	}
	return err
}

// where finds the server.
func (q *rpcInfo) where(ctx context.Context) (network, address string, err error) {
	if q.at != "" {
		return q.network, q.at, nil
	}
	b, err := q.rpcbind(ctx)
	if err != nil {
		return "", "", err
	}
	defer b.Close()
	m, err := b.Find(ctx, q.program, max(q.version, 1), q.network)
	if err != nil {
		return "", "", err
	}
	return m.Endpoint()
}

// mostVersions bounds what a server may claim to have.
const mostVersions = 64

// versions calls the version that was asked for, or each that the server has. A server names its
// versions in the reply to a call of an impossible version.
func (q *rpcInfo) versions(
	ctx context.Context, c *vrpc.Client, address string,
) (all []rpcAnswer, err error) {
	low, high := q.version, q.version
	if q.version == 0 {
		err := null(ctx, c, q.program, 1<<32-1)
		var mis *vrpc.MismatchError
		if !errors.As(err, &mis) || !errors.Is(err, vrpc.ErrProgMismatch) {
			return nil, err
		}
		low, high = mis.Low, mis.High
		if high < low || high-low >= mostVersions {
			return nil, fmt.Errorf("the server has versions %d to %d: choose one with --version", low, high)
		}
	}
	var errs []error
	for v := low; ; v++ {
		begin := time.Now()
		a := rpcAnswer{Program: q.program, Version: v, Address: address}
		if err := null(ctx, c, q.program, v); err != nil {
			a.Error = err.Error()
			errs = append(errs, err)
		} else {
			a.RTT = time.Since(begin).Nanoseconds()
		}
		if all = append(all, a); v == high {
			return all, errors.Join(errs...)
		}
	}
}

func null(ctx context.Context, c *vrpc.Client, program, version uint32) error {
	return c.Call(ctx, program, version, 0, xdr.Void{}, xdr.Void{})
}
