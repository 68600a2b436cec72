package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The exit statuses beside 0.
const (
	failed  = 1
	misused = 2
)

// usageError is an error in the way the program was called.
type usageError struct{ error }

// Usage is the error of a program that was called wrongly.
func Usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Execute runs the program and returns its exit status.
func Execute(c *cobra.Command) int {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.CompletionOptions.DisableDefaultCmd = true
	running := false
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		running = true
		return run(c, args)
	}
	err := c.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", c.Name(), err)
	// What cobra finds wrong before the program runs is wrong with the call.
	if running && !errors.As(err, &usageError{}) {
		return failed
	}
	fmt.Fprintf(c.ErrOrStderr(), "usage: %s\nRun '%s --help' for more.\n", c.UseLine(), c.Name())
	return misused
}
