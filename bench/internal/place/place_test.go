package place_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/bench/internal/place"
)

func TestVeth(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root; run the tests as root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the ip tool; install iproute2")
	}
	p, err := place.NewVeth(t.Context())
	if err != nil {
		t.Skip("network namespaces are not to be had here:", err)
	}
	names := p.NS
	for side, device := range []string{"10.78.0.1/24", "10.78.0.2/24"} {
		out, err := p.Command(t.Context(), side, "ip", "-br", "addr", "show", p.Device).CombinedOutput()
		if err != nil || !strings.Contains(string(out), device) || !strings.Contains(string(out), "UP") {
			t.Errorf("side %d: %v: %s", side, err, out)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	out, err := exec.CommandContext(t.Context(), "ip", "netns", "list").Output()
	if err != nil || strings.Contains(string(out), names[0]) || strings.Contains(string(out), names[1]) {
		t.Errorf("namespaces are left: %v: %s", err, out)
	}
	if err := p.Close(); err != nil {
		t.Error("closed twice:", err)
	}
}

// Nothing over TCP is paced, whatever this machine's congestion control is, and the ends on
// loopback share a namespace.
func TestNothingIsPaced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root; run the tests as root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the ip tool; install iproute2")
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", "-n", "true").CombinedOutput(); err != nil {
		t.Skip("network namespaces are not to be had here:", err, string(out))
	}
	loop, err := place.NewLoop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := loop.NS[place.Near]
	defer func() {
		for range 2 { // the second time there is nothing left to do
			if err := loop.Close(); err != nil {
				t.Error(err)
			}
		}
		out, err := exec.CommandContext(context.Background(), "ip", "netns", "list").Output()
		if err != nil || strings.Contains(string(out), name) {
			t.Errorf("a namespace is left: %v: %s", err, out)
		}
	}()
	veth, err := place.NewVeth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := veth.Close(); err != nil {
			t.Error(err)
		}
	}()
	if loop.Apart() || !veth.Apart() {
		t.Errorf("ends apart on loopback: %v, over veth: %v", loop.Apart(), veth.Apart())
	}
	for _, p := range []*place.Place{loop, veth} {
		for side := range p.NS {
			out, err := p.Command(t.Context(), side, "cat", "/proc/sys/net/ipv4/tcp_congestion_control").CombinedOutput()
			if now := strings.TrimSpace(string(out)); err != nil || now != "reno" {
				t.Errorf("%s, side %d: %q, %v", p.Name, side, now, err)
			}
			if out, err := p.Command(t.Context(), side, "ip", "-br", "addr", "show", "lo").CombinedOutput(); err != nil || !strings.Contains(string(out), "127.0.0.1/8") {
				t.Errorf("%s, side %d: no loopback: %v: %s", p.Name, side, err, out)
			}
		}
	}
}

func TestPortIsFree(t *testing.T) {
	port, err := place.Loop().Port()
	if err != nil || port == "" || port == "0" {
		t.Errorf("port %q: %v", port, err)
	}
}
