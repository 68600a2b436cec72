package rpc

import (
	"context"
	"errors"
	"net"
	"net/rpc"
)

// Bytes is the service, for net/rpc.
type Bytes struct{}

// Echo gives the bytes back.
func (Bytes) Echo(in []byte, out *[]byte) error {
	*out = in
	return nil
}

// Take takes them.
func (Bytes) Take(in []byte, n *int) error {
	*n = len(in)
	return nil
}

func serveNetRPC(ctx context.Context, l net.Listener) error {
	s := rpc.NewServer()
	if err := s.Register(Bytes{}); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go s.ServeConn(c)
	}
}

type netCaller struct{ *rpc.Client }

func dialNetRPC(_ context.Context, network, addr string) (caller, error) {
	c, err := rpc.Dial(network, addr)
	return netCaller{c}, err
}

func (c netCaller) Echo(_ context.Context, b []byte) (out []byte, err error) {
	err = c.Call("Bytes.Echo", b, &out)
	return out, err
}

func (c netCaller) Take(_ context.Context, b []byte) error {
	var n int
	if err := c.Call("Bytes.Take", b, &n); err != nil {
		return err
	}
	if n != len(b) {
		return errors.New("not all bytes were taken")
	}
	return nil
}
