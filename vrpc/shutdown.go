package vrpc

import (
	"context"
	"io"
	"time"
)

// past is a time of which everything is over that waits until it.
var past = time.Unix(1, 0)

// Shutdown takes no more connections and no more calls, lets the procedures that run end, sends what they
// have answered and closes the server. SunRPC has no word for that: a call that arrives meanwhile is
// lost with its connection. If ctx ends first the server is closed as by Close, and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.stop()
	for c := range s.open {
		quiet(c)
	}
	s.mu.Unlock()
	over := make(chan struct{})
	go func() {
		s.work.Wait()
		close(over)
	}()
	var err error
	select {
	case <-over:
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = s.Close() // it has no other error than nil
	<-over
	return err
}

// quiet has c take no more.
func quiet(c io.Closer) {
	switch c := c.(type) {
	case *remote: // it has seen it itself
	case interface{ SetReadDeadline(t time.Time) error }: // replies are still to be written
		_ = c.SetReadDeadline(past) // one that is closed has nothing to read either
	default:
		_ = c.Close()
	}
}
