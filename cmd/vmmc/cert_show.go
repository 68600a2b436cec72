package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/cert"
)

type identity struct {
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	Cluster  string    `json:"cluster"`
	NotAfter time.Time `json:"not_after"`
}

func newCertShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show DIR|FILE",
		Short: "Show whom an identity is for, and until when",
		Long: `Show whom an identity is for, and until when. It is checked as a node or user
would check it that meets it: one that is out of date is an error. A file, as
cert.pem, stands for the directory that it is in.`,
		Example: `  vmmc cert show /etc/vmmc/n1
  vmmc cert show --json /etc/vmmc/n1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := args[0]
			if i, err := os.Stat(dir); err == nil && !i.IsDir() { // one of the files in it
				dir = filepath.Dir(dir)
			}
			id, err := cert.Load(dir)
			if err != nil {
				return err
			}
			v := identity{id.Kind.String(), id.Name, id.Cluster, id.ServerTLS().Certificates[0].Leaf.NotAfter.UTC()}
			if asJSON {
				return printJSON(c.OutOrStdout(), v)
			}
			return printTable(c.OutOrStdout(), [][]string{
				{v.Kind, v.Name},
				{"cluster", v.Cluster},
				{"until", v.NotAfter.Format(time.RFC3339)},
			})
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
