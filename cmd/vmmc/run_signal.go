package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// notifySignals takes the signals that are passed on from now on, so that none is lost
// while programs are started. One that the tool was started to ignore (nohup, a
// script's background) it ignores.
func notifySignals() chan os.Signal {
	told := make(chan os.Signal, 8)
	for _, s := range passedOn {
		if !signal.Ignored(s) {
			signal.Notify(told, s)
		}
	}
	return told
}

// harder is the least time between two SIGINT for the second to end the programs
// harder: a user who hits the keys twice at once means one signal.
const harder = time.Second

// signalForwarder are the signals that went to a run group.
type signalForwarder struct {
	command string // as which it tells the user
	a       *ask.Cluster
	session string
	group   uint32

	hard int // how often a SIGINT came
	last time.Time
}

// next is what a signal is passed on as.
func (p *signalForwarder) next(s syscall.Signal, now time.Time) syscall.Signal {
	if s != syscall.SIGINT {
		return s
	}
	if p.hard == 0 || now.Sub(p.last) >= harder {
		p.hard, p.last = p.hard+1, now
	}
	switch p.hard {
	case 1:
		return syscall.SIGINT
	case 2:
		return syscall.SIGTERM
	}
	return syscall.SIGKILL
}

// passedAs is next of a signal that has come now. It tells the user if that is another one.
func (p *signalForwarder) passedAs(s os.Signal) syscall.Signal {
	number, _ := s.(syscall.Signal)
	as := p.next(number, time.Now())
	if as != number {
		fmt.Fprintf(os.Stderr, "%s: %s again: passed on as %s\n", p.command, signalName(int(number)), signalName(int(as)))
	}
	return as
}

// on passes a signal on to the whole run group: those that were started, and what
// these have spawned anywhere.
func (p *signalForwarder) on(ctx context.Context, s os.Signal) {
	p.send(ctx, p.passedAs(s))
}

// send sends a signal to the whole run group.
func (p *signalForwarder) send(ctx context.Context, as syscall.Signal) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	var passing sync.WaitGroup
	for _, n := range p.a.All {
		passing.Go(func() {
			_, err := n.Client.Kill(ctx, connect.NewRequest(&nodev1.KillRequest{Session: p.session, Group: p.group, Signal: int32(as)}))
			// Not all nodes have the session.
			if err = ask.ErrorOf(n, err); err != nil && !ask.IsMissing(err) && !errors.Is(err, context.Canceled) {
				fmt.Fprintf(os.Stderr, "%s: pass %s on: %v\n", p.command, signalName(int(as)), err)
			}
		})
	}
	passing.Wait()
}
