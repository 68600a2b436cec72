package daemon

import (
	"context"
	"log"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/logfile"
	"github.com/vmmc-go/vmmc/internal/supervise"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// systemLogs are the node's own logs, as the manual has them. What is said to log
// goes to Config.Log and to server.log: sessions and processes. What is said to
// driver goes to Config.Log and to driver.log: other nodes and unauthenticated connections; and what
// is said to driverLog to the file alone.
type systemLogs struct {
	log       *slog.Logger
	driver    *slog.Logger
	driverLog *slog.Logger

	files map[nodev1.SystemLog]*logfile.File
}

// openLogs begins to log, to a directory too if there is one.
func (s *systemLogs) openLogs(log *slog.Logger, dir string) {
	s.log, s.driver, s.driverLog = log, log, slog.New(slog.DiscardHandler)
	if dir == "" {
		return
	}
	server := logfile.Open(filepath.Join(dir, "server.log"), logfile.Size)
	driver := logfile.Open(filepath.Join(dir, "driver.log"), logfile.Size)
	for _, f := range []*logfile.File{server, driver} {
		if err := f.Opening(); err != nil {
			log.Warn("a log file cannot be written, its records go only here until it can", "err",
				err)
		}
	}
	s.files = map[nodev1.SystemLog]*logfile.File{
		nodev1.SystemLog_SYSTEM_LOG_SERVER: server, nodev1.SystemLog_SYSTEM_LOG_DRIVER: driver,
	}
	toServer, toDriver := logfile.Limit(slog.NewTextHandler(server,
		nil)), logfile.Limit(slog.NewTextHandler(driver, nil))
	s.log = slog.New(slog.NewMultiHandler(log.Handler(), toServer))
	s.driver = slog.New(slog.NewMultiHandler(log.Handler(), toDriver))
	s.driverLog = slog.New(toDriver)
}

func (s *systemLogs) closeLogs() {
	for _, f := range s.files {
		f.Close()
	}
}

// httpErrors is where the HTTP server says what went wrong with a connection. The
// text is not the line's, for lines that say the same are counted.
func (s *systemLogs) httpErrors() *log.Logger { return log.New(httpErrors{s}, "", 0) }

type httpErrors struct{ logs *systemLogs }

func (e httpErrors) Write(b []byte) (int, error) {
	e.logs.driver.Warn("a control connection failed", "what", strings.TrimSpace(string(b)))
	return len(b), nil
}

// systemService answers administrators.
type systemService struct{ n *Node }

func (s *systemService) ReadSystemLog(
	ctx context.Context, r *connect.Request[nodev1.ReadSystemLogRequest],
) (*connect.Response[nodev1.ReadSystemLogResponse], error) {
	n := s.n
	c, err := callerOf(ctx)
	if err == nil && !n.accounts.administrates(c) {
		err = code.New(code.NoRights, "user %q may not read the logs of node %q: root, the daemon's "+
			"user and those named with --admin may", c.user, n.cfg.Name)
	}
	if err != nil {
		return nil, coded(err)
	}
	f := n.files[r.Msg.GetLog()]
	switch {
	case n.files == nil:
		return nil, coded(code.New(code.BadConfig, "node %q keeps no logs: start its daemon with --root",
			n.cfg.Name))
	case f == nil:
		return nil, coded(code.New(code.BadArg, "node %q has no log %v: there are server and driver",
			n.cfg.Name, r.Msg.GetLog()))
	}
	at := r.Msg.GetPosition()
	switch last := r.Msg.GetLines(); {
	case r.Msg.GetIncarnation() == n.incarnation:
	case r.Msg.GetIncarnation() != 0:
		at = f.Begun()
	case last < 0:
		at = 0
	default:
		at = f.Last(int(last))
	}
	// The answer is sent while the caller still waits, and when the node stops.
	wait, stop := context.WithTimeout(ctx, max(clampTimeout(r.Msg.GetTimeoutNs()), time.Millisecond))
	defer stop()
	defer context.AfterFunc(n.ctx, stop)()
	b := make([]byte, supervise.MaxChunk)
	read, next := f.Read(wait, at, b)
	return reply(&nodev1.ReadSystemLogResponse{
		Data: b[:read], Position: next, Incarnation: n.incarnation,
	}, nil)
}
