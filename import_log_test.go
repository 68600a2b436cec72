package vmmc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// logLines keeps what is logged, and tells of each line.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
	came chan struct{}
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.came <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An import of a buffer that is not exported waits, and the log says for which buffer of which
// process. It says so more than once.
func TestImportThatWaitsIsLogged(t *testing.T) {
	defer vmmc.SetImportWaits(time.Millisecond)()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			lines := &logLines{came: make(chan struct{}, 1)}
			log := slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
			a, b := join(t, near, vmmc.WithLogger(log)), join(t, far)
			ctx, stop := context.WithCancel(within(t))
			request := manual.ImportAsync(ctx, a, b.Node(), b.PID(), 77)
			for strings.Count(lines.String(), "an import waits for its export") < 2 {
				select {
				case <-lines.came:
				case <-within(t).Done():
					t.Fatalf("not logged: %s", lines)
				}
			}
			stop()
			if _, err := request.Wait(within(t)); err == nil {
				t.Error("the import was made")
			}
			for _, says := range []string{"buffer=77", fmt.Sprintf("process %d on node", b.PID()), "level=WARN"} {
				if !strings.Contains(lines.String(), says) {
					t.Errorf("the log does not say %q: %s", says, lines)
				}
			}
		})
	}
}
