package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

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

// Flag is the error of a flag whose value cannot be used: it names both.
func Flag(name string, value any, err error) error {
	return fmt.Errorf("--%s %v: %w", name, value, err)
}

// Execute runs the program's command line and returns the exit status. hints may add
// a line to what is said of a command's error; "" is none.
func Execute(root *cobra.Command, hints ...func(*cobra.Command, error) string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	// Now and not in ExecuteC, so that these commands are watched as well.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	running := false
	watch(root, &running)
	out := &output{w: root.OutOrStdout()}
	root.SetOut(out)
	c, err := root.ExecuteC()
	lost := out.failure()
	if err == nil && lost == nil {
		return 0
	}
	// What cobra finds wrong before a command runs is wrong with the call.
	status := Misused
	if running || lost != nil && (err == nil || errors.Is(err, lost)) {
		status = Failed
	}
	if lost != nil && !errors.Is(err, lost) {
		fmt.Fprintf(root.ErrOrStderr(), "%s: write the output: %v\n", c.CommandPath(), lost)
	}
	if err == nil {
		return status
	}
	var own *StatusError
	if errors.As(err, &own) {
		if status = own.Status; status == 0 && lost != nil {
			status = Failed
		}
		if own.Err == nil {
			return status
		}
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", c.CommandPath(), err)
	for _, h := range hints {
		if line := h(c, err); line != "" {
			fmt.Fprintln(root.ErrOrStderr(), line)
		}
	}
	if status == Misused {
		fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for usage.\n", c.CommandPath())
	}
	return status
}

// output is a command's standard output. It keeps the first error, which commands
// need not look at: whatever they print, the program fails when it is lost.
type output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// OutputFile is the file that a command prints to, as a terminal; nil if it prints
// elsewhere.
func OutputFile(c *cobra.Command) *os.File {
	w := c.OutOrStdout()
	if o, is := w.(*output); is {
		w = o.w
	}
	f, _ := w.(*os.File)
	return f
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
