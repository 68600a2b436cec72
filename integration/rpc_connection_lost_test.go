package integration

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

func init() {
	impatient := []vmmc.Option{vmmc.WithSilence(time.Second), vmmc.WithResume(time.Second)}
	testutil.RegisterRole("rpc server", child(rpcServer, impatient...))
	testutil.RegisterRole("rpc client", child(rpcClient, impatient...))
}

// heldCall is a call that lasts as long as its context.
type heldCall struct{ xdr.Void }

func (heldCall) Do(ctx context.Context) error {
	fmt.Println("called")
	<-ctx.Done()
	fmt.Println("ended")
	return ctx.Err()
}

func rpcServer(_ context.Context, p *vmmc.Process, _ []string) error {
	s := vrpc.NewServer()
	err := s.Register(&vrpc.Service{
		Name: "HELD", Program: 0x20000460, Version: 1,
		Procedures: []vrpc.Procedure{{Number: 1, Name: "HOLD", New: func() vrpc.Call { return heldCall{} }}},
	})
	if err != nil {
		return err
	}
	return s.ServeVMMC(p, vrpc.Meeting)
}

func rpcClient(ctx context.Context, p *vmmc.Process, args []string) error {
	node, pid, err := target(p, args[0], args[1])
	if err != nil {
		return err
	}
	c, err := vrpc.DialVMMC(ctx, p, vmmc.ProcessID{Node: node, PID: pid}, vrpc.Meeting)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Call(context.Background(), 0x20000460, 1, 1, xdr.Void{}, xdr.Void{})
	if !errors.Is(err, vrpc.ErrLost) {
		return fmt.Errorf("the call has ended otherwise: %w", err)
	}
	fmt.Println("lost")
	return nil
}

// A call by remote memory ends as lost when the network between the nodes is cut, though it has no
// deadline, and the server's procedure ends.
func TestRPCWhenTheNetworkIsCut(t *testing.T) {
	net := testutil.NewNet(t, 2)
	cl := up(t, 2, []string{net[0].Addr, net[1].Addr}, func(i int, c *exec.Cmd) *exec.Cmd { return net[i].Enter(c) })
	pid, _, server := launch(t, net[0].Enter(testutil.Command(t, "rpc server")), cl.socket(0))
	_, _, client := launch(t, net[1].Enter(testutil.Command(t, "rpc client", "n0", number(pid))), cl.socket(1))
	says(t, server, "called")
	if out, err := net[0].Command("ip", "link", "set", "eth0", "down").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	says(t, client, "lost")
	says(t, server, "ended")
}
