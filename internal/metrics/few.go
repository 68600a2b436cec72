package metrics

import (
	"net"
	"sync"
)

// maxAsking is how many connections there are at a time: everybody on this machine can
// make them, and the node's descriptors are for others.
const maxAsking = 16

// few is a listener whose oldest connections make room for those that come.
type few struct {
	net.Listener
	mu   sync.Mutex
	held []*asking // oldest first
}

type asking struct {
	net.Conn
	of *few
}

func newFew(l net.Listener) *few { return &few{Listener: l} }

// Accept waits for the next one.
func (f *few) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a := &asking{c, f}
	f.mu.Lock()
	var oldest *asking
	if f.held = append(f.held, a); len(f.held) > maxAsking {
		oldest = f.held[0]
	}
	f.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return a, nil
}

// Close ends one.
func (a *asking) Close() error {
	a.of.mu.Lock()
	for i, o := range a.of.held {
		if o == a {
			a.of.held = append(a.of.held[:i], a.of.held[i+1:]...)
			break
		}
	}
	a.of.mu.Unlock()
	return a.Conn.Close()
}
