// Package serve is the command that runs a node, so that vmmcd and the tool
// that starts nodes in the background run the same one.
package serve

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/root"
)

// options are the command's flags.
type options struct {
	root.Places
	rootDir    string
	name       string
	listen     string
	metrics    string
	encrypt    bool
	spawnRoot  bool
	admins     []string
	logFormat  string
	logLevel   slog.Level
	parentPipe int
	drives     string
	supervisor []string

	socketGiven bool
	lock        *os.File // of the root directory, until this program ends
}

// Command is vmmcd under the name use.
func Command(use string) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   use,
		Short: "Run a vmmc node",
		Long: `Run a vmmc node: the daemon that lets the processes of this machine find each
other's memory and, with a hosts file and certificates, that of processes on
other machines. No data passes through it.

It runs until SIGTERM or SIGINT and then ends with status 0. Imports that
processes have made go on without it; programs that they had it spawn end with it.
Those of sessions ("vmmc session") go on, and the next daemon with the same state
directory finds them again.

A hosts file that changes is taken up within seconds, or at once on SIGHUP.
Processes that run keep the list of nodes that they began with. A list that cannot
be taken is refused as a whole, and the log says why. So it is with the files in
--certs: a certificate that was renewed is used from the next connection on, and
those that are there go on.

Exit status: 0 it was stopped, 1 it failed, 2 it was called wrongly.`,
		Example: fmt.Sprintf(`  # a node alone, for the programs of this machine
  %[1]s

  # node n1 of the cluster in the hosts file
  %[1]s --name n1 --hosts /etc/vmmc/vmmc-hosts.txt --certs /etc/vmmc/n1

  # the same, with all that it has in one directory, and logs
  %[1]s --name n1 --root /var/lib/vmmc`, use),
		Args:    cobra.NoArgs,
		Version: vmmc.Release,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.socketGiven = cmd.Flags().Changed("socket")
			// This very program, whatever becomes of its file.
			o.supervisor = append([]string{"/proc/self/exe"}, append(strings.Fields(cmd.CommandPath()), superviseName)...)
			return o.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.rootDir, "root", env.Get(root.Env), "`directory` that the node keeps its things in: vmmc-hosts.txt, certs, logs, state and run (default: $VMMC_ROOT; none: each has a place of its own, and there are no logs)")
	f.StringVar(&o.name, "name", "", "the node's `name`, as in the hosts file (default: that of the certificate, else the host's name)")
	f.StringVar(&o.Hosts, "hosts", "", "`file` that lists the cluster's nodes, vmmc-hosts.txt (default: vmmc-hosts.txt in the root, if it is there; else this node is alone)")
	f.StringVar(&o.Certs, "certs", "", "`directory` with cert.pem, key.pem and ca.pem, from \"vmmc cert node\"; needed with other nodes or --listen (default: certs in the root, if it is there)")
	f.StringVar(&o.Socket, "socket", nodeproto.ListenPath(), "`path` of the socket for this machine's processes (with --root: run/node.sock in it, unless VMMC_SOCKET is set)")
	f.StringVar(&o.listen, "listen", "", "`address` (host:port) for other nodes and tools (default: the control address in the hosts file)")
	f.StringVar(&o.metrics, "metrics", "", "loopback `address` (host:port) for Prometheus, at /metrics, and for health checks, at /healthz (default: there is none)")
	f.StringVar(&o.State, "state", "", "`directory` for what outlives the daemon, its sessions (default: state in the root; else /var/lib/vmmc/NAME, or for users ~/.local/state/vmmc/nodes/NAME)")
	f.StringVar(&o.drives, "drives", "", "`directory` of the drives of sessions (default: drives in the state directory)")
	f.BoolVar(&o.encrypt, "encrypt", false, "have all links between processes here and on other nodes encrypted, whatever the other node says; without it those of which a process or the other node asks for that")
	f.BoolVar(&o.spawnRoot, "spawn-root", false, "let processes of root on other nodes start programs as root here (when this runs as root)")
	f.StringSliceVar(&o.admins, "admin", nil, "`user` who may administer the node: read its logs, take it down and up (may be given again; root and the daemon's own user always may)")
	f.StringVar(&o.logFormat, "log-format", "text", "`format` of the log on standard error: text or json")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	f.IntVar(&o.parentPipe, "parent-pipe", -1, "end when this inherited `descriptor` reads its end before a byte")
	if err := f.MarkHidden("parent-pipe"); err != nil {
		panic(err) // the flag is defined one line above
	}
	c.AddCommand(newSupervise())
	return c
}
