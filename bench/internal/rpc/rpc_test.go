package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/bench/internal/rpc"
)

// What vmmc bench asks a peer is answered, on both paths.
func TestPeer(t *testing.T) {
	for _, path := range []string{"local", "remote"} {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r, w := io.Pipe()
			in, end := io.Pipe()
			served := make(chan error, 1)
			go func() { served <- rpc.Peer(ctx, []string{"serve", path, "127.0.0.1"}, in, w) }()
			at, err := bufio.NewReader(r).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := rpc.Peer(ctx, []string{"call", strings.TrimSpace(at)}, strings.NewReader("3\n5\n"), &out); err != nil {
				t.Error(err)
			}
			d := json.NewDecoder(&out)
			for _, want := range []int{3, 5} {
				var took []int64
				if err := d.Decode(&took); err != nil || len(took) != want || took[0] <= 0 {
					t.Errorf("%v, %v", took, err)
				}
			}
			_ = end.Close()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	if err := rpc.Peer(t.Context(), []string{"sing"}, strings.NewReader(""), io.Discard); err == nil {
		t.Error("it sings")
	}
}

func TestCalls(t *testing.T) {
	for _, kind := range rpc.Kinds() {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(kind+" "+network, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				addr := "127.0.0.1"
				if network == "unix" {
					addr = filepath.Join(t.TempDir(), "s")
				}
				r, w := io.Pipe()
				served := make(chan error, 1)
				serving, stop := context.WithCancel(ctx)
				go func() { served <- rpc.Serve(serving, kind, network, addr, w) }()
				at, err := bufio.NewReader(r).ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				if err := rpc.Call(ctx, kind, network, strings.TrimSpace(at), []string{"call:64:20", "callbw:5000000:10"}, &out); err != nil {
					t.Error(err)
				}
				if s := out.String(); strings.Count(s, "\n") != 2 || !strings.Contains(s, `"size":64,"min":`) || !strings.Contains(s, `"size":5000000,"mbps":`) {
					t.Errorf("printed %q", s)
				}
				for _, bad := range []string{"", "call", "call:0:1", "call:1:x", "sing:1:1"} {
					if err := rpc.Call(ctx, kind, network, strings.TrimSpace(at), []string{bad}, io.Discard); err == nil {
						t.Errorf("work %q was done", bad)
					}
				}
				stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		}
	}
}
