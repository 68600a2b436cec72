package serve

import (
	"net"
	"os"

	"github.com/vmmc-go/vmmc/internal/env"
)

// notifier tells the service manager how far the node is, by the protocol of
// sd_notify(3). Without a service manager it does nothing.
type notifier struct{ socket string }

// newNotifier takes the socket's name out of the environment: programs that the
// node starts are not to speak for it.
func newNotifier() notifier {
	s := env.Get("NOTIFY_SOCKET")
	_ = os.Unsetenv("NOTIFY_SOCKET")
	return notifier{s}
}

func (n notifier) say(state string) {
	if n.socket == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return // it waits in vain, and says so
	}
	defer c.Close()
	_, _ = c.Write([]byte(state))
}
