package link

import (
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Messages are acknowledged after many, so the last ones of a busy time would be kept for
// ever. Where nothing more comes, an acknowledgement is asked for, and then nothing is kept.
const probeInterval = 10 * time.Millisecond

// tailProber are the importing sides that keep anything, or to which anything is owed.
type tailProber struct {
	mu   sync.Mutex
	list []*Requester
	more chan struct{}
}

// schedule sees to it that o does not keep what it has for ever, and does not wait for ever
// for what is owed; its tmu is held.
func (d *tailProber) schedule(rq *Requester) {
	rq.probeScheduled = true
	d.mu.Lock()
	d.list = append(d.list, rq)
	d.mu.Unlock()
	select {
	case d.more <- struct{}{}:
	default:
	}
}

func (d *tailProber) run(stop <-chan struct{}) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-d.more:
		case <-stop:
			return
		}
		for left, last := true, time.Now(); left; {
			t.Reset(probeInterval)
			select {
			case <-t.C:
			case <-stop:
				return
			}
			// A process that was stopped has not listened meanwhile.
			left = d.probeAll(min(time.Since(last), 10*probeInterval))
			last = time.Now()
		}
	}
}

func (d *tailProber) probeAll(passed time.Duration) (left bool) {
	d.mu.Lock()
	list := d.list
	d.list = nil
	d.mu.Unlock()
	keep := list[:0]
	for _, rq := range list {
		if rq.probe(passed) {
			keep = append(keep, rq)
		}
	}
	d.mu.Lock() // others have come meanwhile
	d.list = append(keep, d.list...)
	left = len(d.list) > 0
	d.mu.Unlock()
	return left
}

// scheduleProbe has the tailProber look after the link, which keeps or awaits something; tmu is held.
func (rq *Requester) scheduleProbe() {
	if !rq.probeScheduled {
		rq.e.tailProber.schedule(rq)
	}
}

// creditProbeInterval is how often notification credits are asked for that somebody waits for. The exporter says by itself
// when it returns some, once; of a frame that was lost with nothing behind it nobody would learn, nor would anybody
// notice that an exporter says nothing which owes nothing else.
const creditProbeInterval = time.Second

// addCreditWaiters counts who wait for notification credits of a link between nodes.
func (rq *Requester) addCreditWaiters(more int) {
	if rq.pages != nil || !rq.needsProbes {
		return
	}
	rq.tmu.Lock()
	if rq.creditWaiters += more; more > 0 {
		rq.scheduleProbe()
	}
	rq.tmu.Unlock()
}

// probeCredits does so when it is time to; tmu is held. passed is the time since the last call.
func (rq *Requester) probeCredits(passed time.Duration) {
	if rq.creditWaiters == 0 || rq.disconnected.Load() {
		rq.creditProbePending = false
		return
	}
	if r := rq.creditsReturned.Load(); r != rq.lastCredits { // waits may be many short ones, which together bring nothing
		rq.lastCredits, rq.creditWaitTime = r, 0
	}
	if rq.creditWaitTime += passed; rq.creditWaitTime < creditProbeInterval {
		return
	}
	// A question that is not answered is not asked again where the silence is watched, which the question would break: what
	// is not acknowledged yet would be another number of bytes at each look (see listen). Nor is one put behind another.
	if (!rq.creditProbePending || rq.silenceLimit == 0) && rq.nothingQueued() {
		rq.creditWaitTime, rq.creditProbePending = 0, true
		rq.tx.control = append(rq.tx.control, wire.Header{Type: wire.Ping})
		rq.pump()
	}
}

// writerActive says whether somebody writes now, who is not idle: to wait until he is done would have him wake a thread.
func (rq *Requester) writerActive() bool {
	if !rq.tmu.TryLock() {
		return true
	}
	rq.tmu.Unlock()
	return false
}

// probe asks for an acknowledgement if nothing was sent since the last time, and says
// whether anything is kept or awaited still.
func (rq *Requester) probe(passed time.Duration) (more bool) {
	if passed += rq.busyTime; passed < 8*probeInterval && rq.writerActive() {
		rq.busyTime = passed
		return true
	}
	rq.busyTime = 0
	if rq.silenceLimit > 0 {
		rq.checkSilence(passed)
	}
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	rq.probeCredits(passed)
	written := rq.writtenSeq.Load()
	switch {
	case rq.failed.Load():
	case rq.reconnectLimit == 0:
		if rq.awaitsPeer() || rq.midMessage || rq.creditWaiters > 0 {
			return true
		}
	case rq.ackedSeq.Load() < rq.lastSeq.Load():
		if written == rq.probedSeq && rq.ackRequested < written && len(rq.retransmits) == 0 && !rq.disconnected.Load() {
			rq.requestAck()
			rq.pump()
		}
		rq.probedSeq = written
		return true
	case rq.awaitsPeer() || rq.creditWaiters > 0: // what is acknowledged is not answered for that
		return true
	}
	rq.unacked.trim(rq.ackedSeq.Load())
	rq.probeScheduled = false
	return false
}

// A side that says nothing: its node has died and nobody is left who could end the
// connection, or its process is stopped. The kernel gives up a connection whose far end
// does not acknowledge what was sent, or does not answer for as long when nothing is. An importer
// besides looks whether it is answered, which needs the far process.

// setKernelTimeout tells the kernel how long it may be silent; rmu is held, or nobody is there yet.
func (s *stream) setKernelTimeout() {
	if s.silenceLimit > 0 {
		unix.GiveUpAfter(s.fd, s.silenceLimit)
	}
}

// silenceDetector is what an importer knows of an exporter that owes it something.
type silenceDetector struct {
	recvCount uint32 // as of the last look
	unsent    int
	silentFor time.Duration // since anything has changed
}

// awaitsPeer says whether the exporter owes anything; tmu is held.
func (rq *Requester) awaitsPeer() bool {
	return rq.ackRequested > rq.ackedSeq.Load() || rq.fetchCount.Load() > 0 || rq.tx.framesWritten < rq.tx.framesQueued || rq.creditProbePending
}

// silenceError is the reason for giving up a connection on which the exporter's machine has not acknowledged so
// many bytes.
func (rq *Requester) silenceError(unacked int) error {
	if unacked > 0 {
		return Gone("nothing was heard for %v of the exporter: its machine, or the network between, does not answer", rq.silenceLimit)
	}
	return Gone("nothing was heard for %v of the exporter, whose machine has acknowledged all that was sent: "+
		"the process is stopped, or its machine or the network has failed since", rq.silenceLimit)
}

// checkSilence gives up a connection on which nothing was heard for too long. passed is the time
// since the last look, in which this process has run.
func (rq *Requester) checkSilence(passed time.Duration) {
	rq.rmu.Lock()
	defer rq.rmu.Unlock()
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	l := &rq.silenceDetector
	if rq.fd < 0 || rq.disconnected.Load() || !rq.awaitsPeer() || l.recvCount != rq.recvCount {
		*l, rq.creditProbePending = silenceDetector{recvCount: rq.recvCount}, false
		return
	}
	// Where the network is slow, or much is on its way, what goes out shows that somebody is there.
	if n := unix.Unsent(rq.fd); n != l.unsent {
		l.unsent, l.silentFor = n, 0
		return
	}
	if l.silentFor += passed; l.silentFor >= rq.silenceLimit {
		rq.connLost(rq.silenceError(l.unsent))
	}
}
