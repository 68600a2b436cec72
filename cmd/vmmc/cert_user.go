package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/cert"
)

func newCertUser() *cobra.Command {
	var f issueFlags
	c := &cobra.Command{
		Use:   "user --dir DIR --out DIR NAME",
		Short: "Issue an identity for a user",
		Long: `Issue an identity for a user: cert.pem, key.pem and ca.pem. With it
"vmmc node ls --remote" asks nodes on other machines.`,
		Example: `  vmmc cert user --dir authority --out ~/.config/vmmc alice`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOut(f.out, f.renew); err != nil {
				return err
			}
			if err := cert.IssueUser(f.dir, args[0], f.out); err != nil {
				return f.named(err)
			}
			fmt.Fprintf(c.OutOrStdout(), "wrote the identity of user %q to %s\n", args[0], f.out)
			return nil
		},
	}
	f.add(c, "`directory` for the identity")
	return c
}
