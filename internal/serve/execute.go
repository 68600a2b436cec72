package serve

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// The exit statuses of all commands, beside 0.
const (
	Failed  = 1
	Misused = 2
	Partly  = 3 // part of the cluster is not reachable
)

// StatusError is an error that chooses the exit status.
type StatusError struct {
	Status int
	Err    error // nil: there is nothing to say
}

func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

// Unwrap gives the error without its status.
func (e *StatusError) Unwrap() error { return e.Err }

// Usage is the error of a command that was called wrongly.
func Usage(format string, args ...any) error {
	return &StatusError{Misused, fmt.Errorf(format, args...)}
}

// Execute runs the program's command line and returns the exit status.
func Execute(root *cobra.Command) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	// Now and not in ExecuteC, so that these commands are watched as well.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	running := false
	watch(root, &running)
	c, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	// What cobra finds wrong before a command runs is wrong with the call.
	status := Misused
	if running {
		status = Failed
	}
	var own *StatusError
	if errors.As(err, &own) {
		if status = own.Status; own.Err == nil {
			return status
		}
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", c.CommandPath(), err)
	if status == Misused {
		fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for usage.\n", c.CommandPath())
	}
	return status
}

// watch notes in running that one of the commands was called rightly.
func watch(c *cobra.Command, running *bool) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			*running = true
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		watch(sub, running)
	}
}
