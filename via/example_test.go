package via_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/via"
)

// A server waits for a request and receives a message; a client connects and sends it.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	// The server posts a receive before it accepts: then no message can find none.
	server := open(a)
	defer server.nic.Close()
	check(server.vi.PostReceive(&via.Descriptor{Segments: []via.Segment{server.mem.Segment(0, 64)}}))
	l, err := server.nic.Listen(ctx, "greetings")
	check(err)
	defer l.Close()
	go func() {
		r, err := l.Wait(ctx)
		check(err)
		check(r.Accept(server.vi))
	}()

	// The client is mostly another program.
	client := open(b)
	defer client.nic.Close()
	local := via.Address{Host: client.nic.Attributes().Address, Discriminator: "client"}
	host, err := client.nic.HostByName("", 0) // this node; the server's, by its name
	check(err)
	_, err = client.vi.Connect(ctx, local, via.Address{Host: host, Discriminator: "greetings"})
	check(err)
	n := copy(client.mem.Bytes(), "hello")
	check(client.vi.PostSend(&via.Descriptor{
		Control:       via.OpSendReceive | via.Immediate,
		Segments:      []via.Segment{client.mem.Segment(0, n)},
		ImmediateData: 7,
	}))
	_, err = client.vi.SendWait(ctx)
	check(err)

	d, err := server.vi.ReceiveWait(ctx)
	check(err)
	fmt.Printf("%s, %d\n", d.Segments[0].Data[:d.Length], d.ImmediateData)
	fmt.Println(d.Status&via.OpMask == via.OpReceive, d.Status&via.ImmediateArrived != 0)
	fmt.Println(d.Status&via.OpMask == via.OpRemoteWrite) // an RDMA write with immediate data
	// Output:
	// hello, 7
	// true true
	// false
}

// One completion queue for the receives of many VIs.
func ExampleCompletionQueue() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, client := open(a), open(b)
	defer server.nic.Close()
	defer client.nic.Close()
	l, err := server.nic.Listen(ctx, "jobs")
	check(err)
	defer l.Close()

	const clients = 3
	cq, err := server.nic.NewCompletionQueue(clients)
	check(err)
	var vis []*via.VI
	for i := range clients {
		vi, err := server.nic.NewVI(server.attr, nil, cq)
		check(err)
		check(vi.PostReceive(&via.Descriptor{Segments: []via.Segment{server.mem.Segment(8*i, 8)}}))
		go func() {
			r, err := l.Wait(ctx)
			check(err)
			check(r.Accept(vi))
		}()
		other, err := client.nic.NewVI(client.attr, nil, nil)
		check(err)
		attr, err := other.Connect(ctx, via.Address{}, l.Address())
		check(err)
		if attr.Level != client.attr.Level || attr.MaxTransferSize != client.attr.MaxTransferSize {
			fmt.Println("the two differ")
		}
		vis = append(vis, other)
	}
	for _, vi := range vis {
		check(vi.PostSend(&via.Descriptor{Segments: []via.Segment{client.mem.Segment(0, 8)}}))
	}
	for range clients {
		c, err := cq.Wait(ctx)
		check(err)
		d, err := c.VI.ReceiveDone()
		check(err)
		fmt.Println(c.Receive, d.Length)
	}
	_, err = cq.Done()
	fmt.Println(errors.Is(err, via.ErrNotDone))
	check(cq.Resize(2 * clients))
	fmt.Println(errors.Is(cq.Destroy(), via.ErrResource)) // VIs have it
	// Output:
	// true 8
	// true 8
	// true 8
	// true
	// true
}

