//go:build linux

package nodeproto

import (
	"context"
	"io"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// FuzzConn throws packets with descriptors at a connection: it never panics,
// always ends when its peer goes, and closes all it was sent. The input is
// packets one after another: a byte's low three bits say how many descriptors go
// with it, two bytes how long it is.
func FuzzConn(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := sockets(t)
		fd, w := pipe(t)
		l := NewConn(b, func(_ context.Context, _ Method, body []byte, fds []int) (any, []int, error) {
			defer closeAll(fds)
			r, err := Decode[ImportRequest](body)
			return r, nil, err
		})
		go func() { _, _ = io.Copy(io.Discard, a) }() // its answers; ends with a
		asked := make(chan struct{})
		go func() { // an answer may be among the packets
			out, _ := l.Call(t.Context(), Import, Empty{}, nil, nil)
			closeAll(out)
			close(asked)
		}()
		for len(in) >= 3 {
			fds := make([]int, in[0]&7)
			for i := range fds {
				fds[i] = fd
			}
			n := min(int(in[1])|int(in[2])<<8, len(in)-3)
			if _, _, err := a.WriteMsgUnix(in[3:3+n], unix.Rights(fds), nil); err != nil {
				break // it was cut off already
			}
			in = in[3+n:]
		}
		closeAll([]int{fd})
		a.Close()
		ended(t, l)
		if l.Err() == nil {
			t.Error("it ended without a reason")
		}
		<-asked
		testutil.PipeClosed(t, w)
	})
}
