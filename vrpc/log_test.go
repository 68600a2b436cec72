package vrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// logged is what a logger has written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// lines are those that have all the words.
func lines(text string, words ...string) (n int) {
	for line := range strings.Lines(text) {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			n++
		}
	}
	return n
}

// What a caller is not told of its call, the server's log has: by default that of the program.
func TestFailuresAreLogged(t *testing.T) {
	failing := func(_ context.Context, b []byte) ([]byte, error) {
		switch string(b) {
		case "fail":
			return nil, fmt.Errorf("the table has no row %d", 7)
		case "wrapped":
			return nil, fmt.Errorf("row 8: %w", errors.ErrUnsupported)
		case "auth":
			return nil, &vrpc.AuthError{Stat: vrpc.AuthFailed}
		case "garbage":
			return nil, vrpc.ErrGarbageArgs
		case "unavailable":
			return nil, vrpc.ErrProcUnavail
		}
		return b, nil
	}
	var log logged
	logger := slog.New(slog.NewTextHandler(&log, nil))
	before := slog.Default()
	slog.SetDefault(logger)
	byDefault := serve(t, failing)
	slog.SetDefault(before)
	var own logged
	byOption := serve(t, failing, vrpc.WithServerLogger(slog.New(slog.NewTextHandler(&own, nil))))
	everywhere(t, func(t *testing.T, network string) {
		for s, log := range map[*served]*logged{byDefault: &log, byOption: &own} {
			c := s.dial(t, network)
			log.take()
			for _, r := range []struct {
				call string
				want string // in the log, where there is a line
			}{
				{"fail", "the table has no row 7"},
				{"wrapped", "row 8: unsupported operation"},
				{"auth", ""},
				{"garbage", ""},
				{"unavailable", ""},
				{"fine", ""},
			} {
				_, _ = callBytes(t.Context(), c, []byte(r.call))
				text := log.take()
				if want := r.want != ""; strings.Count(text, "\n") != map[bool]int{true: 1}[want] ||
					want && lines(text, "level=ERROR", "procedure failed", "service=BYTES", "procedure=BYTES", "peer=", r.want) != 1 {
					t.Errorf("%q is logged as %q, wanted %q", r.call, text, r.want)
				}
			}
			err := c.Call(t.Context(), everyxdr.EVERYPROG, bytesVers, 1, xdr.Void{}, xdr.Void{})
			if text := log.take(); !errors.Is(err, vrpc.ErrGarbageArgs) || lines(text, "level=WARN", "cannot be decoded", "ends too early") != 1 {
				t.Errorf("arguments that are none: %v, logged as %q", err, text)
			}
		}
	})
}

// A client that has a procedure fail again and again does not fill the disk.
func TestLogIsBounded(t *testing.T) {
	const calls = 1000
	var log logged
	s := serve(t, func(context.Context, []byte) ([]byte, error) {
		return nil, errors.New("no")
	}, vrpc.WithServerLogger(slog.New(slog.NewTextHandler(&log, nil))))
	c := s.dial(t, "tcp")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range calls / 10 {
				_, _ = callBytes(t.Context(), c, []byte("x"))
			}
		})
	}
	wg.Wait()
	if n := strings.Count(log.take(), "\n"); n < 100 || n > calls/2 {
		t.Errorf("%d calls that failed are %d lines", calls, n)
	}
}

// An error says which procedure of which program failed, by its name and its number, and of which
// server.
func TestErrorsNameTheProcedure(t *testing.T) {
	s := serve(t, func(context.Context, []byte) ([]byte, error) { return nil, vrpc.ErrProcUnavail })
	everywhere(t, func(t *testing.T, network string) {
		c := s.dial(t, network)
		e := everyxdr.NewEveryversClient(c)
		_, paint := e.Paint(t.Context(), everyxdr.RED)
		_, list := e.List(t.Context(), nil)
		_, move := everyxdr.NewEveryversManyClient(c).Move(t.Context(), &everyxdr.Point{}, 0, "")
		_, unnamed := callBytes(t.Context(), c, nil)
		for _, r := range []struct {
			err  error
			name string
			want string
		}{
			{paint, "EVERYPROG EVERYVERS EVERYPROC_PAINT", "call of EVERYPROG EVERYVERS EVERYPROC_PAINT (program 536872017 version 1 procedure 3) at "},
			{list, "EVERYPROG EVERYVERS EVERYPROC_LIST", "procedure 4) at "},
			{move, "EVERYPROG EVERYVERS_MANY EVERYPROC_MOVE", "version 2 procedure 2) at "},
			{unnamed, "", "call of program 536872017 version 3 procedure 1 at "},
		} {
			var e *vrpc.Error
			if !errors.As(r.err, &e) || e.Name != r.name || !strings.Contains(e.Error(), r.want) {
				t.Errorf("%v, named %q; wanted %s", r.err, e.Name, r.want)
			}
		}
		if vrpc.Named(nil, "x") != nil {
			t.Error("no error has become one")
		}
		other := errors.New("other")
		if err := vrpc.Named(other, "x"); err != other { //nolint:errorlint // it is to be the same
			t.Errorf("another error has become %v", err)
		}
	})
}
