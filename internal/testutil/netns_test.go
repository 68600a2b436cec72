package testutil

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// listenRole listens at its argument, prints where, and answers one connection with that.
func listenRole() int {
	l, err := net.Listen("tcp", Args()[0]+":0")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(l.Addr())
	c, err := l.Accept()
	if err != nil {
		return 1
	}
	fmt.Fprintln(c, "from", l.Addr())
	c.Close()
	return 0
}

// dialRole prints what the address in its argument says.
func dialRole() int {
	c, err := net.DialTimeout("tcp", Args()[0], 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := io.Copy(os.Stdout, c); err != nil {
		return 1
	}
	return 0
}

func TestNamespacesReachEachOther(t *testing.T) {
	t.Parallel()
	// Two nets with the same addresses: neither sees the other.
	nets := [][]*NS{NewNet(t, 2), NewNet(t, 2)}
	for _, net := range nets {
		listener := net[0].Enter(Command(t, "listen", net[0].Addr))
		out, err := listener.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := listener.Start(); err != nil {
			t.Fatal(err)
		}
		addr, err := bufio.NewReader(out).ReadString('\n')
		addr = strings.TrimSpace(addr)
		if err != nil || !strings.HasPrefix(addr, net[0].Addr+":") {
			t.Fatalf("%s listens at %q (%v), want its address %s", net[0].Name, addr, err, net[0].Addr)
		}
		got, err := net[1].Enter(Command(t, "dial", addr)).Output()
		if want := "from " + addr + "\n"; err != nil || string(got) != want {
			t.Errorf("%s hears %q (%v), want %q", net[1].Name, got, err, want)
		}
	}
}

func TestCommandSeesItsNamespaceOnly(t *testing.T) {
	t.Parallel()
	ns := NewNet(t, 1)[0]
	out, err := ns.Command("ip", "-o", "-4", "addr").CombinedOutput()
	if err != nil {
		t.Fatalf("ip addr: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "127.0.0.1/8") && !strings.Contains(line, ns.Addr+"/24") {
			t.Errorf("%s has %q, which is neither loopback nor %s", ns.Name, line, ns.Addr)
		}
	}
}

func TestNamespacesGoWithTheTest(t *testing.T) {
	t.Parallel()
	var names []string
	t.Run("test", func(t *testing.T) {
		for _, ns := range NewNet(t, 3) {
			names = append(names, ns.Name)
		}
		if missing := absent(t, names); len(missing) > 0 {
			t.Errorf("%q are not there", missing)
		}
	})
	if missing := absent(t, names); len(missing) != len(names) {
		t.Errorf("of %q only %q are gone after the test", names, missing)
	}
}

// absent returns the names that no namespace has.
func absent(t *testing.T, names []string) []string {
	t.Helper()
	if len(names) == 0 {
		return nil // the test before was skipped, maybe for want of ip
	}
	list, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	there := strings.Fields(string(list))
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return slices.Contains(there, n)
	})
}
