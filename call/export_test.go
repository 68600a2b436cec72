package call

import (
	"time"

	"github.com/vmmc-go/vmmc"
)

// StartAt numbers a client's calls from n+1 on.
func StartAt(n uint64) DialOption { return func(o *dialOptions) { o.number = n } }

// UnmappedAnswers has the answers go by the stream.
func UnmappedAnswers() DialOption {
	return func(o *dialOptions) { o.export = append(o.export, vmmc.Unmapped()) }
}

// UnmappedRequests has the requests go by the stream.
func UnmappedRequests() ServeOption {
	return func(o *serveOptions) { o.export = append(o.export, vmmc.Unmapped()) }
}

// Clients is how many the server has.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Requests is how many processes dial.
func (s *Server) Requests() int { return s.listener.Diallers() }

// Workers is how many goroutines run handlers, or could.
func (s *Server) Workers() int {
	s.leadMu.Lock()
	defer s.leadMu.Unlock()
	return s.number
}

// Lane is what the client can write to.
func (c *Client[Q, A]) Lane() *vmmc.Import { return c.c.lane }

// Own is what the server can write to.
func (c *Client[Q, A]) Own() *vmmc.Export { return c.c.own.Export }

// Free is how many slots have no call.
func (c *Client[Q, A]) Free() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return len(c.c.free)
}

// Sweep frees the slots whose late answers have come, as the next call does that finds none.
func (c *Client[Q, A]) Sweep() {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	c.c.sweep()
}

// Waiting is how many calls wait for a slot.
func (c *Client[Q, A]) Waiting() int {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	return c.c.waiting
}

// Shape is how the slots lie.
type Shape struct{ s shape }

// ShapeOf is that of values of so many bytes.
func ShapeOf(request, answer, slots int) Shape { return Shape{shape{request, answer, slots}} }

// RequestAt is where slot i's request lies, RequestWord its last word, and AnswerEnd where its
// answer ends.
func (s Shape) RequestAt(i int) int   { return s.s.requestAt(i) }
func (s Shape) RequestWord(i int) int { return s.s.requestWord(i) }
func (s Shape) AnswerEnd(i int) int   { return s.s.answerEnd(i) }

// AnswersSize is the size of the client's export.
func (s Shape) AnswersSize() int { return s.s.answersSize() }

// What requests and answers are.
const (
	Runs      = runs
	Void      = void
	Succeeded = succeeded
	Failed    = failed
	Panicked  = panicked
	NotRun    = notRun
	Voided    = voided
	MaxText   = maxText
)

var (
	ReadAnswer    = readAnswer
	ReadRequest   = readRequest
	PutText       = putText
	PutAnswerTail = putAnswerTail
)

// CloseExport sets what closes the exports of lanes.
func CloseExport(f func(*vmmc.Export) error) ServeOption {
	return func(o *serveOptions) { o.closeExport = f }
}

// Unclosed is how many lanes are to be closed again.
func (s *Server) Unclosed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unclosed)
}

// SetFenceTime sets how long Shutdown waits for answers, until the function that it returns is
// called.
func SetFenceTime(d time.Duration) (back func()) {
	before := fenceTime
	fenceTime = d
	return func() { fenceTime = before }
}
