package link

// Terms are what both sides of a link have agreed on in its hello.
type Terms struct {
	Checked bool // each payload has a checksum
}

// agree sets what holds before the first frame.
func (s *stream) agree(t Terms) { s.tx.check, s.rx.check = t.Checked, t.Checked }

// Terms are those of the link.
func (s *stream) Terms() Terms { return Terms{Checked: s.tx.check} }

// Damaged is how many frames came with a checksum that was wrong.
func (s *stream) Damaged() uint64 { return s.rx.wrong.Load() }
