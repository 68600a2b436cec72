package integration

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// Two nodes with addresses of their own, as two machines have.
func TestAcrossNamespaces(t *testing.T) {
	net := testutil.NewNet(t, 2)
	addrs := []string{net[0].Addr, net[1].Addr}
	cl := up(t, 2, addrs, func(i int, c *exec.Cmd) *exec.Cmd { return net[i].Enter(c) })
	each := scaled(50_000)
	pid, rx, _ := launch(t, net[0].Enter(testutil.Command(t, "collect", strconv.Itoa(each))), cl.socket(0))
	for s := range senders {
		cmd := testutil.Command(t, "produce", "n0", number(pid), strconv.Itoa(s), strconv.Itoa(each), "1")
		_, tx, _ := launch(t, net[1].Enter(cmd), cl.socket(1))
		defer finish(t, tx)
	}
	finish(t, rx)
}
