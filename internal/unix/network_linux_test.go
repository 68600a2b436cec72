package unix_test

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

func network() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }

func TestInNetwork(t *testing.T) {
	before, err := network()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"..", "a/b", "vmmctest-there-is-none"} {
		if err := unix.InNetwork(name, func() error { t.Errorf("ran in %q", name); return nil }); err == nil {
			t.Errorf("no error of %q", name)
		}
	}
	mine := errors.New("mine")
	if err := unix.InNetwork("", func() error { return mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	name := "vmmctest-" + strings.ToLower(rand.Text()[:10])
	if err := exec.Command("ip", "netns", "add", name).Run(); err != nil {
		t.Skip("network namespaces need root and the ip tool:", err)
	}
	t.Cleanup(func() {
		if err := exec.Command("ip", "netns", "del", name).Run(); err != nil {
			t.Error("deleting the namespace:", err)
		}
	})
	err = unix.InNetwork(name, func() error {
		there, err := network()
		if err != nil || there == before {
			t.Errorf("it ran in %s: %v", there, err)
		}
		child, err := exec.Command("readlink", "/proc/self/ns/net").Output()
		if err != nil || strings.TrimSpace(string(child)) != there {
			t.Errorf("a program that was started there is in %s: %v", child, err)
		}
		return mine
	})
	if !errors.Is(err, mine) {
		t.Error(err)
	}
	if after, err := network(); err != nil || after != before {
		t.Errorf("the thread came back to %s: %v", after, err)
	}
}
