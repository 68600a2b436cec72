// Package systemlog is a node's own logs, as the manual has them: server.log and driver.log.
package systemlog

import (
	"log"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/vmmc-go/vmmc/internal/logfile"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Logs are the logs of one node. Nothing is logged before Open. Each logger has a lock of its own
// (logfile.File), which is the last to be taken.
type Logs struct {
	Server     *slog.Logger // the node's log and server.log: sessions and processes
	Driver     *slog.Logger // the node's log and driver.log: other nodes and refused connections
	DriverFile *slog.Logger // driver.log alone

	files map[nodev1.SystemLog]*logfile.File // nil: none are kept
}

// Open begins to log, to a directory too if there is one.
func (s *Logs) Open(log *slog.Logger, dir string) {
	s.Server, s.Driver, s.DriverFile = log, log, slog.New(slog.DiscardHandler)
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
	s.Server = slog.New(slog.NewMultiHandler(log.Handler(), toServer))
	s.Driver = slog.New(slog.NewMultiHandler(log.Handler(), toDriver))
	s.DriverFile = slog.New(toDriver)
}

// Close closes the files.
func (s *Logs) Close() {
	for _, f := range s.files {
		f.Close()
	}
}

// File returns the file of a log, nil if there is none. It reports whether files are kept at all.
func (s *Logs) File(which nodev1.SystemLog) (f *logfile.File, kept bool) {
	return s.files[which], s.files != nil
}

// HTTPErrors is where the HTTP server says what went wrong with a connection. The
// text is not the line's, for lines that say the same are counted.
func (s *Logs) HTTPErrors() *log.Logger { return log.New(httpErrors{s}, "", 0) }

type httpErrors struct{ logs *Logs }

func (e httpErrors) Write(b []byte) (int, error) {
	e.logs.Driver.Warn("a control connection failed", "what", strings.TrimSpace(string(b)))
	return len(b), nil
}
