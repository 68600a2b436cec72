package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cfgvmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/vrpcgen"
)

//go:generate go run . gen man ../../man

// documented are the programs that have manual pages.
func documented() []*cobra.Command {
	return []*cobra.Command{
		newRoot(),
		serve.Command("vmmcd"),
		cfgvmmc.Command(),
		vrpcgen.Command(),
	}
}

// manDate is what the pages say, so that they do not change from day to day.
var manDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// newGen is for people who build packages.
func newGen() *cobra.Command {
	c := group("gen", "Generate what is made from the commands")
	c.Hidden = true
	c.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all programs",
		Long: `Write the manual pages of all programs, a page a command, to a directory. Pages of
commands that are no more are removed from it.`,
		Example: `  vmmc gen man /usr/share/man/man1`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return genMan(args[0]) },
	})
	return c
}

func genMan(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // any user may read manual pages
		return err
	}
	for _, root := range documented() {
		old, err := filepath.Glob(filepath.Join(dir, root.Name()+"-*.1"))
		if err != nil {
			return err
		}
		for _, f := range old {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
		neutral(root)
		h := doc.GenManHeader{Section: "1", Manual: "vmmc", Source: "vmmc " + vmmc.Release, Date: &manDate}
		if err := doc.GenManTree(root, &h, dir); err != nil {
			return fmt.Errorf("manual pages of %s: %w", root.Name(), err)
		}
	}
	return nil
}

// neutral takes out of a command what differs by user, machine and day.
func neutral(c *cobra.Command) {
	c.DisableAutoGenTag = true
	if f := c.Flags().Lookup("socket"); f != nil {
		f.DefValue = nodeproto.SystemPath
	}
	if f := c.Flags().Lookup("root"); f != nil {
		f.DefValue = ""
	}
	for _, sub := range c.Commands() {
		neutral(sub)
	}
}
