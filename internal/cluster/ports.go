package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
)

// Where ports are looked for: below those that systems give to connections, which
// could have one by the time that its node listens.
const (
	firstPort = 10000
	lastPort  = 32000
)

// walk is where the search for the next port begins, at first at a random port of this process's
// own. No port is given twice before all others were: the caller that got one may not listen yet
// when the next is asked for.
var walk = func() *atomic.Uint32 {
	var a atomic.Uint32
	a.Store(rand.Uint32N(lastPort - firstPort)) //nolint:gosec // no secret
	return &a
}()

// FreeAddresses finds n addresses on loopback at which no program listens at the moment.
// All differ, also from those of earlier calls.
func FreeAddresses(n int) ([]string, error) { return FreeAddressesOf("127.0.0.1", n) }

// FreeAddressesOf is FreeAddresses on another of this machine's addresses.
func FreeAddressesOf(host string, n int) ([]string, error) {
	var c net.ListenConfig
	var out []string
	for tries := 0; len(out) < n; tries++ {
		port := firstPort + walk.Add(1)%(lastPort-firstPort)
		l, err := c.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10)))
		switch {
		case errors.Is(err, syscall.EADDRINUSE) && tries < lastPort-firstPort:
			continue
		case err != nil:
			return nil, fmt.Errorf("find a free port on %s: %w", host, err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}
