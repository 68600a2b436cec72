package unix

import (
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// What the system has comes in Reno's place, whatever it is; nothing changes where that is not
// known.
func TestRestore(t *testing.T) {
	for system, want := range map[string]string{"": unpaced, unpaced: unpaced, "bbr": "bbr", "cubic": "cubic", "no such": unpaced} {
		t.Run(system, func(t *testing.T) {
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
			if want != unpaced {
				err := syscall.SetsockoptString(fd, syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, want)
				testutil.Require(t, err == nil, "needs a kernel that has TCP's congestion control "+want+", and that this user may choose it")
			}
			if err := syscall.SetsockoptString(fd, syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, unpaced); err != nil {
				t.Fatal(err)
			}
			if restore(fd, system); Congestion(fd) != want {
				t.Errorf("it is %q, want %q", Congestion(fd), want)
			}
		})
	}
}
