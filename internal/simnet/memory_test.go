package simnet

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// piped runs a test in a bubble with a connection in memory.
func piped(t *testing.T, there, back []Fault, f func(t *testing.T, a, b *End, c *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a, b, c := Pipe(there, back)
		defer c.Close()
		defer func() { _, _ = a.Close(), b.Close() }()
		f(t, a, b, c)
	})
}

func TestAnHourPassesAtOnce(t *testing.T) {
	piped(t, []Fault{{At: 3, Kind: Stall, For: time.Hour}}, nil, func(t *testing.T, a, b *End,
		_ *Conn,
	) {
		began := time.Now()
		if _, err := a.Write([]byte("123456")); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			bytes string
			after time.Duration
		}{{"123", 0}, {"456", time.Hour}} {
			got := make([]byte, 3)
			if _, err := io.ReadFull(b, got); err != nil || string(got) != want.bytes ||
				time.Since(began) != want.after {
				t.Errorf("%q after %v, %v", got, time.Since(began), err)
			}
		}
	})
}

// The end of the connection does not wait for the end of a stall.
func TestStallIsGivenUp(t *testing.T) {
	piped(t, []Fault{{Kind: Stall, For: time.Hour}}, nil, func(t *testing.T, a, _ *End, c *Conn) {
		began := time.Now()
		if _, err := a.Write([]byte("1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.Close(); time.Since(began) != 0 {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}

func TestResetInMemory(t *testing.T) {
	piped(t, []Fault{{At: 100, Kind: Reset}}, nil, func(t *testing.T, a, b *End, c *Conn) {
		if _, err := a.Write(make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
		<-c.Over()
		synctest.Wait()
		for name, e := range map[string]*End{"the writer": a, "the reader": b} {
			if n, err := e.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s reads %d bytes, %v", name, n, err)
			}
			if n, err := e.Write(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s writes %d bytes, %v", name, n, err)
			}
		}
	})
}

// An end that is cut off learns nothing, not even that the other end is closed.
func TestPartInMemory(t *testing.T) {
	piped(t, nil, []Fault{{At: 4, Kind: Part}}, func(t *testing.T, a, b *End, c *Conn) {
		if _, err := b.Write([]byte("12345678")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 8)
		if n, err := io.ReadFull(a, got[:4]); err != nil {
			t.Fatal(n, err)
		}
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		began := time.Now()
		_ = a.SetDeadline(began.Add(time.Hour))
		if n, err := a.Read(got); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(began) != time.Hour {
			t.Errorf("%d bytes after %v, %v", n, time.Since(began), err)
		}
		select {
		case <-c.Over():
			t.Error("the connection has ended")
		default:
		}
	})
}

func TestWaysEndOneByOne(t *testing.T) {
	piped(t, nil, nil, func(t *testing.T, a, b *End, c *Conn) {
		for _, way := range []struct{ from, to *End }{{a, b}, {b, a}} {
			select {
			case <-c.Over():
				t.Fatal("the connection has ended with its first way")
			default:
			}
			if _, err := way.from.Write([]byte("last")); err != nil {
				t.Fatal(err)
			}
			_ = way.from.CloseWrite()
			if got, err := io.ReadAll(way.to); err != nil || string(got) != "last" {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := way.from.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
				t.Errorf("a way that was ended: %v", err)
			}
		}
		<-c.Over()
	})
}

// A deadline holds for goroutines that wait already, too, and ends with the next one that is set.
func TestDeadlines(t *testing.T) {
	piped(t, nil, nil, func(t *testing.T, a, _ *End, _ *Conn) {
		for _, r := range []struct {
			name string
			set  func(time.Time) error
			do   func() error
		}{
			{"read", a.SetReadDeadline, func() error { _, err := a.Read(make([]byte, 1)); return err }},
			{"write", a.SetWriteDeadline, func() error {
				n, err := a.Write(make([]byte, 1<<20)) // no reader
				if n > 3*room {
					t.Errorf("%d bytes are under way", n)
				}
				return err
			}},
		} {
			began := time.Now()
			_ = r.set(began.Add(time.Minute))
			_ = r.set(began.Add(time.Hour))
			if err := r.do(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Hour {
				t.Errorf("%s: %v after %v", r.name, err, time.Since(began))
			}
			var timeout net.Error
			if err := r.do(); !errors.As(err, &timeout) || !timeout.Timeout() ||
				time.Since(began) != time.Hour {
				t.Errorf("%s: %v after %v", r.name, err, time.Since(began))
			}
			_ = r.set(time.Time{})
			done := make(chan error)
			go func() { done <- r.do() }()
			time.Sleep(24 * time.Hour)
			select {
			case err := <-done:
				t.Errorf("%s without a deadline: %v", r.name, err)
			default:
			}
			_ = r.set(time.Unix(1, 0))
			if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", r.name, err)
			}
			_ = r.set(time.Time{})
		}
	})
}

// A deadline that passes while it is changed is the new one.
func TestDeadlineIsChangedAsItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlow()
		f.cond.L.Lock()
		f.reading.set(f.cond, time.Now().Add(time.Minute))
		time.Sleep(time.Minute) // what the timer has started waits for the lock
		f.reading.set(f.cond, time.Now().Add(time.Hour))
		f.cond.L.Unlock()
		began := time.Now()
		if _, err := f.read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(began) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A goroutine that waits at an end learns that it is closed, and so does a writer to it.
func TestClose(t *testing.T) {
	piped(t, nil, nil, func(t *testing.T, a, b *End, c *Conn) {
		reads, writes := make(chan error), make(chan error)
		go func() { _, err := a.Read(make([]byte, 1)); reads <- err }()
		go func() { _, err := a.Write(make([]byte, 1<<20)); writes <- err }()
		synctest.Wait()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			select {
			case err := <-reads:
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("read: %v", err)
				}
			case err := <-writes:
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("write: %v", err)
				}
			}
		}
		if err := a.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if n, err := io.ReadAll(b); len(n) == 0 || len(n) > 3*room || err != nil {
			t.Errorf("%d bytes were sent before, %v", len(n), err)
		}
		for err := error(nil); err == nil; {
			_, err = b.Write(make([]byte, room)) // until the network has tried to pass it on
		}
		<-c.Over()
	})
}

func TestAddresses(t *testing.T) {
	piped(t, nil, nil, func(t *testing.T, a, b *End, _ *Conn) {
		if a.LocalAddr().String() != b.RemoteAddr().String() ||
			a.RemoteAddr().String() != b.LocalAddr().String() ||
			a.LocalAddr().String() == b.LocalAddr().String() {
			t.Error(a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
		}
	})
}