// What becomes of a VI whose other side disconnects.
func ExampleVI_Disconnect() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, client := open(a), open(b)
	defer server.nic.Close()
	defer client.nic.Close()
	told := make(chan via.AsyncError, 1)
	client.nic.OnError(func(e via.AsyncError) { told <- e })
	l, err := server.nic.Listen(ctx, "jobs")
	check(err)
	defer l.Close()
	go func() {
		r, err := l.Wait(ctx)
		check(err)
		check(r.Accept(server.vi))
	}()
	_, err = client.vi.Connect(ctx, via.Address{}, l.Address())
	check(err)
	check(client.vi.PostReceive(&via.Descriptor{Segments: []via.Segment{client.mem.Segment(0, 8)}}))
	check(server.vi.Disconnect())

	e := <-told
	switch e.Code {
	case via.ConnectionLost:
		fmt.Println(e.Code, e.VI == client.vi, e.NIC == client.nic, e.CQ, e.Descriptor, e.Err != nil)
	case via.WriteProtection, via.ReadProtection, via.ReceiveEmpty, via.Overrun, via.PostDescriptor, via.Catastrophic,
		via.WriteData, via.WriteAborted:
		fmt.Println("not here")
	}
	d, err := client.vi.ReceiveDone()
	fmt.Println(errors.Is(err, via.ErrDescriptor), d.Err(), d.Status&via.ErrorMask == via.Flushed)
	fmt.Println(d.Status&via.PartialError == 0) // it was no RDMA write that has arrived in part
	s, err := client.vi.Query()
	check(err)
	fmt.Println(s.State, s.SendEmpty, s.ReceiveEmpty, s.Attributes.Level == via.ReliableReception)
	fmt.Println(s.Remote == l.Address(), s.Local == via.Address{})
	check(client.vi.Disconnect())
	fmt.Println(client.vi.State() == via.Idle)
	check(client.vi.SetAttributes(client.attr))
	check(client.vi.Destroy())
	// Output:
	// connection lost true true <nil> <nil> true
	// true descriptor error true
	// true
	// error true true true
	// true true
	// true
}

// Errors have VIPL's codes.
func ExampleCode() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	client, server := open(a), open(b)
	defer client.nic.Close()
	defer server.nic.Close()
	remote := via.Address{Host: server.nic.Attributes().Address, Discriminator: "jobs"}
	_, err := client.vi.Connect(ctx, via.Address{}, remote)
	switch {
	case errors.Is(err, via.ErrNoMatch):
		fmt.Println("nothing waits there: try again later")
	case errors.Is(err, via.ErrTimeout), errors.Is(err, via.ErrNotReachable):
		fmt.Println("its node does not answer")
	case errors.Is(err, via.ErrInvalidState), errors.Is(err, via.ErrInvalidParameter):
		fmt.Println("a mistake of this program")
	}

	l, err := server.nic.Listen(ctx, "jobs")
	check(err)
	defer l.Close()
	go func() {
		r, err := l.Wait(ctx)
		check(err)
		fmt.Println(r.Remote.Discriminator, r.Local.Discriminator, r.Attributes.Level)
		check(r.Reject())
	}()
	_, err = client.vi.Connect(ctx, via.Address{Discriminator: "me"}, remote)
	fmt.Println(errors.Is(err, via.ErrReject))
	var e *via.Error
	fmt.Println(errors.As(err, &e), e.Op, e.Code == via.ErrReject, e.Err)

	_, err = client.nic.NewVI(via.VIAttributes{Level: 99}, nil, nil)
	fmt.Println(errors.Is(err, via.ErrInvalidLevel))
	_, err = client.nic.NewVI(via.VIAttributes{Level: via.Unreliable}, nil, nil)
	fmt.Println(errors.Is(err, via.ErrInvalidMTU))
	_, err = client.nic.NewVI(via.VIAttributes{Level: via.ReliableDelivery, MaxTransferSize: 1}, nil, nil)
	fmt.Println(errors.Is(err, via.ErrInvalidTag))
	_, err = client.nic.NewVI(via.VIAttributes{Level: via.Unreliable, MaxTransferSize: 1, EnableRDMARead: true}, nil, nil)
	fmt.Println(errors.Is(err, via.ErrInvalidRDMARead))
	_, err = client.nic.HostByAddress(via.HostAddress{})
	fmt.Println(errors.Is(err, via.ErrNameService))
	name, err := client.nic.HostByAddress(remote.Host)
	check(err)
	fmt.Println(name != "")
	// Output:
	// nothing waits there: try again later
	// me jobs 4
	// true
	// true request a connection true <nil>
	// true
	// true
	// true
	// true
	// true
	// true
}

