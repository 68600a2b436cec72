package everyxdr

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// Clients that rpcgen and libtirpc make call servers that vrpcgen makes, and the other way round,
// over UDP and TCP, with every type.
func TestCallsOfC(t *testing.T) {
	c := build(t, "calls", "-l", "-m")
	t.Run("client", func(t *testing.T) { clientOfC(t, c) })
	t.Run("server", func(t *testing.T) { serverOfC(t, c) })
}

func clientOfC(t *testing.T, c string) {
	s := vrpc.NewServer()
	m := &many{put: make([]byte, 4)}
	if err := errors.Join(RegisterEveryvers(s, new(server)), RegisterEveryversMany(s.InPlace(), m)); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(tcp) })
	wg.Go(func() { _ = s.ServePacket(udp) })
	defer wg.Wait()
	defer s.Close()
	port := fmt.Sprint(tcp.Addr().(*net.TCPAddr).Port)
	for _, network := range []string{"udp", "tcp"} {
		var in bytes.Buffer
		var sent [][]byte
		values := maker{rand.New(rand.NewPCG(11, 12))}
		for range 100 {
			b, err := xdr.Marshal(values.every())
			if err != nil {
				t.Fatal(err)
			}
			sent = append(sent, b)
			in.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
			in.Write(b)
		}
		call := exec.CommandContext(t.Context(), c, "call", network, port)
		var stderr bytes.Buffer
		call.Stdin, call.Stderr = &in, &stderr
		out, err := call.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", network, err, &stderr)
		}
		back := frames(t, out)
		if len(back) != len(sent) {
			t.Fatalf("%s: %d of %d calls returned", network, len(back), len(sent))
		}
		for i, b := range back {
			if !bytes.Equal(b, sent[i]) {
				t.Fatalf("%s: sent\n%x\nback\n%x", network, sent[i], b)
			}
		}
	}
}

func serverOfC(t *testing.T, c string) {
	for _, network := range []string{"udp", "tcp"} {
		serve := exec.Command(c, "serve", network)
		out, err := serve.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := serve.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = serve.Process.Kill()
			_ = serve.Wait()
		})
		port, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		client, err := vrpc.Dial(t.Context(), network, "127.0.0.1:"+strings.TrimSpace(port),
			vrpc.WithAuthSys(vrpc.AuthSys{Machine: "here", UID: 1, GIDs: []uint32{2, 3}}))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		one, two := NewEveryversClient(client), NewEveryversManyClient(client)
		values := maker{rand.New(rand.NewPCG(13, 14))}
		for range 100 {
			want := values.every()
			got, err := one.Echo(t.Context(), want)
			if err != nil || !sameBytes(got, want) {
				t.Fatalf("%s: %v\nsent %+v\nback %+v", network, err, want, got)
			}
		}
		if n, err := one.Length(t.Context(), "hello"); err != nil || n != 5 {
			t.Error(network, n, err)
		}
		if p, err := two.Move(t.Context(), &Point{1, 2}, 3, "x"); err != nil || *p != (Point{4, -1}) {
			t.Error(network, p, err)
		}
		if err := client.Call(t.Context(), EVERYPROG, 7, 0, xdr.Void{}, xdr.Void{}); !errors.Is(err, vrpc.ErrProgMismatch) {
			t.Error(network, err)
		}
		if err := client.Call(t.Context(), EVERYPROG, 1, 77, xdr.Void{}, xdr.Void{}); !errors.Is(err, vrpc.ErrProcUnavail) {
			t.Error(network, err)
		}
		if err := client.Call(t.Context(), EVERYPROG, 1, EVERYPROC_ECHO, xdr.Void{}, xdr.Void{}); !errors.Is(err, vrpc.ErrGarbageArgs) {
			t.Error(network, err)
		}
	}
}
