package vrpc

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// ServerOption changes what NewServer makes.
type ServerOption func(*settings)

// times are how long a server waits.
type times struct {
	record, write, idle, silence time.Duration
}

// maxMessage is how long a message is at most, unless an option says otherwise.
const maxMessage = 4 << 20

// What a connection by remote memory has, unless an option says otherwise: 1 MiB and headers.
const (
	defaultSlots = 32
	defaultArea  = 1<<20 + unit
)

func defaults() settings {
	return settings{
		concurrency: 256,
		perCaller:   32,
		connections: 1024,
		limit:       maxMessage,
		area:        defaultArea,
		datagram:    maxDatagram,
		logger:      slog.Default(),
		times:       times{record: 30 * time.Second, write: 30 * time.Second, silence: timeout.Silence},
	}
}

// WithConcurrency bounds how many procedures run at once, 256 otherwise, and how many of one
// connection's calls are run or answered at once, 32 otherwise. What is beyond waits in the
// transport.
func WithConcurrency(all, connection int) ServerOption {
	return func(s *settings) { s.concurrency, s.perCaller = max(all, 1), max(connection, 1) }
}

// InOrder runs the calls of a connection one after another, in the order in which they came, as C's
// servers do. Batches may need it: see [Client.Post].
func InOrder() ServerOption {
	return func(s *settings) { s.ordered = true }
}

// WithConnections bounds the connections of each Serve and ServeVMMC, 1024 otherwise. The next one
// is closed at once.
func WithConnections(n int) ServerOption {
	return func(s *settings) { s.connections = max(n, 1) }
}

// WithMaxMessage bounds a call and a reply in bytes, 4 MiB otherwise. A connection that brings a
// longer one is closed. Calls by remote memory are bounded by [WithServerArea].
func WithMaxMessage(n int) ServerOption {
	return func(s *settings) { s.limit = n }
}

// WithMaxDecoded bounds the memory that the arguments of a call take once they are decoded, in
// bytes; 16 bytes for each byte of the call otherwise, at least 1 MiB. Arguments beyond it are
// refused as [ErrGarbageArgs]. All calls that run take at most this and the call itself, times the
// first number of [WithConcurrency].
func WithMaxDecoded(n int) ServerOption {
	return func(s *settings) { s.decoded = max(n, 1) }
}

// WithMaxDatagram bounds a reply by UDP in bytes, 65507 otherwise, which is all that UDP carries. A
// longer one is not sent, and the call fails. A source address is easily forged: what a server
// answers to a short call an attacker can have sent to others.
func WithMaxDatagram(n int) ServerOption {
	return func(s *settings) { s.datagram = min(max(n, 1), maxDatagram) }
}

// WithServerArea is for remote memory: how much of this process's memory each client has for calls
// that are not small, 1 MiB and a little otherwise. No call is longer.
func WithServerArea(bytes int) ServerOption {
	return func(s *settings) { s.area = min(units(max(bytes, 1)), maxArea/unit) * unit }
}

// WithServerExport is for remote memory: opts are of the buffers that clients write their calls to,
// as [vmmc.Unmapped] where they are not to be trusted with a mapping.
func WithServerExport(opts ...vmmc.ExportOption) ServerOption {
	return func(s *settings) { s.exports = opts }
}

// WithServerTimes says how long a message may take from its first byte to its last, and how long a
// reply may wait for its reader, 30 s each otherwise, and after which time without a call a
// connection is closed; 0 is never. By remote memory only the second one counts, and may be twice
// as long.
func WithServerTimes(record, write, idle time.Duration) ServerOption {
	return func(s *settings) { s.times = times{record, write, idle, s.silence} }
}

// WithServerSilence is how long the host of a client by TCP may acknowledge nothing before its
// connection is closed, 10 s otherwise: a client whose machine or network has died takes a
// connection's memory and place no longer. 0 leaves it to the system, which takes minutes or for
// ever.
func WithServerSilence(d time.Duration) ServerOption {
	return func(s *settings) { s.silence = max(d, 0) }
}

// WithAllow has f asked about each call before its arguments are decoded. [PeerOf] tells it of the
// caller. An error refuses the call, with its reason if it is an [*AuthError], else AuthTooWeak.
func WithAllow(f func(ctx context.Context, s *Service, procedure uint32) error) ServerOption {
	return func(s *settings) { s.allow = f }
}

// WithServerLogger has the server log to l the errors that it can report to no caller, as those of
// procedures. Without it the server logs to [slog.Default]. Beyond 100 records, and one a second,
// records are counted and not written: clients can cause as many as they like. To log nothing, give
// slog.New(slog.DiscardHandler).
func WithServerLogger(l *slog.Logger) ServerOption {
	return func(s *settings) { s.logger = l }
}
