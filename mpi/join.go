package mpi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Two programs that join tell each other random bytes by their socket. The one with the larger ones opens a
// port, and tells its name. The other one connects, and tells whether it has: so neither waits for one that
// has failed.

// joinMagic begins what a program tells. It has the version.
const joinMagic = "vmmcjoin1"

// joinRandom is how many random bytes follow.
const joinRandom = 16

// maxPortName is the longest name of a port.
const maxPortName = 1023

// Answers of the program that connects.
const (
	joinFailed = 0
	joinMade   = 1
)

// Join makes an intercommunicator of this rank and the program at the other end of a socket, which calls Join
// too (MPI_Comm_join, chapter Process Creation and Management). Both are on nodes of one cluster, as for
// [Comm.Connect]. c says only whose job this rank is of. Nothing else may use the socket meanwhile. Join
// leaves it open, and has read nothing beyond what the other Join has written. What holds for the
// intercommunicator is said by [Comm.Accept].
//
// Errors: [ErrArg]: the socket is nil; [ErrOther]: it has failed, or the other program speaks otherwise, or
// has failed to connect; [ErrCanceled]: the context has ended. The socket is of no more use then.
//
// Experimental: it may change in any release.
func (c *Comm) Join(ctx context.Context, socket net.Conn) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_join"
	switch {
	case ctx == nil:
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	case socket == nil:
		return nil, fail(call, "fd", ErrArg, "the socket is nil")
	}
	if err := c.live(call); err != nil {
		return nil, err
	}
	// The end of ctx alone sets a deadline, so that a read which it ends finds the context ended.
	if err := socket.SetDeadline(time.Time{}); err != nil {
		return nil, fail(call, "fd", ErrOther, "the socket takes no deadline: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })
	inter, err := c.j.home().self.Shadow().join(ctx, socket)
	if stop() {
		_ = socket.SetDeadline(time.Time{}) // It is as it was.
	}
	if err != nil && ctx.Err() != nil {
		return nil, fail(call, "", ErrCanceled, "the other program has not joined: %w", errors.Join(context.Cause(ctx), err))
	}
	if err != nil {
		return nil, wrapAs(call, err)
	}
	return inter.like(c), nil
}

// join exchanges random bytes, and then makes one side of the connection. c is the communicator of this rank
// alone.
func (c *Comm) join(ctx context.Context, socket net.Conn) (*Comm, error) {
	mine := make([]byte, len(joinMagic)+joinRandom)
	copy(mine, joinMagic)
	_, _ = rand.Read(mine[len(joinMagic):]) // never fails
	if _, err := socket.Write(mine); err != nil {
		return nil, joinError("write to", err)
	}
	theirs := make([]byte, len(mine))
	if _, err := io.ReadFull(socket, theirs); err != nil {
		return nil, joinError("read from", err)
	}
	if string(theirs[:len(joinMagic)]) != joinMagic {
		return nil, &Error{Arg: "fd", Class: ErrOther, Err: errors.New("the other program does not join, or is of another version of vmmc")}
	}
	switch a, b := string(mine), string(theirs); {
	case a > b:
		return c.joinFirst(ctx, socket)
	case a < b:
		return c.joinSecond(ctx, socket)
	}
	return nil, &Error{Arg: "fd", Class: ErrOther, Err: errors.New("the other end of the socket is this program itself")}
}

func joinError(what string, err error) error {
	return &Error{Arg: "fd", Class: ErrOther, Err: fmt.Errorf("%s the socket: %w", what, err)}
}

// joinFirst opens a port, and accepts the other program.
func (c *Comm) joinFirst(ctx context.Context, socket net.Conn) (inter *Comm, err error) {
	port, bad := c.OpenPort(ctx)
	told := binary.BigEndian.AppendUint16(nil, uint16(len(port))) // 0: this rank has failed
	if _, err := socket.Write(append(told, port...)); err != nil {
		bad = errors.Join(bad, joinError("write to", err))
	}
	if port == "" {
		return nil, bad
	}
	defer func() { err = errors.Join(err, c.ClosePort(port)) }()
	if bad != nil {
		return nil, bad
	}
	accepting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := make(chan struct{})
	go func() {
		defer close(over)
		answer := []byte{joinFailed}
		if _, err := io.ReadFull(socket, answer); err != nil {
			stop(joinError("read from", err))
		} else if answer[0] != joinMade {
			stop(&Error{Class: ErrOther, Err: errors.New("the other program does not reach this one: its error says why")})
		}
	}()
	inter, err = c.Accept(accepting, port, 0)
	if err != nil && accepting.Err() != nil && ctx.Err() == nil {
		err = context.Cause(accepting)
	}
	if err == nil {
		<-over // The other one tells it, or is gone.
		if accepting.Err() != nil && ctx.Err() == nil {
			inter, err = nil, context.Cause(accepting)
		}
	}
	return inter, err
}

// joinSecond connects to the port of the other program.
func (c *Comm) joinSecond(ctx context.Context, socket net.Conn) (*Comm, error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(socket, head); err != nil {
		return nil, joinError("read from", err)
	}
	n := binary.BigEndian.Uint16(head)
	if n == 0 || n > maxPortName {
		return nil, &Error{Class: ErrOther, Err: errors.New("the other program has opened no port: its error says why")}
	}
	port := make([]byte, n)
	if _, err := io.ReadFull(socket, port); err != nil {
		return nil, joinError("read from", err)
	}
	inter, err := c.Connect(ctx, string(port), 0)
	answer := []byte{joinMade}
	if err != nil {
		answer[0] = joinFailed
	}
	if _, failed := socket.Write(answer); failed != nil && err == nil {
		err = joinError("write to", failed)
	}
	return inter, err
}
