package rpc

import (
	"context"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const most = 64 << 20 // bytes of a message; gRPC's own limit is below a run's largest

// service is what protoc would generate for two calls on BytesValue.
var service = grpc.ServiceDesc{
	ServiceName: "bench.Bytes",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Echo", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := &wrapperspb.BytesValue{}
			return in, decode(in)
		}},
		{MethodName: "Take", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return &emptypb.Empty{}, decode(&wrapperspb.BytesValue{})
		}},
	},
}

func serveGRPC(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(most))
	s.RegisterService(&service, struct{}{})
	context.AfterFunc(ctx, s.Stop)
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

type grpcCaller struct{ *grpc.ClientConn }

func dialGRPC(_ context.Context, network, addr string) (caller, error) {
	target := "passthrough:///" + addr
	if network == "unix" {
		target = "unix:" + addr
		if name, ok := strings.CutPrefix(addr, "@"); ok {
			target = "unix-abstract:" + name
		}
	}
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most)))
	return grpcCaller{c}, err
}

func (c grpcCaller) Echo(ctx context.Context, b []byte) ([]byte, error) {
	out := &wrapperspb.BytesValue{}
	err := c.Invoke(ctx, "/bench.Bytes/Echo", wrapperspb.Bytes(b), out)
	return out.GetValue(), err
}

func (c grpcCaller) Take(ctx context.Context, b []byte) error {
	return c.Invoke(ctx, "/bench.Bytes/Take", wrapperspb.Bytes(b), &emptypb.Empty{})
}
