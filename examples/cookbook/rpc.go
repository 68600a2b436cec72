package cookbook

import (
	"context"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/examples/rpcecho/echo"
	"github.com/vmmc-go/vmmc/vrpc"
)

// echoServer has the procedures of echo.x.
type echoServer struct{ echo.UnimplementedEchoServer }

// Say returns what the client has said.
func (echoServer) Say(_ context.Context, words string) (string, error) { return words, nil }

// ServeEcho answers calls by remote memory.
func ServeEcho(p *vmmc.Process) {
	s := vrpc.NewServer()
	check(echo.RegisterEcho(s, echoServer{}))
	check(s.ServeVMMC(p, vrpc.Meeting, vmmc.WithName("echo")))
}

// Echo calls the server that has the name.
func Echo(ctx context.Context, p *vmmc.Process, words string) string {
	im, err := p.ImportName(ctx, "n1/echo") // says which process it is
	check(err)
	c, err := vrpc.DialVMMC(ctx, p, im.Exporter(), vrpc.Meeting)
	check(err)
	defer c.Close()
	back, err := echo.NewEchoClient(c).Say(ctx, words)
	check(err)
	return back
}
