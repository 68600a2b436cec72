package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/serve"
)

func newCertNode() *cobra.Command {
	var f issueFlags
	c := &cobra.Command{
		Use:   "node --dir DIR --out DIR NAME...",
		Short: "Issue identities for nodes",
		Long: `Issue an identity for each node named: cert.pem, key.pem and ca.pem, what
"vmmcd --certs" takes. The identity of a node goes to a directory of its name below
--out, however many are named; to --out itself if that has the node's name.`,
		Example: `  vmmc cert node --dir authority --out /etc/vmmc/n1 n1
  vmmc cert node --dir authority --out identities n1 n2 n3`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			outs, err := f.nodes(names)
			if err != nil {
				return err
			}
			for i, name := range names {
				if err := cert.IssueNode(f.dir, name, outs[i]); err != nil {
					return f.named(err)
				}
				fmt.Fprintf(c.OutOrStdout(), "wrote the identity of node %q to %s\n", name, outs[i])
			}
			return nil
		},
	}
	f.add(c, "`directory` in which each node's identity has a directory of its name")
	return c
}

// nodes checks all names before the first identity is written, and says where
// each belongs.
func (f *issueFlags) nodes(names []string) ([]string, error) {
	outs := make([]string, len(names))
	if err := checkAuthority(f.out); err != nil {
		return nil, err
	}
	for i, name := range names {
		if err := hosts.CheckName(name); err != nil {
			return nil, serve.Usage("name of a node: %w", err)
		}
		name = hosts.Canonical(name)
		names[i] = name
		if slices.Contains(names[:i], name) {
			return nil, serve.Usage("node %q is named twice", name)
		}
		if outs[i] = f.out; filepath.Base(f.out) != name {
			outs[i] = filepath.Join(f.out, name)
		}
		if err := checkOut(outs[i], f.renew); err != nil {
			return nil, err
		}
	}
	return outs, nil
}
