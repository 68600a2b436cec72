package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/doctor"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/mpilib"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/root"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

func newDoctor() *cobra.Command {
	var n doctor.Node
	var rootDir, program string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what a node needs of this machine, and say how to mend it",
		Long: `Check limits, shared memory, the tracking of pages, the node's socket and state
directory, certificates and their keys, the addresses in the hosts file, whether the
other nodes answer and what time they have, cgroups, the mounting of shares, and
whether an installed C library fits the daemon.
Give it the flags of this machine's vmmcd, and run it as its user.

With --mpi it checks a program instead: which MPI library it was built for, which one
serves it under "vmmc mpirun", and which libraries it lacks. The program does not run.

Each line is ok, a warning (it works, but less well, or not for long) or failed.

Exit status: 0 nothing has failed, 1 something has, 2 it was called wrongly.`,
		Example: `  vmmc doctor
  vmmc doctor --name n1 --root /var/lib/vmmc
  vmmc doctor --name n1 --hosts /etc/vmmc/vmmc-hosts.txt --certs /etc/vmmc/n1
  vmmc doctor --mpi ./stencil
  vmmc doctor --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if program != "" {
				found, err := examineMPI(c.Context(), program)
				if err != nil {
					return serve.Flag("mpi", program, err)
				}
				return printFindings(c.OutOrStdout(), found, asJSON)
			}
			if n.Name == "" {
				host, err := os.Hostname()
				if err != nil {
					return fmt.Errorf("name the node after the host: %w; give one with --name", err)
				}
				n.Name = host
			}
			if rootDir != "" {
				r := root.Dir(rootDir)
				n.Below(r, false)
				if !c.Flags().Changed("socket") && nodeproto.FromEnv() == "" {
					n.Socket = r.Socket()
				}
			}
			if n.State == "" {
				n.State = serve.DefaultState(n.Name)
			}
			ctx, stop := context.WithTimeout(c.Context(), 3*timeout.Control)
			defer stop()
			return printFindings(c.OutOrStdout(), append(doctor.Examine(ctx, n), deadNodes(n.Socket)...), asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&rootDir, "root", env.Get(root.Env), "`directory` that the node keeps its things in, as for vmmcd (default: $VMMC_ROOT)")
	f.StringVar(&n.Name, "name", "", "the node's `name` (default: the host's name)")
	f.StringVar(&n.Hosts, "hosts", "", "`file` that lists the cluster's nodes (default: the one in the root, if it is there; else the node is alone)")
	f.StringVar(&n.Certs, "certs", "", "`directory` with the node's certificate (default: the one in the root, if it is there)")
	f.StringVar(&n.Socket, "socket", nodeproto.DefaultPath(), "`path` of the node's socket")
	f.StringVar(&n.State, "state", "", "`directory` for what outlives the daemon (default: as for vmmcd)")
	f.StringVar(&program, "mpi", "", "`program` to check instead of this machine")
	jsonFlag(c, &asJSON)
	return c
}

// examineMPI says which MPI library serves a program.
func examineMPI(ctx context.Context, program string) ([]doctor.Finding, error) {
	own, err := ownMPILibraries()
	if err != nil {
		return nil, err
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	p, err := mpilib.Examine(ctx, path, own...)
	if err != nil {
		return nil, err
	}
	return doctor.MPI(p, own), nil
}

// deadNodes finds nodes that do not run of the cluster on this machine that has the socket.
func deadNodes(socket string) []doctor.Finding {
	s := clusterWith(socket)
	if s == nil {
		return nil
	}
	f := doctor.Finding{Check: "cluster", Status: doctor.OK, Found: "all nodes in " + s.dir + " run"}
	if dead := s.dead(); len(dead) > 0 {
		f.Status, f.Found, f.Mend = doctor.Warning, "of that in "+s.dir+" these do not run: "+strings.Join(dead, ", "), s.command("start")
	}
	return []doctor.Finding{f}
}

func printFindings(w io.Writer, found []doctor.Finding, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, struct {
			Checks []doctor.Finding `json:"checks"`
		}{found}); err != nil {
			return err
		}
	}
	failed := 0
	for _, f := range found {
		if f.Status == doctor.Failed {
			failed++
		}
		if asJSON {
			continue
		}
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Status, f.Check, f.Found)
		if f.Mend != "" {
			fmt.Fprintf(w, "         to mend it: %s\n", f.Mend)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(found))
	}
	return nil
}
