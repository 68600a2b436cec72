package link

import (
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Tail probes. Messages are acknowledged in groups, so the last ones of a burst would be retained
// for ever. When no more messages follow, an acknowledgement is requested, and then nothing is
// retained.
const probeInterval = 10 * time.Millisecond

// tailProber lists the importing sides that retain messages or wait for the peer.
type tailProber struct {
	mu   sync.Mutex
	list []*tailProbe
	more chan struct{}
}

// add adds a link, so that it does not retain messages, or wait for the peer, for ever.
func (d *tailProber) add(p *tailProbe) {
	d.mu.Lock()
	d.list = append(d.list, p)
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
			// A process that was stopped did not listen meanwhile.
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
	for _, p := range list {
		if p.probe(passed) {
			keep = append(keep, p)
		}
	}
	d.mu.Lock() // more links were added meanwhile
	d.list = append(keep, d.list...)
	left = len(d.list) > 0
	d.mu.Unlock()
	return left
}

// tailProbe is what the tail prober does and remembers of one link.
type tailProbe struct {
	rq *Requester
	// Time for which the link was skipped because a sender held tmu. Used by the prober only.
	busyTime time.Duration

	// Guarded by tmu, as all fields that follow.
	scheduled bool   // In the tail prober's list.
	probedSeq uint64 // writtenSeq at the last probe.
	silence   silenceDetector

	creditWaiters int // Goroutines that wait for notification credits.
	// Time waited since credits were returned or requested.
	creditWaitTime time.Duration
	lastCredits    uint32 // Total of returned credits at the last probe.
	// Credits were requested, and no frame has arrived since.
	creditProbePending bool
}

// schedule adds the link, which retains or awaits something, to the tail prober. The caller holds
// tmu.
func (p *tailProbe) schedule() {
	if !p.scheduled {
		p.scheduled = true
		p.rq.e.tailProber.add(p)
	}
}

// creditProbeInterval is how often notification credits are requested while a goroutine waits for
// some. The exporter announces returned credits only once. If that frame is lost with no frame
// behind it, neither the loss nor a silent exporter that owes nothing else would be noticed.
const creditProbeInterval = time.Second

// addCreditWaiters adjusts the number of goroutines that wait for credits of a link between nodes.
func (p *tailProbe) addCreditWaiters(more int) {
	rq := p.rq
	if rq.pages != nil || !rq.needsProbes {
		return
	}
	rq.tmu.Lock()
	if p.creditWaiters += more; more > 0 {
		p.schedule()
	}
	rq.tmu.Unlock()
}

// probeCredits requests credits when it is time to. passed is the time since the last call. The
// caller holds tmu.
func (p *tailProbe) probeCredits(passed time.Duration) {
	rq := p.rq
	if p.creditWaiters == 0 || rq.disconnected() {
		p.creditProbePending = false
		return
	}
	// many short waits together may bring nothing
	if r := rq.creditsReturned.Load(); r != p.lastCredits {
		p.lastCredits, p.creditWaitTime = r, 0
	}
	if p.creditWaitTime += passed; p.creditWaitTime < creditProbeInterval {
		return
	}
	// An unanswered request is not repeated while the silence detector runs: repeating would change
	// the number of unsent bytes at each check (see checkSilence). Nor is one queued behind other
	// frames.
	if (!p.creditProbePending || rq.silenceLimit == 0) && rq.nothingQueued() {
		p.creditWaitTime, p.creditProbePending = 0, true
		rq.tx.control = append(rq.tx.control, wire.Header{Type: wire.Ping})
		rq.pump()
	}
}

// writerActive reports whether a sender holds tmu. Such a link is not idle, and waiting for the
// lock would make the sender wake a thread.
func (p *tailProbe) writerActive() bool {
	if !p.rq.tmu.TryLock() {
		return true
	}
	p.rq.tmu.Unlock()
	return false
}

// probe requests an acknowledgement if nothing was sent since the last probe, and reports whether
// messages are still retained or awaited.
func (p *tailProbe) probe(passed time.Duration) (more bool) {
	rq := p.rq
	if passed += p.busyTime; passed < 8*probeInterval && p.writerActive() {
		p.busyTime = passed
		return true
	}
	p.busyTime = 0
	if rq.silenceLimit > 0 {
		p.checkSilence(passed)
	}
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	p.probeCredits(passed)
	written := rq.writtenSeq.Load()
	switch {
	case rq.failed.Load():
	case rq.reconnectLimit == 0:
		if p.awaitsPeer() || rq.midMessage || p.creditWaiters > 0 {
			return true
		}
	case rq.ackedSeq.Load() < rq.lastSeq.Load():
		if written == p.probedSeq && rq.ackRequested < written && len(rq.retransmits) == 0 &&
			!rq.disconnected() {
			rq.requestAck()
			rq.pump()
		}
		p.probedSeq = written
		return true
	case p.awaitsPeer() || p.creditWaiters > 0: // a get that was applied is not answered yet
		return true
	}
	rq.unacked.trim(rq.ackedSeq.Load())
	p.scheduled = false
	return false
}

// Silence: the peer's node has died and cannot end the connection, or the peer process is stopped.
// The kernel gives up a connection whose peer acknowledges no data, or does not answer keep-alives,
// for silenceLimit (see [stream.setUpConn]). An importer also checks that it is answered, for which
// the peer process must run.

// silenceDetector detects an exporter that owes something and is silent.
type silenceDetector struct {
	recvCount uint32 // As of the last check.
	unsent    int
	silentFor time.Duration // Time since anything has changed.
}

// awaitsPeer reports whether the exporter owes anything. The caller holds tmu.
func (p *tailProbe) awaitsPeer() bool {
	rq := p.rq
	return rq.ackRequested > rq.ackedSeq.Load() || rq.fetches.count.Load() > 0 ||
		rq.tx.framesWritten < rq.tx.framesQueued || p.creditProbePending
}

// silenceError returns the error of a connection that is given up after limit while the exporter's
// machine has left unacked bytes unacknowledged.
func silenceError(limit time.Duration, unacked int) error {
	if unacked > 0 {
		return Gone("nothing was heard for %v of the exporter: its machine, or the network between, does not answer", limit)
	}
	return Gone("nothing was heard for %v of the exporter, whose machine has acknowledged all that was sent: "+
		"the process is stopped, or its machine or the network has failed since", limit)
}

// checkSilence gives up a connection that was silent for too long. passed is the time since the
// last check in which this process has run.
func (p *tailProbe) checkSilence(passed time.Duration) {
	rq := p.rq
	rq.rmu.Lock()
	defer rq.rmu.Unlock()
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	l := &p.silence
	if rq.fd < 0 || rq.disconnected() || !p.awaitsPeer() || l.recvCount != rq.recvCount {
		*l, p.creditProbePending = silenceDetector{recvCount: rq.recvCount}, false
		return
	}
	// On a slow network, or with much in flight, progress in sending shows that the peer lives.
	if n := unix.Unsent(rq.fd); n != l.unsent {
		l.unsent, l.silentFor = n, 0
		return
	}
	if l.silentFor += passed; l.silentFor >= rq.silenceLimit {
		rq.connLost(silenceError(rq.silenceLimit, l.unsent))
	}
}
