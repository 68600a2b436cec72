package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// ErrStuck says that mount(8) or a program of it waits in the kernel and cannot
// be killed. It may still mount.
var ErrStuck = errors.New("it cannot be killed, because the kernel waits for the server, and may still go on")

// maxSaid is how much of what a program says is kept.
const maxSaid = 2048

// program is mount(8) or umount(8).
type program struct {
	name   string
	args   []string
	env    []string
	secret *os.File                 // its descriptor secretFD; may be nil
	hide   func(text string) string // takes out what it may not have said; may be nil
}

// run runs it to its end. An error has what it said. When ctx ends, it is killed
// with all that it has started.
func (p program) run(ctx context.Context) error {
	path, err := exec.LookPath(p.name)
	if err != nil {
		return code.New(code.BadConfig, "this machine has no %s: %v", p.name, err)
	}
	var extra []*os.File
	if p.secret != nil {
		extra = append(extra, p.secret)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	r, w, err := unix.OutputPipe()
	if err != nil {
		return err
	}
	defer r.Close()
	// Apart, because programs of mount(8) ask the terminal for what they miss.
	c, err := unix.Start(ctx, unix.Program{
		Path: path, Args: append([]string{p.name}, p.args...), Dir: "/", Apart: true,
		Env:   append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, p.env...),
		Files: [3]*os.File{null, w, w}, Extra: extra,
	})
	_ = w.Close()
	if err != nil {
		k := code.BadConfig
		hint, scarce := unix.Scarce(err)
		if scarce {
			k = code.NoMem
		}
		return code.New(k, "start %s: %v%s", path, err, hint)
	}
	// The pipe is at its end when all that was started is gone, which tells of the
	// programs of mount(8) what their numbers do not.
	said := make(chan string, 1)
	go func() {
		var b strings.Builder
		_, _ = io.Copy(&b, io.LimitReader(r, maxSaid))
		_, _ = io.Copy(io.Discard, r)
		said <- b.String()
	}()
	hear := func(patience time.Duration) (string, bool) {
		_ = r.SetReadDeadline(time.Now().Add(patience))
		t := <-said
		if p.hide != nil {
			t = p.hide(t)
		}
		n, err := r.Read(make([]byte, 1))
		return strings.Join(strings.Fields(t), " "), n == 0 && errors.Is(err, io.EOF)
	}
	if c.AwaitOr(ctx.Done()) {
		how := c.Reap()
		if how == "exit status 0" {
			_, _ = hear(0) // what serves all mounts may go on, and have the pipe
			return nil
		}
		text, _ := hear(timeout.Settle)
		if text == "" {
			text = how
		}
		return code.New(code.BadConfig, "%s says: %s", p.name, text)
	}
	c.Signal(syscall.SIGKILL)
	text, over := hear(timeout.Stop)
	if text != "" {
		text = ", and said: " + text
	}
	if !over {
		go c.Reap() // whenever that is
		return fmt.Errorf("%w: %w",
			code.New(code.Timeout, "%s did not end in time%s", p.name, text), ErrStuck)
	}
	c.Reap()
	return code.New(code.Timeout, "%s did not end in time (%v)%s", p.name, context.Cause(ctx), text)
}
