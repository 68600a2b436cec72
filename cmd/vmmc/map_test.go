package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// A firewall that stops what one node begins, and lets it answer: one direction of
// one pair is missing from the map.
func TestMapOfANetworkCutInOneDirection(t *testing.T) {
	ns := testutil.NewNet(t, 3)
	_, err := exec.LookPath("iptables")
	testutil.Require(t, err == nil, "a one-sided firewall needs iptables")
	dir, err := os.MkdirTemp("", "vmmc") // short: sockets' paths are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := cert.Init(filepath.Join(dir, "ca"), "test"); err != nil {
		t.Fatal(err)
	}
	var hs []hosts.Host
	for i := range ns {
		name := fmt.Sprintf("n%d", i+1)
		if err := cert.IssueNode(filepath.Join(dir, "ca"), name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		hs = append(hs, hosts.Host{Name: name, Control: net.JoinHostPort(ns[i].Addr, "7411"), Data: net.JoinHostPort(ns[i].Addr, "7412")})
	}
	file := filepath.Join(dir, "vmmc-hosts.txt")
	if err := os.WriteFile(file, []byte(hosts.Format(hs)), 0o600); err != nil {
		t.Fatal(err)
	}
	// Before there is any connection that would be kept.
	drop := []string{"-A", "OUTPUT", "-p", "tcp", "--syn", "-d", ns[1].Addr, "-j", "REJECT", "--reject-with", "icmp-admin-prohibited"}
	if out, err := ns[0].Command("iptables", drop...).CombinedOutput(); err != nil {
		testutil.Require(t, false, fmt.Sprintf("a one-sided firewall needs iptables that works: %v: %s", err, out))
	}
	for i := range ns {
		cmd := ns[i].Command("vmmcd", "--name", hs[i].Name, "--hosts", file, "--certs", filepath.Join(dir, hs[i].Name),
			"--socket", filepath.Join(dir, hs[i].Name+".sock"), "--state", filepath.Join(dir, hs[i].Name+".state"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	}
	run := func(i int, args ...string) (string, int) {
		cmd := exec.Command("vmmc", append(args, "--socket", filepath.Join(dir, hs[i].Name+".sock"))...)
		out, err := cmd.Output()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for deadline := time.Now().Add(patience); ; {
		if _, status := run(2, "node", "ls"); status == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("n3 does not reach all nodes")
		}
	}

	out, status := run(2, "net", "map", "--json")
	var m struct{ Pairs []pairInfo }
	if err := json.Unmarshal([]byte(out), &m); err != nil || len(m.Pairs) != 9 || status != 3 {
		t.Fatalf("exit status %d, %v: %s", status, err, out)
	}
	for _, p := range m.Pairs {
		want := pathRemote
		switch {
		case p.From == p.To:
			want = pathLocal
		case p.From == "n1" && p.To == "n2":
			want = pathUnreachable
		}
		if p.Path != want || (p.Path == pathRemote) != (p.RTT > 0 && p.DataRTT > 0 && p.Source != "") {
			t.Errorf("%+v, want it %s", p, want)
		}
	}
	out, status = run(2, "net", "map")
	if status != 3 || !strings.Contains(out, "n1 does not reach n2 (n2 reaches n1): ") || strings.Count(out, "does not reach") != 1 {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	// Seen from n1, what n2 reaches cannot be asked.
	out, status = run(0, "net", "map")
	if status != 3 || !strings.Contains(out, "n1 does not reach n2: ") || !strings.Contains(out, "n2    ?") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
}
