package demo

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/baseline"
)

// RunChild is what a child does: the role, then its arguments. It ends when its
// standard input does.
func RunChild(ctx context.Context, args []string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if len(args) < 2 {
		return fmt.Errorf("role and argument wanted, got %q", args)
	}
	var n [4]int
	for i, a := range args[2:] {
		if i < len(n) {
			n[i], _ = strconv.Atoi(a)
		}
	}
	switch args[0] {
	case "flag":
		f, err := baseline.OpenFlag(3)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Serve(ctx, n[0])
	case "tcp":
		return serveTCP(ctx, args[1], n[0], n[1], n[2])
	}
	p, err := vmmc.Open(ctx, vmmc.WithSocket(args[1]))
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	switch args[0] {
	case "hold":
		if _, err := exportPage(p, 1, pageSize); err != nil {
			return err
		}
		fmt.Println(p.PID())
		<-ctx.Done()
		return nil
	case "receive":
		return receive(ctx, p, args[2:])
	}
	return fmt.Errorf("no role %q", args[0])
}

func serveTCP(ctx context.Context, addr string, size, n, total int) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	t, err := baseline.NewTCP(c.(*net.TCPConn))
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Serve(ctx, size, n, total)
}

// receive takes the file, says its sum, and answers pings. Args: the sender's
// node and pid, and the size of a ping.
func receive(ctx context.Context, p *vmmc.Process, args []string) error {
	node, err := p.NameToNode(args[0])
	if err != nil {
		return err
	}
	pid, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	data, err := exportPage(p, bufData, windows*windowSize)
	if err != nil {
		return err
	}
	control, err := exportPage(p, bufControl, pageSize)
	if err != nil {
		return err
	}
	ping, err := exportPage(p, bufPing, pageSize)
	if err != nil {
		return err
	}
	fmt.Println(p.PID())
	back, err := p.Import(ctx, node, vmmc.PID(pid), bufAnswer)
	if err != nil {
		return err
	}
	if err := takeFile(ctx, data, control, back); err != nil {
		return err
	}
	w, err := ping.Word(size - 4)
	if err != nil {
		return err
	}
	answer := make([]byte, size)
	for last := uint32(0); ; {
		v, err := w.Wait(ctx, last)
		if err != nil || v == stopPing {
			return err
		}
		last = v
		binary.LittleEndian.PutUint32(answer[size-4:], v)
		if err := back.Send(ctx, answer, pongAt); err != nil {
			return err
		}
	}
}

// takeFile hashes window after window where the sender put it.
func takeFile(ctx context.Context, data, control *vmmc.Export, back *vmmc.Import) error {
	sum := sha256.New()
	for seq := uint32(1); ; seq++ {
		w := int(seq % windows)
		word, err := control.Word(w*stride + 4)
		if err != nil {
			return err
		}
		if err := waitFor(ctx, word, seq); err != nil {
			return err
		}
		n := int(binary.LittleEndian.Uint32(control.Bytes()[w*stride:]))
		if n == 0 {
			return back.Send(ctx, append(sum.Sum(nil), words(1)...), sumAt)
		}
		sum.Write(data.Bytes()[w*windowSize : w*windowSize+n])
		if err := back.Send(ctx, words(seq), w*stride); err != nil {
			return err
		}
	}
}
