package samples

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// long are runs that last until something is done to them.
var long = []string{
	"latency 1 1000000000", "all2all random 3 1 1000000000", "FetchBandwidth 1000000000 1 1",
	"RandomChain 3 65536 400000", "spawn 250",
}

// A peer that dies ends the run, with its name and status 1; the others end too.
func (l *lab) killedPeer(t *testing.T) {
	for _, line := range long {
		name, args := split(line)
		var errs bytes.Buffer
		c := l.command(t, "", name, args...)
		c.Stderr = &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		n := 1 + strings.Count(line, "3") + strings.Count(line, "spawn")
		eventually(t, "the peers of "+line, func() bool { return len(l.peers(name)) >= min(n, 2) })
		kill(t, l.peers(name)[0])
		if status := exit(t, c.Wait()); status != 1 || !strings.Contains(errs.String(), "process") {
			t.Errorf("%s: status %d\n%s", line, status, &errs)
		}
		l.nothingLeft(t)
	}
	l.killedInACurve(t)
}

// Here it is certain that it died in the middle.
func (l *lab) killedInACurve(t *testing.T) {
	var errs bytes.Buffer
	c := l.command(t, "", "OnewayBandwidth", "100000", "1", "65536")
	c.Stderr = &errs
	rows := output(t, c)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if !rows.Scan() {
			t.Fatalf("there is no row: %v\n%s", rows.Err(), &errs)
		}
	}
	kill(t, l.peers("OnewayBandwidth")[0])
	for rows.Scan() { // until it ends
	}
	if status := exit(t, c.Wait()); status != 1 || !strings.Contains(errs.String(), `rank 1 (process`) {
		t.Errorf("status %d\n%s", status, &errs)
	}
	l.nothingLeft(t)
}

func output(t *testing.T, c *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return bufio.NewScanner(out)
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release() //nolint:errcheck // it is only a handle
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

// Without their master the others end by themselves.
func (l *lab) killedMaster(t *testing.T) {
	for _, line := range long {
		name, args := split(line)
		c := l.command(t, "", name, args...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a peer of "+line, func() bool { return len(l.peers(name)) > 0 })
		kill(t, c.Process.Pid)
		_ = c.Wait()
		l.nothingLeft(t)
	}
}

// An interrupt ends all processes of a run.
func (l *lab) interrupt(t *testing.T) {
	var errs bytes.Buffer
	c := l.command(t, "", "OnewayBandwidth", "100000", "1", "65536")
	c.Stderr = &errs
	rows := output(t, c)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		rows.Scan()
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for rows.Scan() {
	}
	if status := exit(t, c.Wait()); status != 1 || !strings.Contains(errs.String(), "terminated") {
		t.Errorf("status %d\n%s", status, &errs)
	}
	l.nothingLeft(t)
}
