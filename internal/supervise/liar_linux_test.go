package supervise

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// A supervisor is its user's, and may answer for ever: that there is more, with nothing new.
// A client that reads its pages comes to an end.
func TestSupervisorWithoutAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		page Listing
		want error
	}{
		"the same again":   {Listing{Programs: []Program{{PID: 7}}, More: true}, code.Protocol},
		"out of order":     {Listing{Programs: []Program{{PID: 9}, {PID: 8}}, More: true}, code.Protocol},
		"twice":            {Listing{Programs: []Program{{PID: 9}, {PID: 9}}, More: true}, code.Protocol},
		"nothing and more": {Listing{More: true}, nil},
	} {
		dir := t.TempDir()
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, socketFile), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan *nodeproto.Conn, 1)
		go func() {
			nc, err := l.AcceptUnix()
			if err != nil {
				close(served)
				return
			}
			served <- nodeproto.NewConn(nc, func(_ context.Context, m nodeproto.Method, _ []byte, _ []int) (any, []int, error) {
				if m == List {
					return c.page, nil, nil
				}
				return State{Base: "/"}, nil, nil
			})
		}()
		d, err := unix.OpenPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Dial(t.Context(), d, uint32(os.Getuid()), Greeting{"s", "m"})
		_ = d.Close()
		if err != nil {
			t.Fatal(err)
		}
		r, pages := ListRequest{}, 0
		for more := true; more && err == nil && pages < 3; pages++ {
			var got Listing
			if got, err = s.List(t.Context(), r); err == nil && len(got.Programs) > 0 {
				r.After = got.Programs[len(got.Programs)-1].PID
			}
			more = got.More
		}
		if !errors.Is(err, c.want) || pages > 2 {
			t.Errorf("%s: %v after %d pages, want %v", name, err, pages, c.want)
		}
		s.Close()
		_ = l.Close()
		if conn := <-served; conn != nil {
			conn.Close()
			<-conn.Done()
		}
	}
}
