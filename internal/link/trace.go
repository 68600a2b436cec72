package link

// Step is one step of data on its way, for the log of a program that was built
// with the tag vmmcdebug.
type Step struct {
	Op     string
	Link   uint64 // as this process numbers its links
	Handle uint32
	Seq    uint64 // of the message; of the notification where that is the step
	Off    uint64
	Size   uint64
}

// Trace sets who hears of each step, under locks of the link. It must come before
// the first link.
func (e *Engine) Trace(f func(Step)) { e.tracer = f }

// trace is called only where invariant.Enabled.
func (s *stream) trace(op string, handle uint32, seq, off, size uint64) {
	if f := s.e.tracer; f != nil {
		f(Step{op, s.id, handle, seq, off, size})
	}
}

func (m *Mapped) trace(op string, off, size int) {
	m.out.trace(op, m.handle, 0, uint64(off), uint64(size))
}

func (m *Mapped) traceSend(off int, src []byte, more [][]byte) {
	n := len(src)
	for _, b := range more {
		n += len(b)
	}
	m.trace("mapped send", off, n)
}

// traceNumber is of a message that was given its place.
func (o *Out) traceNumber(m *Message, seq uint64, size int) {
	op := "send"
	if m.Notify {
		op = "send with notification"
	}
	o.trace(op, m.Handle, seq, m.Off, uint64(size))
}

func (o *Out) traceFetch(op string, f *fetch) {
	if f.op != 0 {
		op += " atomic"
	} else {
		op += " get"
	}
	o.trace(op, f.handle, f.seq, f.off, f.size)
}

func (in *In) traceNote(n note) {
	handle := uint32(0)
	if n.target != nil {
		handle = n.target.Handle
	}
	in.trace("notify", handle, uint64(n.serial), n.off, 4)
}
