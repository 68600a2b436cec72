package main

import (
	"os"
	"syscall"
)

// watchScreen is never told: this system has no signal for it.
func watchScreen(chan<- os.Signal) {}

// passedOn are the signals that "run" passes on.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// isUserSignal is never true: this system has no such signals.
func isUserSignal(syscall.Signal) bool { return false }
