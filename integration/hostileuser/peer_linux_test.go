package hostileuser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

func init() {
	testutil.RegisterRole("hostile exporter", func() int { return runPeer("exporter", (*peer).exports) })
	testutil.RegisterRole("hostile importer", func() int { return runPeer("importer", (*peer).imports) })
}

// peer speaks the protocols by itself. It passes descriptors that are slow to close wherever the
// protocol has room for a descriptor, and where it has none.
type peer struct {
	*nodeproto.Conn
	id      nodeproto.ProcessID
	process shmlayout.Process
	slow    func() (fd int, err error) // makes a descriptor that is slow to close
	gifts   atomic.Int64               // slow descriptors given away
}

// runPeer joins the daemon as a hostile peer and acts until its input ends. The peer prints its own
// pid, then the number of gifts now and then.
func runPeer(as string, act func(*peer, context.Context, []string) error) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p := &peer{slow: func() (int, error) {
		if rand.IntN(4) == 0 {
			if fd, err := dirty(testutil.Args()[1], as); err == nil {
				return fd, nil
			}
		}
		fd, far, err := lingering()
		if err == nil {
			held.hold(far)
		}
		return fd, err
	}}
	err := p.join(ctx, act)
	if err != nil {
		fmt.Println("hostile peer:", err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		fmt.Println(p.gifts.Load())
		pause(ctx, 100*time.Millisecond)
	}
	return 0
}

func (p *peer) join(ctx context.Context, act func(*peer, context.Context, []string) error) error {
	args := testutil.Args()
	c, err := nodeproto.Dial(ctx, args[0])
	if err != nil {
		return err
	}
	if p.process, err = shmlayout.NewProcess(); err != nil {
		return err
	}
	p.Conn = nodeproto.NewConn(c, p.answer)
	hello := nodeproto.Hello{Version: nodeproto.Version, Incarnation: rand.Uint64()}
	w, _, err := nodeproto.Ask[nodeproto.Welcome](ctx, p.Conn, nodeproto.Register, hello, nil)
	if err != nil {
		return err
	}
	p.id = w.Process
	fmt.Println("ready")
	fmt.Println(p.id.PID)
	return act(p, ctx, args[2:])
}

const bufferSize = 4096

// exports offers buffer 1 to all users.
func (p *peer) exports(ctx context.Context, _ []string) error {
	r := nodeproto.ExportRequest{
		ID: 1, Size: bufferSize, Rights: nodeproto.MayRead | nodeproto.MayWrite,
		Permit: []nodeproto.Permission{{Users: []string{nodeproto.AnyName}, Sessions: []string{nodeproto.AnyName}}},
	}
	_, err := p.Call(ctx, nodeproto.Export, r, nil, nil)
	return err
}

// answer gives an importer a grant and a link, in which something is a slow descriptor, by chance.
func (p *peer) answer(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
	link := -1 // its end
	if m == nodeproto.Accept && len(fds) == nodeproto.LinkDescriptors {
		link, fds = fds[nodeproto.LinkPages], fds[:nodeproto.LinkPages]
		foreign.Own(link)
	}
	closeAll(fds)
	switch m {
	case nodeproto.Offer:
		g := nodeproto.Grant{Handle: rand.Uint32() | 1, Size: bufferSize, Rights: nodeproto.MayRead | nodeproto.MayWrite}
		switch rand.IntN(3) {
		case 0: // memory that is none
			g.Mapped, g.Memory = true, bufferSize
			return g, p.gift(1), nil
		case 1: // more than is awaited
			return g, p.gift(3), nil
		}
		return g, nil, nil
	case nodeproto.Accept:
		return p.accept(link)
	}
	return nodeproto.Empty{}, p.gift(1), nil
}

func (p *peer) accept(link int) (any, []int, error) {
	back, err := shmlayout.NewExporter()
	if err != nil {
		return nil, nil, err
	}
	mine, err := descriptors(p.process.Region, back.Region)
	if err != nil {
		return nil, nil, err
	}
	switch rand.IntN(3) {
	case 0: // as many as are awaited
		closeAll([]int{link, mine[1]})
		return nodeproto.Accepted{Imports: true}, append(mine[:1], p.gift(1)...), nil
	case 1: // more than that
		_ = unix.Close(link)
		return nodeproto.Accepted{Imports: true}, append(mine, p.gift(4)...), nil
	}
	go p.gives(link, 16)
	return nodeproto.Accepted{Imports: true}, mine, nil
}

// gift makes n slow descriptors, or fewer.
func (p *peer) gift(n int) (fds []int) {
	for range n {
		fd, err := p.slow()
		if err != nil {
			break
		}
		fds = append(fds, fd)
		p.gifts.Add(1)
	}
	return fds
}

// gives sends frames on a link, each with a slow descriptor that the other end does not await.
func (p *peer) gives(link, times int) {
	defer unix.Close(link)
	b := make([]byte, wire.HeaderSize)
	h := wire.Header{Type: wire.Ping}
	h.Put(b, 0)
	for range times {
		fds := p.gift(1)
		if len(fds) == 0 {
			return
		}
		err := syscall.Sendmsg(link, b, syscall.UnixRights(fds...), nil, syscall.MSG_NOSIGNAL)
		go closeAll(fds) // waits itself where the other end has not taken the socket
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func descriptors(rs ...*shm.Region) (fds []int, err error) {
	for _, r := range rs {
		fd, err := r.Descriptor()
		if err != nil {
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// imports links to a process, given by its pid, again and again, and passes descriptors on the
// links.
func (p *peer) imports(ctx context.Context, args []string) error {
	pid, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			short, stop := context.WithTimeout(ctx, 10*time.Second)
			p.raid(short, uint32(pid))
			stop()
			pause(ctx, 50*time.Millisecond)
		}
	}()
	return nil
}

func (p *peer) raid(ctx context.Context, pid uint32) {
	r := nodeproto.ImportRequest{Node: p.id.Node, PID: pid, ID: 2}
	g, fds, err := nodeproto.Ask[nodeproto.Grant](ctx, p.Conn, nodeproto.Import, r, nil)
	closeAll(fds)
	if err != nil {
		return
	}
	ring, err := shmlayout.NewImporter()
	if err != nil {
		return
	}
	defer ring.Retire()
	mine, err := descriptors(p.process.Region, ring.Region)
	if err != nil {
		return
	}
	_, fds, err = nodeproto.Ask[nodeproto.Connected](ctx, p.Conn, nodeproto.Connect, nodeproto.ConnectRequest{Exporter: g.Exporter}, mine)
	closeAll(mine)
	if err != nil || len(fds) != nodeproto.LinkDescriptors {
		closeAll(fds)
		return
	}
	closeAll(fds[:len(fds)-1])
	p.gives(fds[len(fds)-1], 16)
}
