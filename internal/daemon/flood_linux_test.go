//go:build linux

package daemon_test

import (
	"net"
	"testing"
	"time"
)

// A peer with many addresses is not logged for each: one user of this machine has 16 million.
func TestManyAddressesDoNotFloodTheLog(t *testing.T) {
	log := &syncBuffer{}
	n, _ := certified(t, authority(t), log)
	const addrs = 1500
	for range 2 {
		for i := range addrs {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, byte(i>>8), byte(i))}}
			c, err := d.Dial("tcp", n.Addr())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte("G"))
			_ = c.SetReadDeadline(time.Now().Add(bound))
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	}
	if got := log.count("an unauthenticated connection was refused"); got > 1000 {
		t.Errorf("%d lines within seconds", got)
	}
}
