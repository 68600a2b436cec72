package vrpc

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// maxDatagram is the most that UDP carries.
const maxDatagram = 65507

// ServePacket serves the calls that come in datagrams until c fails or the server is closed, which
// closes c too. A call that comes twice is run once, as long as it is remembered: about the last
// 1024 calls, for two minutes. The error is never nil; after Close or Shutdown it is ErrClosed.
func (s *Server) ServePacket(c net.PacketConn) error {
	c = foreign.Packets(c)
	if err := s.track(c); err != nil {
		_ = c.Close()
		return err
	}
	defer s.untrack(c)
	p := &packets{s: s, conn: newDatagrams(c), seen: newDuplicateCache()}
	defer p.calls.Wait()
	b := make([]byte, maxDatagram+1)
	for pause := time.Duration(0); ; {
		n, from, err := p.conn.read(b)
		switch {
		case err == nil && n >= rpcmsg.LeastCall && from.addr != nil:
			// a unix socket without a name gets no answer
			pause = 0
			if !p.take(b[:n], from) {
				return ErrClosed
			}
		case err == nil:
		case s.acceptCtx.Err() != nil:
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return err
		default: // of one sender, mostly
			pause = min(max(2*pause, time.Millisecond), time.Second)
			s.logger.Error("vrpc: receive", "address", c.LocalAddr(), "err", err)
			if !timeout.Sleep(s.acceptCtx, pause) {
				return ErrClosed
			}
		}
	}
}

// packets is a socket of a server.
type packets struct {
	s     *Server
	conn  *datagrams
	seen  *duplicateCache
	calls sync.WaitGroup
}

// take answers one datagram on a goroutine of its own. It returns false when the server is closed.
func (p *packets) take(b []byte, from *sender) bool {
	name, reply, run := p.seen.begin(from.addr, binary.BigEndian.Uint32(b), b)
	if !run {
		if reply != nil {
			p.send(reply, from)
		}
		return true
	}
	if !p.s.begin() {
		return false
	}
	in := getBuffer()
	in.b = append(in.b, b...)
	p.calls.Go(func() {
		defer in.release()
		out := getBuffer()
		defer out.release()
		p.s.answer(&caller{base: p.s.ctx, addr: from.addr}, in.b, out)
		p.s.done()
		if out.none {
			return
		}
		reply := out.b
		if len(reply) > p.s.datagram {
			reply = tooLong(reply)
		}
		p.seen.end(name, reply)
		p.send(reply, from)
	})
	return true
}

// tooLong is what is said instead of a reply that no datagram holds.
func tooLong(reply []byte) []byte {
	r := rpcmsg.Reply{XID: binary.BigEndian.Uint32(reply), Outcome: rpcmsg.SystemErr}
	return appendReply(reply[:0], &r)
}

func (p *packets) send(b []byte, to *sender) {
	if err := p.conn.write(b, to); err != nil && !errors.Is(err, net.ErrClosed) {
		p.s.logger.Error("vrpc: reply", "peer", to.addr, "err", err)
	}
}
