package link

import (
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Where the data of an arriving message goes: into the export, or into the posted memory for the
// part that a posted redirection covers (see package redirect).

// position returns how far the current message has arrived, as an offset in the export. The caller
// holds rmu.
func (rs *Responder) position() uint64 {
	pos := rs.cur.off + rs.cur.arrived
	if rs.rx.hdr.Type != 0 {
		pos += uint64(rs.rx.hdr.Chunk) - uint64(rs.rx.need)
	}
	if invariant.Enabled {
		rs.checkPosition(pos)
	}
	return pos
}

// RecheckRedirect makes the link ask again where the next byte goes, for a redirection that was
// posted while a message arrives.
func (rs *Responder) RecheckRedirect(r *redirect.Exporter) {
	rs.rmu.Lock()
	if t := rs.cur.target; t != nil && t.Redirect == r && rs.rx.need > 0 {
		rs.rx.dropBuffer()
	}
	rs.rmu.Unlock()
}

// payloadBuffer returns the memory for the next of rest bytes of the chunk. It may be less; then it
// is called again. nil discards the bytes. The caller holds rmu.
func (rs *Responder) payloadBuffer(rest int) []byte {
	m := &rs.cur
	if m.target == nil {
		return nil
	}
	pos := rs.position()
	end := pos + uint64(rest)
	if r := m.target.Redirect; r != nil && !m.bytes {
		return rs.redirectedBuffer(r, pos, end)
	}
	return m.target.Mem[pos:end]
}

// redirectedBuffer returns the memory for bytes [pos, end) of the message, or for the first of
// them.
func (rs *Responder) redirectedBuffer(r *redirect.Exporter, pos, end uint64) []byte {
	m := &rs.cur
	to, claims := r.Place(rs, redirect.Message{Mem: m.target.Mem, Off: m.off, Size: m.size, Claimed: m.redirected}, pos, end)
	m.redirected = m.redirected || claims
	return to
}

// placeLastWord stores a message's last word where it belongs and ends the message's redirection.
// It returns where the word lies.
func (rs *Responder) placeLastWord(r *redirect.Exporter, off uint64, word uint32) []byte {
	at := rs.redirectedBuffer(r, off, off+shm.WordSize)
	storeLast(at, 0, word)
	r.MessageStored(rs, off+shm.WordSize)
	return at
}

// StopRedirect ends the redirection of the arriving message, if that has claimed r. Nothing is
// received meanwhile.
func (rs *Responder) StopRedirect(r *redirect.Exporter) {
	rs.rmu.Lock()
	defer rs.rmu.Unlock()
	if t := rs.cur.target; t != nil && t.Redirect == r {
		rs.abortRedirect()
	}
}

// abortRedirect ends the redirection of a message that ends in its middle. The caller holds rmu.
func (rs *Responder) abortRedirect() {
	t := rs.cur.target
	if t != nil && t.Redirect != nil && t.Redirect.Stop(rs, rs.position(), t.Mem) {
		rs.rx.dropBuffer()
	}
}
