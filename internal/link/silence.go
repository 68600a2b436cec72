package link

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// A side that says nothing: its node has died and nobody is left who could end the
// connection, or its process is stopped. The kernel gives up a connection whose far end
// does not acknowledge what was sent, or does not answer for as long when nothing is. An importer
// besides looks whether it is answered, which needs the far process.

// patience tells the kernel how long it may be silent; rmu is held, or nobody is there yet.
func (s *stream) patience() {
	if s.silence > 0 {
		unix.GiveUpAfter(s.fd, s.silence)
	}
}

// listening is what an importer knows of an exporter that owes it something.
type listening struct {
	heard  uint32 // as of the last look
	unsent int
	mute   time.Duration // since anything has changed
}

// awaits says whether the exporter owes anything; tmu is held.
func (o *Out) awaits() bool {
	return o.asked > o.acked.Load() || o.reads.Load() > 0 || o.tx.gone < o.tx.begun || o.craves
}

// silent is the reason for giving up a connection on which the exporter's machine has not acknowledged so
// many bytes.
func (o *Out) silent(unacked int) error {
	if unacked > 0 {
		return Gone("nothing was heard for %v of the exporter: its machine, or the network between, does not answer", o.silence)
	}
	return Gone("nothing was heard for %v of the exporter, whose machine has acknowledged all that was sent: "+
		"the process is stopped, or its machine or the network has failed since", o.silence)
}

// listen gives up a connection on which nothing was heard for too long. passed is the time
// since the last look, in which this process has run.
func (o *Out) listen(passed time.Duration) {
	o.rmu.Lock()
	defer o.rmu.Unlock()
	o.tmu.Lock()
	defer o.tmu.Unlock()
	l := &o.ear
	if o.fd < 0 || o.torn.Load() || !o.awaits() || l.heard != o.heard {
		*l, o.craves = listening{heard: o.heard}, false
		return
	}
	// Where the network is slow, or much is on its way, what goes out shows that somebody is there.
	if n := unix.Unsent(o.fd); n != l.unsent {
		l.unsent, l.mute = n, 0
		return
	}
	if l.mute += passed; l.mute >= o.silence {
		o.lose(o.silent(l.unsent))
	}
}
