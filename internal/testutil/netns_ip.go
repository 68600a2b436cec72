package testutil

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// netPrefix returns a name for a net that no other test, binary or container has.
func netPrefix() string { return "vmmctest-" + strings.ToLower(rand.Text()[:10]) }

// noNamespaces tries once to make what NewNet needs, and says why it cannot be made.
var noNamespaces = sync.OnceValue(func() string {
	if runtime.GOOS != "linux" {
		return "network namespaces need Linux"
	}
	if os.Geteuid() != 0 {
		return "network namespaces need root; run the tests as root"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "network namespaces need the ip tool; install iproute2"
	}
	name := netPrefix()
	if err := runIP("", "netns", "add", name); err != nil {
		return "network namespaces are not to be had here: " + err.Error()
	}
	err := inNS(name, "link add name br0 type bridge", "link add name eth0 type veth peer name port1")
	if del := runIP("", "netns", "del", name); err == nil {
		err = del
	}
	if err != nil {
		return "network namespaces need bridge and veth links: " + err.Error()
	}
	return ""
})

// addNS makes a namespace that goes with the test, and sets it up with lines for ip.
func addNS(t testing.TB, name string, lines ...string) error {
	if err := runIP("", "netns", "add", name); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := runIP("", "netns", "del", name); err != nil {
			t.Errorf("testutil: deleting a namespace: %v", err)
		}
	})
	return inNS(name, lines...)
}

// inNS runs lines for ip inside a namespace.
func inNS(name string, lines ...string) error {
	return runIP(strings.Join(lines, "\n")+"\n", "-n", name, "-batch", "-")
}

func runIP(stdin string, args ...string) error {
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s%s", strings.Join(args, " "), err, stdin,
			strings.TrimSpace(string(out)))
	}
	return nil
}

func mustIP(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("testutil: making a network of namespaces: %v", err)
	}
}
