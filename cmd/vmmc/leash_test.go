package main

import (
	"crypto/rand"
	"io"
	"net"
	"os"
	"testing"
)

// leashEnv names the socket that ties a command of a script to the tests.
const leashEnv = "VMMC_TEST_LEASH"

// leash makes a socket for leashed. Its goroutines end with the commands, so that
// the check for leaks finds a process that a script left behind.
func leash(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("unix", "@vmmc-test-"+rand.Text()) // no file, which could be left behind
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// leashed is run in each command: it ends with the tests, however these end,
// even if it is a node in the background.
func leashed() {
	name := os.Getenv(leashEnv)
	if name == "" {
		return
	}
	c, err := net.Dial("unix", name)
	if err != nil {
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, c)
		os.Exit(1)
	}()
}