// A client writes memory of a server, and reads it again. The server calls nothing.
func ExampleRemote() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, client := open(a), open(b)
	defer server.nic.Close()
	defer client.nic.Close()
	server.attr.EnableRDMAWrite, server.attr.EnableRDMARead = true, true
	check(server.vi.SetAttributes(server.attr))
	check(server.mem.SetAttributes(via.MemoryAttributes{
		Tag: server.attr.Tag, EnableRDMAWrite: true, EnableRDMARead: true,
		Direct: true, // without messages, where the region is whole pages of Process.Alloc
	}))
	l, err := server.nic.Listen(ctx, "memory")
	check(err)
	defer l.Close()
	go func() {
		r, err := l.Wait(ctx)
		check(err)
		check(r.Accept(server.vi))
	}()
	attr, err := client.vi.Connect(ctx, via.Address{}, l.Address())
	check(err)
	fmt.Println(attr.EnableRDMAWrite, attr.EnableRDMARead)

	remote := server.mem.Remote(100) // mostly sent to the client in a message
	copy(client.mem.Bytes(), "hello")
	write := &via.Descriptor{
		Control: via.OpRDMAWrite, Segments: []via.Segment{client.mem.Segment(0, 5)}, Remote: remote,
	}
	read := &via.Descriptor{
		Control:  via.OpRDMARead | via.QFence,
		Segments: []via.Segment{client.mem.Segment(10, 4)},
		Remote:   via.Remote{Address: remote.Address + 1, Handle: remote.Handle},
	}
	for _, d := range []*via.Descriptor{write, read} {
		check(client.vi.PostSend(d))
		d, err = client.vi.SendWait(ctx)
		check(err)
		fmt.Println(d.Status&via.OpMask == via.OpWrite, d.Status&via.OpMask == via.OpRead)
	}
	fmt.Printf("%s\n", client.mem.Bytes()[10:14])

	check(client.vi.PostSend(&via.Descriptor{Control: via.OpRDMAWrite, Remote: server.mem.Remote(5000)}))
	d, err := client.vi.SendWait(ctx)
	fmt.Println(errors.Is(err, via.ErrDescriptor), d.Status&via.RDMAError != 0)
	// Output:
	// true true
	// true false
	// false true
	// ello
	// true true
}

// A descriptor says by its status how it was completed.
func ExampleStatus() {
	ctx := context.Background()
	a, _, end := processes(ctx)
	defer end()
	e := open(a)
	defer e.nic.Close()
	check(e.vi.PostSend(&via.Descriptor{Segments: []via.Segment{{Data: e.mem.Bytes()[:8], Handle: e.mem.Handle()}}}))
	d, _ := e.vi.SendDone()
	switch s := d.Status; {
	case s&via.Done == 0:
		fmt.Println("not complete")
	case s&via.Flushed != 0:
		fmt.Println("the VI is not connected:", e.vi.State() == via.Connected || e.vi.State() == via.ConnectPending)
	case s&via.FormatError != 0, s&via.ProtectionError != 0, s&via.LengthError != 0:
		fmt.Println("the descriptor is wrong")
	case s&via.RemoteError != 0:
		fmt.Println("the other side could not receive it")
	}
	fmt.Println(d.Status&via.OpMask == via.OpSend, e.vi.State() == via.Failed)
	// Output:
	// the VI is not connected: false
	// true false
}

// The limits of a NIC, and registered memory.
func ExampleNIC_Attributes() {
	a, _, end := processes(context.Background())
	defer end()
	n, err := via.Open(a, "/dev/via_lo")
	check(err)
	defer n.Close()
	l := n.Attributes()
	fmt.Println(l.Device, l.MaxSegments, l.MaxDescriptors, l.MaxTransferSize, l.NativeMTU)
	fmt.Println(l.MaxVIs, l.MaxTags, l.MaxRegions, l.MaxCompletionQueues, l.MaxCompletionEntries)
	fmt.Println(l.MaxDiscriminator, l.Levels&via.ReliableReception != 0)

	tag, err := n.NewTag()
	check(err)
	mem, err := n.Register(make([]byte, 100), via.MemoryAttributes{Tag: tag})
	check(err)
	attr, err := mem.Attributes()
	check(err)
	fmt.Println(attr.Tag == tag, mem.Handle() != via.Handle(0))
	check(mem.SetAttributes(attr))
	check(mem.Deregister())
	check(tag.Destroy())
	// Output:
	// /dev/via_lo 252 1024 1048576 32768
	// 1024 1024 1048576 1024 1048576
	// 32 true
	// true true
}

// endpoint is a NIC with a VI and registered memory.
type endpoint struct {
	nic  *via.NIC
	vi   *via.VI
	mem  *via.Memory
	attr via.VIAttributes
}

func open(p *vmmc.Process) (e endpoint) {
	var err error
	e.nic, err = via.Open(p, "nic0")
	check(err)
	tag, err := e.nic.NewTag()
	check(err)
	e.mem, err = e.nic.Register(make([]byte, 4096), via.MemoryAttributes{Tag: tag})
	check(err)
	e.attr = via.VIAttributes{Level: via.ReliableReception, MaxTransferSize: 4096, Tag: tag}
	e.vi, err = e.nic.NewVI(e.attr, nil, nil)
	check(err)
	return e
}

