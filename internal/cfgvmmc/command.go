// Package cfgvmmc is the manual's tool for sessions, with its command lines: it works
// from machines that are no nodes.
package cfgvmmc

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// verb is what can be asked of a node.
type verb struct {
	name     string
	syntax   string // behind the verb
	min, max int    // arguments behind the verb; max -1: any number
	run      func(*call) error
}

func verbs() []verb {
	return []verb{
		{"add", "session user password drive netShare outDir", 6, 6, add},
		{"del", "session", 1, 1, del},
		{"run", "session workingDir programPath [args]", 3, -1, run},
		{"kill", "session [pid]", 1, 2, kill},
	}
}

// Command is cfgvmmc.
func Command() *cobra.Command {
	var w where
	var shell string
	c := &cobra.Command{
		Use:   "cfgvmmc [flags] hostname add|del|run|kill session ...",
		Short: "Make and delete sessions on a node, and run programs in them",
		Long: `Make and delete sessions on a node, run programs in them and kill them, with the
command lines of the VMMC 2.0 manual:

  cfgvmmc hostname add session user password drive netShare outDir
  cfgvmmc hostname del session
  cfgvmmc hostname run session workingDir programPath [args]
  cfgvmmc hostname kill session [pid]

  hostname     a node, by its name in the hosts file
  session      any text that is not empty
  user         the account that the session's programs run as, and that the share
               is mounted for; "" is the caller
  password     of the share's account; "" is none. All users of this machine can
               see it for a moment: give - for standard input, or @FILE
  drive        a letter and a colon, as K:, or - for a free one
  netShare     what the drive is made for: a share, as \\fs\test, or a directory of
               the node; "" if the drive is there already
  outDir       where output goes, absolute within the drive; not empty
  workingDir   absolute within the drive
  programPath  relative to workingDir, or absolute within the drive. One that cannot be
               run is tried without .exe or .bat
  pid          the logical pid, which "run" prints; without it, all are killed

In drive, netShare, outDir, workingDir and programPath a backslash is a slash; a
shell wants it in quotes. Arguments of the program are handed on as they are.

"run" prints the node and the logical pid and ends when the program has started. It
passes VMMCHOSTS on. "kill" cannot be caught, and kills what is on that node.

The node is asked over this machine's node if there is one, else over TLS as the
user of a certificate; over TLS in any case with --hosts, --certs or their variables.

  hosts file   --hosts, VMMC_HOSTS_FILE, vmmc-hosts.txt in VMMC_ROOT, in ~/.config/vmmc
               or in /etc/vmmc
  certificate  --certs, VMMC_CERTS, ~/.config/vmmc
  this node    --socket, VMMC_SOCKET

Exit status: 0 it is done, 1 it failed, 2 it was called wrongly, 3 the node cannot
be reached.`,
		Example: `  cfgvmmc node1 add TestSession guest @password K: '\\FS\Guest' '\tmp'
  cfgvmmc node1 add TestSession guest - - '\\FS\Guest' '\tmp'
  cfgvmmc node1 add TestSession "" "" F: "" '\tmp'
  cfgvmmc node1 run TestSession '\' '\bin\test.exe' arg1 arg2
  cfgvmmc node1 run TestSession '\bin' test.exe arg1 arg2
  cfgvmmc node1 kill TestSession
  cfgvmmc node1 kill TestSession 123
  cfgvmmc node1 del TestSession`,
		Version:           vmmc.Release,
		ValidArgsFunction: w.complete,
		RunE: func(c *cobra.Command, args []string) error {
			if shell != "" {
				return completion(c, shell)
			}
			if len(args) == 0 {
				return c.Help()
			}
			return dispatch(c, &w, args)
		},
	}
	c.Flags().SetInterspersed(false) // what follows the node is in its place
	w.add(c)
	c.Flags().StringVar(&shell, "completion", "", "print the completions for a `shell`: bash, zsh, fish or powershell")
	_ = c.RegisterFlagCompletionFunc("completion", cobra.FixedCompletions(shells, cobra.ShellCompDirectiveNoFileComp))
	return c
}

var shells = []cobra.Completion{"bash", "zsh", "fish", "powershell"}

// completion prints what makes a shell complete command lines. It is no command of its
// own, as it is in vmmc: that might be the name of a node.
func completion(c *cobra.Command, shell string) error {
	w := c.OutOrStdout()
	switch shell {
	case "bash":
		return c.GenBashCompletionV2(w, true)
	case "zsh":
		return c.GenZshCompletion(w)
	case "fish":
		return c.GenFishCompletion(w, true)
	case "powershell":
		return c.GenPowerShellCompletionWithDesc(w)
	}
	return serve.Usage("--completion %q: wanted one of %s", shell, strings.Join(shells, ", "))
}

// dispatch finds the verb. Windows takes capitals for small letters, and the
// manual writes both.
func dispatch(c *cobra.Command, w *where, args []string) error {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	if len(args) == 1 {
		return serve.Usage("what is node %q to do? One of %s", args[0], strings.Join(names, ", "))
	}
	for _, v := range verbs() {
		if !strings.EqualFold(v.name, args[1]) {
			continue
		}
		rest := args[2:]
		if len(rest) < v.min || v.max >= 0 && len(rest) > v.max {
			return serve.Usage("%s with %d arguments: wanted %s %s %s",
				v.name, len(rest), args[0], v.name, v.syntax)
		}
		return v.run(&call{Command: c, where: w, node: args[0], args: rest})
	}
	return serve.Usage("no command %q: wanted one of %s", args[1], strings.Join(names, ", "))
}
