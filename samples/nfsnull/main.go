// Nfsnull asks an NFS server whether it is there, and what it exports: a client of programs that
// others wrote, made of their .x files by vrpcgen.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/samples/nfsnull/mount3"
	"github.com/vmmc-go/vmmc/samples/nfsnull/nfs"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/vrpc/portmap"
)

func main() { os.Exit(execute()) }

func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := newCommand()
	if err := c.ExecuteContext(ctx); err != nil {
		var wrong usageError
		if errors.As(err, &wrong) {
			return 2
		}
		return 1
	}
	return 0
}

// usageError is a wrong command line.
type usageError struct{ error }

// question is what the command line asks.
type question struct {
	host, network string
	port          uint16
	asJSON        bool
}

func newCommand() *cobra.Command {
	var q question
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "nfsnull HOST",
		Short: "Ask an NFS server whether it is there, and what it exports",
		Long: `Find an NFS server by its machine's rpcbind, call the procedure of versions 3 and 4
that does nothing, and ask its mount program what is exported, and to whom. If only mount
does not answer, what NFS said is printed, and the status is 1.`,
		Example: `  nfsnull fileserver
  nfsnull --network udp --json fileserver`,
		SilenceUsage: true,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(c, args); err != nil {
				return usageError{err}
			}
			if q.network != "tcp" && q.network != "udp" {
				return usageError{fmt.Errorf("--network %s: it is tcp or udp", q.network)}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := context.WithTimeout(c.Context(), timeout)
			defer stop()
			q.host = args[0]
			return q.ask(ctx, c.OutOrStdout())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.Flags()
	f.StringVar(&q.network, "network", "tcp", "by tcp or udp")
	f.Uint16Var(&q.port, "rpcbind-port", portmap.Port, "where rpcbind is")
	f.DurationVar(&timeout, "timeout", 10*time.Second, "for all of it")
	f.BoolVar(&q.asJSON, "json", false, "print an object for programs")
	return c
}

// found is what the server has.
type found struct {
	Versions []version `json:"versions"`
	Exports  []export  `json:"exports"` // null: mount did not say
}

type version struct {
	Version uint32 `json:"version"`
	Address string `json:"address"`
	RTT     int64  `json:"rtt_ns"`
}

type export struct {
	Directory string   `json:"directory"`
	Groups    []string `json:"groups"` // none: all machines
}

func (q *question) ask(ctx context.Context, w io.Writer) error {
	b, err := portmap.Dial(ctx, "tcp", net.JoinHostPort(q.host, strconv.Itoa(int(q.port))))
	if err != nil {
		return err
	}
	defer b.Close()
	var f found
	if f.Versions, err = q.null(ctx, b); err != nil {
		return fmt.Errorf("NFS: %w", err)
	}
	var wrong error // NFS has answered all the same
	if f.Exports, err = q.exports(ctx, b); err != nil {
		wrong = fmt.Errorf("mount: %w", err)
	}
	if q.asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return errors.Join(e.Encode(f), wrong)
	}
	for _, v := range f.Versions {
		fmt.Fprintf(w, "NFS version %d at %s is ready: %v\n", v.Version, v.Address, time.Duration(v.RTT))
	}
	for _, x := range f.Exports {
		to := "everybody"
		if len(x.Groups) > 0 {
			to = strings.Join(x.Groups, " ")
		}
		fmt.Fprintf(w, "%s  to %s\n", shown(x.Directory), shown(to))
	}
	return wrong
}

// shown is a name that the server chose, so that it does nothing to a terminal.
func shown(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// dial connects to a program where rpcbind says that it is.
func (q *question) dial(
	ctx context.Context, b *portmap.Client, prog, vers uint32,
) (c *vrpc.Client, address string, err error) {
	m, err := b.Find(ctx, prog, vers, q.network)
	if err != nil {
		return nil, "", err
	}
	network, address, err := m.Endpoint()
	if err != nil {
		return nil, "", err
	}
	c, err = vrpc.Dial(ctx, network, address)
	return c, address, err
}

// null calls the null procedure of each version that there may be. One is enough.
func (q *question) null(ctx context.Context, b *portmap.Client) (all []version, err error) {
	c, address, err := q.dial(ctx, b, nfs.NFS_PROGRAM, nfs.NFS_V3)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var errs []error
	for _, v := range []struct {
		number uint32
		null   func(context.Context) error
	}{
		{nfs.NFS_V3, nfs.NewNfsV3Client(c).Null},
		{nfs.NFS_V4, nfs.NewNfsV4Client(c).Null},
	} {
		begin := time.Now()
		if err := v.null(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, version{v.number, address, time.Since(begin).Nanoseconds()})
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// exports lists what the server exports.
func (q *question) exports(ctx context.Context, b *portmap.Client) ([]export, error) {
	c, _, err := q.dial(ctx, b, mount3.MOUNT_PROGRAM, mount3.MOUNT_V3)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	l, err := mount3.NewMountV3Client(c).Export(ctx)
	if err != nil {
		return nil, err
	}
	all := []export{}
	for ; l != nil; l = l.ExNext {
		x := export{string(l.ExDir), []string{}}
		for g := l.ExGroups; g != nil; g = g.GrNext {
			x.Groups = append(x.Groups, string(g.GrName))
		}
		all = append(all, x)
	}
	return all, nil
}