// Two peers request each other; it does not matter which is first.
func ExampleVI_ConnectPeer() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute) // how long the requests last
	defer stop()
	a, b, end := processes(ctx)
	defer end()
	ranks := []endpoint{open(a), open(b)}
	address := func(rank int) via.Address {
		return via.Address{
			Host:          ranks[rank].nic.Attributes().Address,
			Discriminator: fmt.Sprint("job 7, rank ", rank),
		}
	}
	for i, r := range ranks { // mostly two programs
		defer r.nic.Close()
		check(r.vi.ConnectPeer(ctx, address(i), address(1-i)))
	}
	for _, r := range ranks {
		attr, err := r.vi.ConnectPeerWait(ctx)
		check(err)
		fmt.Println(attr.MaxTransferSize, r.vi.State())
		_, err = r.vi.ConnectPeerDone() // the outcome was taken
		fmt.Println(errors.Is(err, via.ErrInvalidState))
	}
	// Output:
	// 4096 connected
	// true
	// 4096 connected
	// true
}

// Handlers of completions, in place of calls that wait or poll.
func ExampleVI_ReceiveNotify() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, client := open(a), open(b)
	defer server.nic.Close()
	defer client.nic.Close()
	cq, err := server.nic.NewCompletionQueue(1)
	check(err)
	queued, err := server.nic.NewVI(server.attr, nil, cq)
	check(err)
	l, err := server.nic.Listen(ctx, "handlers")
	check(err)
	defer l.Close()

	lengths := make(chan int)
	// Each handler has one completion: it registers itself again for the next one.
	var handle func(d *via.Descriptor)
	handle = func(d *via.Descriptor) {
		if d.Err() != nil { // flushed, for instance
			return
		}
		check(server.vi.ReceiveNotify(handle))
		lengths <- d.Length
	}
	check(server.vi.ReceiveNotify(handle))
	check(cq.Notify(func(c via.Completion) {
		d, err := c.VI.ReceiveDone()
		check(err)
		lengths <- d.Length
	}))
	for i, vi := range []*via.VI{server.vi, queued} {
		check(vi.PostReceive(&via.Descriptor{Segments: []via.Segment{server.mem.Segment(64*i, 64)}}))
		go func() {
			r, err := l.Wait(ctx)
			check(err)
			check(r.Accept(vi))
		}()
		other, err := client.nic.NewVI(client.attr, nil, nil)
		check(err)
		_, err = other.Connect(ctx, via.Address{}, l.Address())
		check(err)
		done := make(chan via.Status)
		check(other.SendNotify(func(d *via.Descriptor) { done <- d.Status }))
		check(other.PostSend(&via.Descriptor{Segments: []via.Segment{client.mem.Segment(0, 5+i)}}))
		fmt.Println(<-done == via.Done|via.OpSend, <-lengths)
	}
	// Output:
	// true 5
	// true 6
}

func processes(ctx context.Context) (a, b *vmmc.Process, end func()) {
	n, err := node.Start()
	check(err)
	a, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	b, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	return a, b, func() {
		a.Close()
		b.Close()
		n.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Another process of the user looks at a VI, as "vmmc via ls" does.
func ExampleListNICs() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	a, b, end := processes(ctx)
	defer end()
	server := open(a)
	defer server.nic.Close()
	check(server.vi.PostReceive(&via.Descriptor{Segments: []via.Segment{server.mem.Segment(0, 64)}}))

	var nics []via.NICStatus
	for len(nics) == 0 { // a new NIC is listed a moment later
		var err error
		nics, err = via.ListNICs(ctx, b, a.Node())
		check(err)
	}
	n := nics[0]
	fmt.Println(n.Process == a.ID(), n.Device, n.Number > 0)
	v := n.VIs[0]
	fmt.Println("VI", v.Number, "is", v.State, "of level", v.Level)
	fmt.Println("connected with process", v.Peer, "on node", v.PeerNode, v.Local == v.Remote)
	fmt.Println("SENDs:", v.SendPending, v.SendCompleted, "receives:", v.ReceivePending, v.ReceiveCompleted)
	fmt.Println("sent:", v.Sent, v.SentBytes, "received:", v.Received, v.ReceivedBytes, "errors:", v.Errors)

	// The names of the NICs' tables are those of exports, so one table can be read alone.
	for info, err := range b.Names(ctx, via.StatusName) {
		check(err)
		s, err := via.ReadStatus(ctx, b, info.Process, info.Buffer)
		check(err)
		fmt.Println(s.Number == n.Number)
	}
	// Output:
	// true nic0 true
	// VI 1 is idle of level 4
	// connected with process 0 on node  true
	// SENDs: 0 0 receives: 1 0
	// sent: 0 0 received: 0 0 errors: 0
	// true
}
