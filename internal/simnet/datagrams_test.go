package simnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Each fault is of its datagram, and delays are exact.
func TestDatagramFaults(t *testing.T) {
	for name, f := range map[string]struct {
		faults []Packet
		want   []string // of the datagrams d0 to d3, one a second, and when they come
	}{
		"none":           {nil, []string{"d0 0s", "d1 1s", "d2 2s", "d3 3s"}},
		"lose":           {[]Packet{{At: 1, Kind: Lose}}, []string{"d0 0s", "d2 2s", "d3 3s"}},
		"repeat":         {[]Packet{{At: 1, Kind: Repeat}}, []string{"d0 0s", "d1 1s", "d1 1s", "d2 2s", "d3 3s"}},
		"repeat late":    {[]Packet{{At: 1, Kind: Repeat, For: time.Hour}}, []string{"d0 0s", "d1 1s", "d2 2s", "d3 3s", "d1 1h0m1s"}},
		"swap":           {[]Packet{{At: 1, Kind: Swap}}, []string{"d0 0s", "d2 2s", "d1 2s", "d3 3s"}},
		"swaps":          {[]Packet{{At: 0, Kind: Swap}, {At: 1, Kind: Swap}}, []string{"d2 2s", "d1 2s", "d0 2s", "d3 3s"}},
		"swap with none": {[]Packet{{At: 3, Kind: Swap}}, []string{"d0 0s", "d1 1s", "d2 2s"}},
		"swap with lost": {
			[]Packet{{At: 1, Kind: Swap}, {At: 2, Kind: Lose}}, []string{"d0 0s", "d1 2s", "d3 3s"},
		},
		"stall": {[]Packet{{At: 1, Kind: Stall, For: 1500 * time.Millisecond}}, []string{"d0 0s", "d2 2s", "d1 2.5s", "d3 3s"}},
		"flip":  {[]Packet{{At: 1, Kind: Flip, Len: 1, Bit: 1}}, []string{"d0 0s", "d3 1s", "d2 2s", "d3 3s"}},
		"flip of none": {
			[]Packet{{At: 1, Kind: Flip, Len: 2}}, []string{"d0 0s", "d1 1s", "d2 2s", "d3 3s"},
		},
		"trunc": {[]Packet{{At: 1, Kind: Trunc, Len: 1}}, []string{"d0 0s", "d 1s", "d2 2s", "d3 3s"}},
		"part":  {[]Packet{{At: 1, Kind: Swap}, {At: 2, Kind: Part}}, []string{"d0 0s"}},
		"two of one": {
			[]Packet{
				{At: 3, Kind: Flip},
				{At: 3, Kind: Stall, For: time.Second},
				{At: 3, Kind: Repeat, For: time.Second},
			},
			[]string{"d0 0s", "d1 1s", "d2 2s", "e3 4s", "e3 5s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := Datagrams(f.faults, nil)
				defer func() { _, _ = a.Close(), b.Close() }()
				began := time.Now()
				go func() {
					for i := range 4 {
						if _, err := a.WriteTo(fmt.Appendf(nil, "d%d", i), b.LocalAddr()); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Second)
					}
				}()
				_ = b.SetReadDeadline(began.Add(24 * time.Hour))
				var got []string
				for buf := make([]byte, 100); ; {
					n, from, err := b.ReadFrom(buf)
					if errors.Is(err, os.ErrDeadlineExceeded) {
						break
					}
					if err != nil || from.String() != a.LocalAddr().String() {
						t.Fatal(from, err)
					}
					got = append(got, fmt.Sprintf("%s %v", buf[:n], time.Since(began)))
				}
				if !reflect.DeepEqual(got, f.want) || a.Sent() != 4 {
					t.Errorf("%q of %d have come, want %q", got, a.Sent(), f.want)
				}
				if _, err := b.Write([]byte("back")); err != nil {
					t.Error(err)
				}
				if n, err := a.Read(make([]byte, 100)); n != 4 || err != nil {
					t.Errorf("the way back: %d bytes, %v", n, err)
				}
			})
		})
	}
}

// A port takes and loses what a UDP socket would, and ends like one.
func TestPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Datagrams(nil, nil)
		for _, at := range []net.Addr{a.LocalAddr(), a.RemoteAddr()} {
			if _, ok := at.(*net.UDPAddr); !ok {
				t.Errorf("%T", at)
			}
		}
		for range queued + 1 {
			if _, err := a.Write([]byte("12")); err != nil {
				t.Fatal(err)
			}
		}
		for range queued {
			if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if n, err := a.WriteTo([]byte("1"), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 9)}); n != 1 ||
			err != nil {
			t.Error(n, err)
		}
		_ = b.SetDeadline(time.Now().Add(time.Second))
		if n, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes that were to be lost, %v", n, err)
		}
		if _, err := b.Write([]byte("1")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write after its deadline: %v", err)
		}
		if _, err := a.Write(make([]byte, longest+1)); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("too long: %v", err)
		}
		_ = b.SetDeadline(time.Time{})
		done := make(chan error)
		go func() { _, _, err := b.ReadFrom(make([]byte, 1)); done <- err }()
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read at a port that is closed: %v", err)
		}
		if _, err := b.WriteTo([]byte("1"), a.LocalAddr()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write at a port that is closed: %v", err)
		}
		if err := b.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if _, err := a.Write([]byte("1")); err != nil {
			t.Errorf("no error tells that the other port is closed: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestNoResetOfDatagrams(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("datagrams were reset")
		}
	}()
	Datagrams([]Packet{{Kind: Reset}}, nil)
}
