package vmmc_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// subject is an importing process of a daemon that does and says what the test has it.
func subject(t *testing.T, introduces bool, answer nodeproto.Handler) *vmmc.Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	var d *nodeproto.Conn
	var come sync.WaitGroup
	come.Go(func() {
		c, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		d = nodeproto.NewConn(c, func(ctx context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
			if m == nodeproto.Register {
				closeAll(fds)
				return nodeproto.Welcome{Process: nodeproto.ProcessID{Node: "a", PID: 1, Incarnation: 5}, Hosts: []string{"a"}, Introduces: introduces}, nil, nil
			}
			return answer(ctx, m, body, fds)
		})
	})
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(path))
	l.Close()
	come.Wait()
	t.Cleanup(func() {
		if p != nil {
			p.Close()
		}
		if d != nil {
			d.Close()
			<-d.Done()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A daemon of an older version is not asked for a link with an import: it would wait for the buffer
// with the pages in its hands.
func TestFirstImportWithAnOlderDaemon(t *testing.T) {
	for name, introduces := range map[string]bool{"older": false, "of this version": true} {
		t.Run(name, func(t *testing.T) {
			brought := make(chan int, 1)
			p := subject(t, introduces, func(_ context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
				closeAll(fds)
				if m != nodeproto.Import {
					return nodeproto.Empty{}, nil, nil
				}
				r, err := nodeproto.Decode[nodeproto.ImportRequest](body)
				if err == nil && r.Link != (len(fds) > 0) {
					err = code.New(code.Protocol, "%+v with %d descriptors", r, len(fds))
				}
				if err == nil {
					err = code.NoSuchProcess
				}
				brought <- len(fds)
				return nil, nil, err
			})
			if _, err := p.Import(within(t), p.Node(), 2, 7); !errors.Is(err, vmmc.ErrNoSuchProcess) {
				t.Error(err)
			}
			want := 0
			if introduces {
				want = 2
			}
			if n := <-brought; n != want {
				t.Errorf("an import brings %d descriptors, want %d", n, want)
			}
		})
	}
}

// An exporter forgets its grants with a link that ends, and may have had a link that failed at the
// importer. An importer that has got a grant meanwhile asks again: on the next link the grant would
// be invalid, and the exporter would not say so.
func TestGrantsGoWithALinkThatCameToNothing(t *testing.T) {
	exporter := nodeproto.ProcessID{Node: "a", PID: 2, Incarnation: 6}
	first, granted, fail := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var handle uint32 // the last that was granted
	lost := true      // what was granted so far
	its, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	defer its.Retire()
	p := subject(t, true, func(_ context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
		closeAll(fds)
		switch m {
		case nodeproto.Import:
			r, err := nodeproto.Decode[nodeproto.ImportRequest](body)
			if err != nil {
				return nil, nil, err
			}
			if r.Link {
				select {
				case <-first: // a later one
					return nodeproto.Grant{}, nil, code.InProgress
				default:
				}
				close(first)
				<-fail
				return nil, nil, code.New(code.NoMem, "the link came to nothing")
			}
			mu.Lock()
			defer mu.Unlock()
			if handle++; handle == 1 {
				close(granted)
			} else {
				lost = false
			}
			return nodeproto.Grant{Exporter: exporter, Handle: handle, Size: size, Rights: nodeproto.MayRead, Lost: 4 + uint64(handle)}, nil, nil
		case nodeproto.Connect:
			back, err := shmlayout.NewExporter()
			if err != nil {
				return nil, nil, err
			}
			t.Cleanup(back.Retire)
			near, far, err := unix.StreamPair()
			if err != nil {
				return nil, nil, err
			}
			newHostileLink(t, near, shmlayout.Importer{}, back)
			return nodeproto.Connected{SameNode: true, Lost: 6}, []int{descriptor(t, its.Region), descriptor(t, back.Region), far}, nil
		}
		return nodeproto.Empty{}, nil, nil
	})
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := p.Import(within(t), p.Node(), 2, 7); !errors.Is(err, vmmc.ErrNoMem) {
			t.Errorf("%v, want %v", err, vmmc.ErrNoMem)
		}
	})
	<-first
	both.Go(func() {
		if _, err := p.Import(within(t), p.Node(), 2, 8); err != nil {
			t.Error(err)
		}
	})
	<-granted
	close(fail)
	both.Wait()
	mu.Lock()
	defer mu.Unlock()
	if lost {
		t.Error("an import holds a grant that went with a link")
	}
}
