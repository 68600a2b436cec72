package vrpc_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/vrpc"
)

// A server that is shut down answers the calls that run, and takes no others.
func TestShutdown(t *testing.T) {
	everywhere(t, func(t *testing.T, network string) {
		run, hold := make(chan struct{}), make(chan struct{})
		s := serve(t, func(ctx context.Context, b []byte) ([]byte, error) {
			run <- struct{}{}
			<-hold
			return b, ctx.Err()
		})
		c := s.dial(t, network)
		idle := everyxdr.NewEveryversClient(s.dial(t, network))
		const calls = 3
		long := bytes.Repeat([]byte("long"), 2000)
		answers := make(chan error, calls)
		for range calls {
			go func() {
				b, err := callBytes(t.Context(), c, long)
				if err == nil && !bytes.Equal(b, long) {
					err = errors.New("another answer")
				}
				answers <- err
			}()
			<-run
		}
		over := make(chan error, 1)
		go func() { over <- s.Shutdown(t.Context()) }()
		// Nothing tells a client by UDP that the server has gone.
		for err := error(nil); network != "udp" && !errors.Is(err, vrpc.ErrLost); {
			if err = idle.Null(t.Context()); err != nil && !errors.Is(err, vrpc.ErrLost) {
				t.Errorf("a call of a server that is shut down: %v", err)
			}
		}
		select {
		case err := <-over:
			t.Errorf("it has ended while calls run: %v", err)
		default:
		}
		close(hold)
		for range calls {
			if err := <-answers; err != nil {
				t.Errorf("a call that ran: %v", err)
			}
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// A client whose server has gone closes without an error, as often as it likes.
func TestCloseAfterTheServer(t *testing.T) {
	everywhere(t, func(t *testing.T, network string) {
		s := serve(t, func(_ context.Context, b []byte) ([]byte, error) { return b, nil })
		c := s.dial(t, network)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for idle := everyxdr.NewEveryversClient(c); network != "udp"; {
			if err := idle.Null(t.Context()); err != nil {
				break
			}
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Where the time is over, the procedures are told to end.
func TestShutdownInTime(t *testing.T) {
	everywhere(t, func(t *testing.T, network string) {
		run := make(chan struct{})
		s := serve(t, func(ctx context.Context, _ []byte) ([]byte, error) {
			close(run)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c := s.dial(t, network)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		answer := make(chan error, 1)
		go func() {
			_, err := callBytes(ctx, c, nil)
			answer <- err
		}()
		<-run
		over, end := context.WithCancel(t.Context())
		end()
		if err := s.Shutdown(over); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stop()
		if err := <-answer; err == nil {
			t.Error("a call was answered that was told to end")
		}
	})
}
