package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmmc-go/vmmc"
)

// talker [NODE PID]: a program that exports a buffer, prints its process id, and stays until it
// is ended. With NODE PID, another talker, it also sends that one ten messages of 64 bytes, two
// of them with a notification, gets 128 bytes three times, and adds to a word. With one more
// argument it then sends a message every millisecond. With SECRET in the environment its links
// are encrypted. PUBLISH has names for the buffer. FIND has names that it imports first, each of
// which it waits for.
func talker() int {
	fmt.Println(talk(context.Background()))
	return 1
}

func talk(ctx context.Context) error {
	var opts []vmmc.Option
	if os.Getenv("SECRET") != "" {
		opts = append(opts, vmmc.WithEncryption())
	}
	p, err := vmmc.Open(ctx, opts...)
	if err != nil {
		return err
	}
	defer p.Close()
	mem, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	how := []vmmc.ExportOption{vmmc.WithHandler(func(vmmc.Notification) {})}
	for _, name := range strings.Fields(os.Getenv("PUBLISH")) {
		how = append(how, vmmc.WithName(name))
	}
	if _, err := p.Export(1, mem.Bytes(), how...); err != nil {
		return err
	}
	if len(os.Args) > 2 {
		if err := talkTo(ctx, p, os.Args[1], os.Args[2], len(os.Args) > 3); err != nil {
			return err
		}
	}
	for _, name := range strings.Fields(os.Getenv("FIND")) {
		im, err := p.ImportName(ctx, name)
		if err != nil {
			return err
		}
		fmt.Println(name, "is", im.Exporter())
	}
	fmt.Println("I am", p.ID())
	select {}
}

func talkTo(ctx context.Context, p *vmmc.Process, node, peer string, forever bool) error {
	var id vmmc.NodeID
	if err := id.UnmarshalText([]byte(node)); err != nil {
		return err
	}
	pid, err := strconv.ParseUint(peer, 10, 32)
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, id, vmmc.PID(pid), 1)
	if err != nil {
		return err
	}
	b := make([]byte, 128)
	for i := range 10 {
		if i < 8 {
			err = im.Send(ctx, b[:64], 0)
		} else {
			err = im.SendNotify(ctx, b[:64], 0)
		}
		if err != nil {
			return err
		}
	}
	for range 3 {
		if err := im.Get(ctx, b, 0); err != nil {
			return err
		}
	}
	if _, err := im.FetchAdd32(ctx, 0, 1); err != nil {
		return err
	}
	for forever {
		if err := im.Send(ctx, b[:64], 0); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// asks STATUS URL: the answer, which must have that status, is the standard output.
func asks(ts *testscript.TestScript, _ bool, args []string) {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := c.Get(args[1])
	ts.Check(err)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	ts.Check(err)
	_, _ = ts.Stdout().Write(b)
	if got := strconv.Itoa(a.StatusCode); got != args[0] {
		ts.Fatalf("status %s, wanted %s: %s", got, args[0], b)
	}
}
