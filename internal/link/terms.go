package link

import (
	"context"
	"time"
)

// Terms are what both sides of a link have agreed on in its hello.
type Terms struct {
	From    string // names the far end on one node, for package foreign
	Checked bool   // each payload has a checksum
	Cipher  Cipher // of the first connection; nil: the link is in clear

	// How long the link may be without a connection before it fails; 0: it fails with
	// the connection.
	Limit  time.Duration
	News   func(up bool, why error) // of a connection that was lost, and of a link that goes on; may be called under its locks
	Redial Redial                   // makes another connection; the importing side's alone

	// Whether the importing process is known to have ended, or why that could not be asked; the exporting side's alone.
	Departed func(context.Context) (bool, error)

	// How long nothing may be heard of the other side, of which something is awaited,
	// before the connection is given up; 0: for ever.
	Silence time.Duration
}

// agree sets what holds before the first frame.
func (s *stream) agree(t Terms) {
	s.source = t.From
	s.tx.check, s.rx.check, s.limit, s.departed, s.silence = t.Checked, t.Checked, t.Limit, t.Departed, t.Silence
	s.minds = t.Limit > 0 || t.Silence > 0
	s.encrypted = t.Cipher != nil
	s.rx.buffered = s.rx.check || s.encrypted
	s.secure(t.Cipher)
	if s.news = t.News; s.news == nil {
		s.news = func(bool, error) {}
	}
	s.life, s.die = context.Background(), func() {}
	if t.Limit > 0 {
		s.life, s.die = context.WithCancel(s.life)
	}
}

// Terms are those of the link.
func (s *stream) Terms() Terms { return Terms{Checked: s.tx.check, Limit: s.limit} }

// Encrypted says whether all connections of the link are.
func (s *stream) Encrypted() bool { return s.encrypted }

// Resumed is how often the link lost its connection, and how often it was resumed.
func (s *stream) Resumed() (losses, resumptions uint64) { return s.losses.Load(), s.resumptions.Load() }

// Damaged is how many frames came with a checksum that was wrong.
func (s *stream) Damaged() uint64 { return s.rx.wrong.Load() }
