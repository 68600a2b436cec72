package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Where ports are looked for: below those that systems give to connections, which
// could have one by the time that its node listens.
const (
	firstPort = 10000
	lastPort  = 32000
)

// FreeAddresses finds n addresses on loopback that nobody listens at when it looks.
// It holds all ports before it gives any up, so that they differ.
func FreeAddresses(n int) ([]string, error) { return FreeAddressesOf("127.0.0.1", n) }

// FreeAddressesOf is FreeAddresses on another of this machine's addresses.
func FreeAddressesOf(host string, n int) ([]string, error) {
	var c net.ListenConfig
	var out []string
	for tries := 0; len(out) < n; tries++ {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // no secret
		l, err := c.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		switch {
		case errors.Is(err, syscall.EADDRINUSE) && tries < 100*n:
			continue
		case err != nil:
			return nil, fmt.Errorf("find a free port on %s: %w", host, err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}
