package link

import "github.com/vmmc-go/vmmc/internal/unix"

// Cipher is what the bytes of an encrypted connection go through, between a link and its
// socket. One goroutine sends while one receives.
type Cipher interface {
	// Send sends what is in pieces. n says how many bytes have gone, 0 that the socket has
	// no room; the next call has those behind them, unchanged, and maybe more.
	Send(fd int, pieces ...[]byte) (n int, err error)

	// Recv receives as [unix.IO.Recv] does, and with -1 in place of the descriptor what the
	// cipher has already. An error that is [wire.ErrCorrupt] is of bytes
	// that the far end has not sent.
	Recv(fd int, b []byte) (n int, err error)

	// Kept says that Recv may have something that is not in the socket any more.
	Kept() bool

	// Drop ends the use of it.
	Drop()
}

// encrypting is a cipher, and room for what it is given: of a call by an interface the
// compiler cannot tell that it keeps nothing.
type encrypting struct {
	Cipher
	pieces [unix.MaxPieces][]byte
}

// secure has the next connection go through c, or in clear; rmu and tmu are held, or nobody
// is there yet.
func (s *stream) secure(c Cipher) {
	if c == nil {
		return
	}
	s.rx.cipher, s.rx.special = c, true
	s.tx.cipher = &encrypting{Cipher: c}
}

// encrypt makes one call for all that is under way.
func (t *transmitter) encrypt(fd int) (n int, err error) {
	c, k := t.cipher, 0
	for i := range t.parts[t.first:t.count] {
		p := &t.parts[t.first+i]
		c.pieces[k], c.pieces[k+1] = p.head, p.pay
		k += 2
	}
	n, err = c.Send(fd, c.pieces[:k]...)
	clear(c.pieces[:k])
	return n, err
}
