package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// What is watched is what was played.
func TestMirror(t *testing.T) {
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var ps [2]*vmmc.Process
	for i := range ps {
		if ps[i], err = vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket())); err != nil {
			t.Fatal(err)
		}
		defer ps[i].Close()
	}
	r, w := io.Pipe()
	var watched bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- watch(t.Context(), ps[0], io.MultiWriter(&watched, w), true)
	}()
	var to string
	var pid vmmc.PID
	if _, err := fmt.Fscanf(r, "mirror run %s %d\n", &to, &pid); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	var played bytes.Buffer
	if err := run(t.Context(), ps[1], &played, ps[0].Node(), pid, 300, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.Close()
	sum := regexp.MustCompile(`checksum is (\w+)`)
	a, b := sum.FindSubmatch(played.Bytes()), sum.FindSubmatch(watched.Bytes())
	if a == nil || b == nil || !bytes.Equal(a[1], b[1]) {
		t.Errorf("played:\n%s\nwatched:\n%s", &played, &watched)
	}
	t.Logf("%s%s", &played, &watched)
	if !bytes.Contains([]byte(draw(board(make([]byte, size), 1))), []byte("\n")) {
		t.Error("nothing is drawn")
	}
}
