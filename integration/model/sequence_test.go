package model_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"
)

// sequence is one random run of calls, and the model of what they did.
//
// What is drawn must not depend on what timing decides, or a seed would not
// mean the same sequence twice: the lists from which things are chosen change
// only by what calls are sure to do.
type sequence struct {
	*rapid.T
	w         *world
	now       int    // the model's clock
	serial    uint32 // of the last data that was made
	slots     []*process
	processes []*process // of all times
	links     []*link
	exports   []*export // not closed
	imports   []*imported
	taken     []*imported // all there ever were
	requests  []*request
	awaited   []*awaited
	leaving   []*process // at the end
	stale     []stale

	mu  sync.Mutex
	log []string
}

// action is something that a step can do.
type action struct {
	name   string
	weight int
	do     func(*sequence)
}

// actions are what steps do, the frequent first: rapid prefers what is first,
// and shrinks to it.
var actions = []action{
	{"send", 14, (*sequence).send},
	{"import", 8, (*sequence).importBuffer},
	{"export", 8, (*sequence).export},
	{"get", 6, (*sequence).get},
	{"request", 5, (*sequence).request},
	{"get async", 4, (*sequence).getAsync},
	{"fence", 4, (*sequence).fence},
	{"look", 4, (*sequence).look},
	{"write", 5, (*sequence).write},
	{"read", 3, (*sequence).read},
	{"word", 4, (*sequence).word},
	{"wait", 4, (*sequence).wait},
	{"crowd", 3, (*sequence).crowd},
	{"hurry", 2, (*sequence).hurry},
	{"post", 7, (*sequence).postRedir},
	{"end", 5, (*sequence).endRedir},
	{"end of data", 4, (*sequence).dataEnd},
	{"strange import", 2, (*sequence).strangeImport},
	{"block", 4, (*sequence).block},
	{"unblock", 4, (*sequence).unblock},
	{"discard", 2, (*sequence).discard},
	{"notified", 4, (*sequence).notified},
	{"in a handler", 4, (*sequence).inside},
	{"exhaust", 2, (*sequence).exhaust},
	{"snatch", 3, (*sequence).snatch},
	{"change", 8, (*sequence).change},
	{"send pieces", 4, (*sequence).sendPieces},
	{"send signal", 4, (*sequence).sendSignal},
	{"own atomics", 2, (*sequence).ownAtomics},
	{"import async", 4, (*sequence).importAsync},
	{"wait any", 2, (*sequence).waitAny},
	{"addresses", 2, (*sequence).addresses},
	{"close import", 2, (*sequence).closeImport},
	{"close export", 2, (*sequence).closeExport},
	{"free", 2, (*sequence).free},
	{"drain", 1, (*sequence).drain},
	{"nodes", 1, (*sequence).nodes},
	{"allocate badly", 1, (*sequence).allocateBadly},
	{"import badly", 2, (*sequence).importBadly},
	{"close process", 1, (*sequence).closeProcess},
	{"open process", 2, (*sequence).openProcess},
	{"open badly", 1, (*sequence).openBadly},
}

// chosen has each action as often as its weight says.
var chosen = func() (out []string) {
	for _, a := range actions {
		for range a.weight {
			out = append(out, a.name)
		}
	}
	return out
}()

func (s *sequence) step() {
	name := rapid.SampledFrom(chosen).Draw(s.T, "action")
	i := slices.IndexFunc(actions, func(a action) bool { return a.name == name })
	s.w.steps++
	start := time.Now()
	actions[i].do(s)
	if took := time.Since(start); took > s.w.slowest {
		did := s.snapshot()
		s.w.slowest, s.w.slow = took, did[max(0, len(did)-8):]
	}
	s.absorb()
}

// tick is a time later than all before.
func (s *sequence) tick() int {
	s.now++
	return s.now
}

// say adds to the record of what the sequence does.
func (s *sequence) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.log = append(s.log, line)
	s.mu.Unlock()
	s.Logf("%s", line)
}

func (s *sequence) snapshot() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// fail ends the sequence. The text must be the same whenever the sequence is,
// or it could not be shrunk: details go to say.
func (s *sequence) fail(format string, args ...any) {
	s.say("FAILED: "+format, args...)
	s.w.failed = true
	s.Fatalf(format, args...)
}

// below draws a number from 0 to n-1.
func (s *sequence) below(n int, label string) int {
	return rapid.IntRange(0, n-1).Draw(s.T, label)
}

// rarely is true about once in n times, and never in what was shrunk.
func (s *sequence) rarely(n int, label string) bool {
	return s.below(n, label) == n-1
}

// pick draws one of a list, which is not empty.
func pick[E any](s *sequence, list []E, label string) E {
	return list[s.below(len(list), label)]
}

// within is the context of a call that is to succeed.
func (s *sequence) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), bound)
}

// soon is the context of a call that is to wait in vain.
func (s *sequence) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Millisecond)
}

// cancelled is a context that has ended.
func cancelled() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}

// fill makes data of n bytes, no word of which is like any other of the sequence
// (up to 16384 messages of up to a mebibyte).
func (s *sequence) fill(n int) []byte {
	s.serial++
	b := make([]byte, (n+3)&^3)
	for i := 0; i < len(b); i += 4 {
		v := scatter(s.serial<<18 | uint32(i/4))
		b[i], b[i+1], b[i+2], b[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	return b[:n]
}

// scatter makes of different numbers different ones that look like no others'
// sums.
func scatter(v uint32) uint32 {
	v = (v ^ v>>16) * 0x85ebca6b
	v = (v ^ v>>13) * 0xc2b2ae35
	return v ^ v>>16
}

// finish compares all that can be compared, and takes everything down again.
func (s *sequence) finish() {
	for _, l := range s.links {
		if im := s.alongside(l); im != nil {
			s.fenceOf(im)
		}
	}
	for len(s.requests) > 0 {
		s.await(s.requests[0])
	}
	for _, p := range s.slots {
		if p != nil {
			s.unblockAll(p)
		}
	}
	s.drain()
	for len(s.awaited) > 0 {
		s.cancelImport(s.awaited[0])
	}
	for _, p := range s.slots {
		if p == nil {
			continue
		}
		for _, m := range p.memories {
			s.observe(m)
		}
	}
	for len(s.imports) > 0 {
		s.unimport(s.imports[0])
		s.imports = s.imports[1:]
	}
	for len(s.exports) > 0 {
		s.unexport(s.exports[0])
	}
	for _, p := range s.slots {
		for p != nil && len(p.memories) > 0 {
			s.release(p.memories[0])
		}
	}
	for _, p := range s.leaving {
		if !p.closed {
			s.expect("Process.Close", p.p.Close(), ok)
			s.w.slots[p.slot] = nil
		}
	}
}
