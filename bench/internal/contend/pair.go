package contend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/bench/internal/place"
)

// pair runs a server on the far side and a client of it on the near side, for programs that do not
// tell when they can be reached: the client is tried again until it is not refused at once.
func (k *kit) pair(
	ctx context.Context, server, client func(side int, port string) *exec.Cmd,
) ([]byte, error) {
	port, err := k.at.Port()
	if err != nil {
		return nil, err
	}
	s := server(place.Far, port)
	var said strings.Builder
	s.Stdout, s.Stderr = &said, &said
	if err := s.Start(); err != nil {
		return nil, err
	}
	over := make(chan struct{})
	go func() {
		_ = s.Wait() // what it said is told where its client fails
		close(over)
	}()
	var out []byte
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		started := time.Now()
		out, err = output(client(place.Near, port))
		if err == nil || ctx.Err() != nil || time.Since(started) > time.Second ||
			time.Since(begun) > 5*time.Second {
			break
		}
	}
	// A server that serves one client ends by itself; asking it to end is for those that do not.
	patient := time.NewTimer(200 * time.Millisecond)
	defer patient.Stop()
	select {
	case <-over:
	case <-patient.C:
		_ = s.Cancel()
		<-over
	}
	if err != nil {
		return nil, fmt.Errorf("%w; its server said: %s", err, lastLines(said.String()))
	}
	return out, nil
}

// served runs a server of ours, which prints its port first, and then a client. end stops a server
// that serves until it is asked to end.
func (k *kit) served(
	ctx context.Context, server *exec.Cmd, client func(port string) *exec.Cmd, end bool,
) (out []byte, err error) {
	var errs strings.Builder
	server.Stderr = &errs
	from, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	port, err := bufio.NewReader(from).ReadString('\n')
	if err == nil {
		out, err = output(client(strings.TrimSpace(port)))
	}
	if err != nil || end {
		_ = server.Cancel()
	}
	if over := server.Wait(); over != nil && err == nil && !end {
		err = over
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Err(), errors.New(lastLines(errs.String())))
	}
	return out, nil
}
