package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("descend", child(descend))
	testutil.RegisterRole("linger", child(linger))
}

// descend spawns itself on the next node, a level lower, until level 0. Each one
// adds itself to what its child has counted, and tells its parent.
func descend(ctx context.Context, p *vmmc.Process, args []string) error {
	level, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	sum := uint32(1)
	if level > 0 {
		n, err := below(ctx, p, level-1, args[1:])
		if err != nil {
			return err
		}
		sum += n
	}
	parent, err := p.Parent()
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, parent.Node, parent.PID, 1)
	if err != nil {
		return err
	}
	return im.Send(ctx, binary.LittleEndian.AppendUint32(nil, sum), 0)
}

// below spawns a program on the node after p's and waits for what it counts.
func below(ctx context.Context, p *vmmc.Process, level int, argv []string) (uint32, error) {
	m, err := p.Alloc(64)
	if err != nil {
		return 0, err
	}
	e, err := p.Export(1, m.Bytes())
	if err != nil {
		return 0, err
	}
	nodes, err := p.SessionHosts()
	if err != nil {
		return 0, err
	}
	next := nodes[0]
	for i, n := range nodes {
		if n == p.Node() {
			next = nodes[(i+1)%len(nodes)]
		}
	}
	args := append([]string{}, argv...)
	args = append(append(args, strconv.Itoa(level)), argv...)
	if _, err := p.Spawn(ctx, next, args[0], args[1:]...); err != nil {
		return 0, err
	}
	w, err := e.Word(0)
	if err != nil {
		return 0, err
	}
	return w.Wait(ctx, 0)
}

// A program spawns itself from node to node, the manual's spawn example.
func TestSpawnDescends(t *testing.T) {
	c := up(t, 2, nil, nil)
	t.Setenv("VMMCHOSTS", "n1 n0")
	p := join(t, c, 0)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	n, err := below(ctx, p, 4, testutil.Argv(t, "descend"))
	if err != nil || n != 5 {
		t.Errorf("%d processes counted themselves, want 5 (%v)", n, err)
	}
}

// linger exports buffer 1 and ends when its first word is not 0.
func linger(ctx context.Context, p *vmmc.Process, _ []string) error {
	m, err := p.Alloc(64)
	if err != nil {
		return err
	}
	e, err := p.Export(1, m.Bytes())
	if err != nil {
		return err
	}
	w, err := e.Word(0)
	if err != nil {
		return err
	}
	_, err = w.Wait(ctx, 0)
	return err
}

// A daemon that dies leaves what it has started running, with its links.
func TestSpawnedOutliveADaemonThatDies(t *testing.T) {
	c := up(t, 2, nil, nil)
	p := join(t, c, 0)
	argv := testutil.Argv(t, "linger")
	for i := range 2 {
		node, err := p.NameToNode(fmt.Sprintf("n%d", i))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := p.Spawn(t.Context(), node, argv[0], argv[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		im := import1(t, p, i, pid, 1)
		defer func() { // once all daemons are dead
			b := make([]byte, 4)
			if err := im.Get(t.Context(), b, 0); err != nil {
				t.Errorf("child on n%d after its daemon's death: %v", i, err)
			}
			for end := time.Now().Add(time.Minute); err == nil; err = im.Send(t.Context(), []byte{1, 0, 0, 0}, 0) {
				if time.Now().After(end) {
					t.Fatalf("child on n%d does not end", i)
				}
			}
		}()
	}
	for _, n := range c.nodes {
		if err := n.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = n.Wait()
	}
}
