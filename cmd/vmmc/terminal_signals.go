//go:build !windows

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// watchScreen is told when the terminal has another size, and when this tool goes
// on after it was stopped.
func watchScreen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH, syscall.SIGCONT) }

// passedOn are the signals that "run" passes on.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// isUserSignal reports whether "mpirun" passes on a signal and goes on.
func isUserSignal(n syscall.Signal) bool { return n == syscall.SIGUSR1 || n == syscall.SIGUSR2 }
