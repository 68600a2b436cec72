package bench

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// rpcProgram is in the range of user-defined numbers. Its procedure 1 returns the length of its
// argument.
const rpcProgram = 0x20000778

// unitRPC is more than all that a message has besides long arguments.
const unitRPC = 8192

type octets []byte

func (o *octets) EncodeXDR(e *xdr.Encoder) { e.Opaque(*o, xdr.Unlimited) }

func (o *octets) DecodeXDR(d *xdr.Decoder) { *o = d.Opaque(*o, xdr.Unlimited) }

type length uint32

func (n *length) EncodeXDR(e *xdr.Encoder) { e.Uint32(uint32(*n)) }

func (n *length) DecodeXDR(d *xdr.Decoder) { *n = length(d.Uint32()) }

// lengthCall is a call of procedure 1.
type lengthCall struct {
	args octets
	res  length
}

func (c *lengthCall) DecodeXDR(d *xdr.Decoder) { c.args.DecodeXDR(d) }

func (c *lengthCall) EncodeXDR(e *xdr.Encoder) { c.res.EncodeXDR(e) }

// Do measures the argument.
func (c *lengthCall) Do(context.Context) error {
	c.res = length(len(c.args))
	return nil
}

// rpcServer is the far end's.
type rpcServer struct {
	s       *vrpc.Server
	serving sync.WaitGroup
}

// rpcServe serves by all transports, and says at which ports of TCP and UDP. What serves may fail
// only once it is closed, or its clients would.
func rpcServe(ctx context.Context, e *end, j job) ([]float64, error) {
	s := vrpc.NewServer(vrpc.WithMaxMessage(2*j.Size+unitRPC), vrpc.WithServerArea(atOnce*(j.Size+unitRPC)))
	if err := s.InPlace().Register(&vrpc.Service{
		Name: "BENCH", Program: rpcProgram, Version: 1,
		Procedures: []vrpc.Procedure{{Number: 1, Name: "LENGTH", New: func() vrpc.Call { return new(lengthCall) }}},
	}); err != nil {
		return nil, err
	}
	host := "127.0.0.1"
	if e.Path == Remote {
		host = cmp.Or(e.Far.Host, host)
	}
	var l net.ListenConfig
	tcp, err := l.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	unix, err := l.Listen(ctx, "unix", j.Mode)
	udp, err2 := l.ListenPacket(ctx, "udp", net.JoinHostPort(host, "0"))
	r := &rpcServer{s: s}
	r.serving.Go(func() { _ = s.Serve(tcp) })
	if err == nil {
		r.serving.Go(func() { _ = s.Serve(unix) })
	}
	if err2 == nil {
		r.serving.Go(func() { _ = s.ServePacket(udp) })
	}
	r.serving.Go(func() { _ = s.ServeVMMC(e.p, vrpc.Meeting) })
	if err := errors.Join(err, err2); err != nil {
		r.close()
		return nil, err
	}
	e.rpc = r
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	return []float64{float64(tcp.Addr().(*net.TCPAddr).Port), float64(udp.LocalAddr().(*net.UDPAddr).Port)}, nil
}

func (r *rpcServer) close() {
	_ = r.s.Close()
	r.serving.Wait()
}

// rpcRound is the far end of a round: the server's own goroutines answer.
func rpcRound(ctx context.Context, e *end, _ job) ([]float64, error) { return nil, e.ready(ctx) }

func rpcEnd(ctx context.Context, e *end, _ job) ([]float64, error) {
	if e.rpc != nil {
		e.rpc.close()
		e.rpc = nil
	}
	return nil, e.ready(ctx)
}
