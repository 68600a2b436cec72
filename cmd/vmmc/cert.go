package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newCert() *cobra.Command {
	c := group("cert", "Make and show the certificates of a cluster")
	c.Long = `Make and show the certificates by which the nodes and users of a cluster know
each other. "cert init" makes the cluster's authority; "cert node" and
"cert user" let it issue identities.`
	c.Example = `  vmmc cert init --dir authority --cluster lab
  vmmc cert node --dir authority --out identities n1 n2
  vmmc cert user --dir authority --out identities/alice alice
  vmmc cert show identities/n1`
	c.AddCommand(newCertInit(), newCertNode(), newCertUser(), newCertShow())
	return c
}

// checkAuthority refuses the directory of an authority.
func checkAuthority(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, "ca-key.pem")); err == nil {
		return fmt.Errorf("%s is an authority's directory, and its key belongs on no node: "+
			"choose another with --out", dir)
	}
	return nil
}

// checkOut refuses a directory that holds what a new identity would spoil.
func checkOut(dir string, renew bool) error {
	if err := checkAuthority(dir); err != nil {
		return err
	}
	file := filepath.Join(dir, "cert.pem")
	switch _, err := os.Lstat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for an identity, by --out: %w", err)
	case !renew:
		return fmt.Errorf("%s is there already: choose another directory with --out, or replace it with --renew", file)
	}
	return nil
}

// issueFlags are those of "cert node" and "cert user".
type issueFlags struct {
	dir, out string
	renew    bool
}

// named has an error name the flags that say where an identity is from and where it goes.
func (f *issueFlags) named(err error) error {
	return fmt.Errorf("%w (--dir %s, --out %s)", err, f.dir, f.out)
}

func (f *issueFlags) add(c *cobra.Command, out string) {
	c.Flags().StringVar(&f.dir, "dir", "", "`directory` of the authority, from \"vmmc cert init\"")
	c.Flags().StringVar(&f.out, "out", "", out)
	c.Flags().BoolVar(&f.renew, "renew", false, "replace an identity that is there")
	require(c, "dir", "out")
}

// require is for flags without a sensible default.
func require(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		if err := c.MarkFlagRequired(f); err != nil {
			panic(err) // no such flag: a mistake in this program
		}
	}
}
