package metrics

import (
	"net"
	"sync"
)

// maxConns bounds the open connections: any user of this machine can make them, and the node needs
// its descriptors for processes.
const maxConns = 16

// boundedListener is a listener that closes its oldest connection when a new one exceeds maxConns.
type boundedListener struct {
	net.Listener
	mu    sync.Mutex
	conns []*boundedConn // oldest first
}

type boundedConn struct {
	net.Conn
	listener *boundedListener
}

func newBoundedListener(l net.Listener) *boundedListener { return &boundedListener{Listener: l} }

// Accept waits for the next connection.
func (f *boundedListener) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a := &boundedConn{c, f}
	f.mu.Lock()
	var oldest *boundedConn
	if f.conns = append(f.conns, a); len(f.conns) > maxConns {
		oldest = f.conns[0]
	}
	f.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return a, nil
}

// Close closes the connection and removes it from the listener.
func (a *boundedConn) Close() error {
	a.listener.mu.Lock()
	for i, o := range a.listener.conns {
		if o == a {
			a.listener.conns = append(a.listener.conns[:i], a.listener.conns[i+1:]...)
			break
		}
	}
	a.listener.mu.Unlock()
	return a.Conn.Close()
}
