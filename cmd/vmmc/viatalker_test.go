package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
)

// viatalker "listen" or NODE: a program with a virtual interface, which stays until it is ended. The
// one that listens posts three receives and takes one of those that complete. The other one sends it
// two messages, of 100 and 64 bytes. Where VIATALKER_UID names a user's number it becomes that user.
func viatalker() int {
	ctx, stop := context.WithTimeout(context.Background(), 10*patience)
	defer stop()
	if uid, err := strconv.Atoi(os.Getenv("VIATALKER_UID")); err == nil {
		if err := becomeUser(uid); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println(talkByVIA(ctx, os.Args[1]))
	return 1
}

func talkByVIA(ctx context.Context, node string) error {
	p, err := vmmc.Open(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	n, err := via.Open(p, "nic0")
	if err != nil {
		return err
	}
	tag, err := n.NewTag()
	if err != nil {
		return err
	}
	mem, err := n.Register(make([]byte, 4096), via.MemoryAttributes{Tag: tag})
	if err != nil {
		return err
	}
	vi, err := n.NewVI(via.VIAttributes{Level: via.ReliableReception, MaxTransferSize: 4096, Tag: tag}, nil, nil)
	if err != nil {
		return err
	}
	if node == "listen" {
		err = listenByVIA(ctx, n, mem, vi)
	} else {
		err = sendByVIA(ctx, n, mem, vi, node)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func listenByVIA(ctx context.Context, n *via.NIC, mem *via.Memory, vi *via.VI) error {
	for range 3 {
		if err := vi.PostReceive(&via.Descriptor{Segments: []via.Segment{mem.Segment(0, 100)}}); err != nil {
			return err
		}
	}
	l, err := n.Listen(ctx, "talk")
	if err != nil {
		return err
	}
	fmt.Println("listens")
	r, err := l.Wait(ctx)
	if err != nil {
		return err
	}
	if err := r.Accept(vi); err != nil {
		return err
	}
	_, err = vi.ReceiveWait(ctx)
	return err
}

func sendByVIA(ctx context.Context, n *via.NIC, mem *via.Memory, vi *via.VI, node string) error {
	host, err := n.HostByName(node, 0)
	if err != nil {
		return err
	}
	if _, err := vi.Connect(ctx, via.Address{}, via.Address{Host: host, Discriminator: "talk"}); err != nil {
		return err
	}
	for _, size := range []int{100, 64} {
		if err := vi.PostSend(&via.Descriptor{Segments: []via.Segment{mem.Segment(0, size)}}); err != nil {
			return err
		}
		if _, err := vi.SendWait(ctx); err != nil {
			return err
		}
	}
	fmt.Println("has sent")
	return nil
}
