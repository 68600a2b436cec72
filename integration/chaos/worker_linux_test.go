package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// Shorter than the defaults, so that what is noticed late is noticed within the test. The limit is
// far longer than anything is cut off or stopped, and the silence longer than a busy machine lets a
// process wait for a processor.
const (
	silence = 2 * time.Second
	limit   = 20 * time.Second
	hang    = limit + 40*time.Second // no call may take longer
)

// worker is one life of a process.
type worker struct {
	dir           string
	process, life int
	p             *vmmc.Process
	board, ledger *ledger
	log           *os.File
	shared        *vmmc.Export

	mu   sync.Mutex
	gone map[vmmc.ProcessID]chan struct{} // closed when the process has gone
}

func nodeOf(process int) string { return fmt.Sprintf("n%d", process%nodes) }

// work is the role of a process. Args: the directory of all, its number, and its life.
func work() int {
	w := &worker{dir: testutil.Args()[0], gone: map[vmmc.ProcessID]chan struct{}{}}
	w.process, _ = strconv.Atoi(testutil.Args()[1])
	w.life, _ = strconv.Atoi(testutil.Args()[2])
	if err := w.run(); err != nil {
		fmt.Fprintf(os.Stderr, "process %d, life %d: %v\n", w.process, w.life, err)
		return 1
	}
	return 0
}

func (w *worker) run() (err error) {
	if w.board, err = openLedger(w.dir, "board"); err != nil {
		return err
	}
	defer w.board.close()
	if w.ledger, err = openLedger(w.dir, lifeName(w.process, w.life)); err != nil {
		return err
	}
	defer w.ledger.close()
	if w.log, err = os.OpenFile(filepath.Join(w.dir, "log."+lifeName(w.process, w.life)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	defer func() { _ = w.log.Close() }()
	if err := w.join(); err != nil {
		return err
	}
	m, err := w.p.Alloc(vmmc.PageSize())
	if err != nil {
		return err
	}
	if w.shared, err = w.p.Export(sharedID, m.Bytes()); err != nil {
		return err
	}
	before := held()
	w.ledger.set(lifePID, uint64(w.p.PID()))
	w.board.set(boardPID+w.process, uint64(w.p.PID()))
	w.board.set(boardReady+w.process, uint64(w.life))

	var all sync.WaitGroup
	for i := range targets {
		all.Go(func() { w.sendTo((w.process + i + 1) % processes) })
		all.Go(func() { w.receiveFrom((w.process + processes - i - 1) % processes) })
	}
	all.Wait()
	counter, err := w.shared.Word64(0)
	if err != nil {
		return err
	}
	w.ledger.set(lifeShared, counter.Load())
	// What served the links has let go of it soon.
	left := ""
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if left = before.since(held()); left == "" || time.Now().After(end) {
			break
		}
	}
	if left != "" {
		w.violated("after the end of all imports and exports there is left: %s", left)
	}
	if err := w.p.Close(); err != nil {
		return err
	}
	w.ledger.set(lifeEnd, finished)
	return nil
}

// join opens the process, again if its node is just not there.
func (w *worker) join() (err error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		w.p, err = vmmc.Open(ctx, vmmc.WithSocket(os.Getenv(nodeproto.Env)), vmmc.WithSilence(silence), vmmc.WithResume(limit), vmmc.WithEvents(w.event))
		stop()
		if err == nil || time.Now().After(end) {
			return err
		}
		w.note("open: %v", err)
	}
}

// violated keeps the first promise that was broken.
func (w *worker) violated(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.say(format, args...)
	w.ledger.set(lifeEnd, violated)
}

// note writes a line that the test reads.
func (w *worker) note(format string, args ...any) {
	_, _ = fmt.Fprintf(w.log, "%d %s\n", time.Now().UnixNano(), strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

func (w *worker) event(e vmmc.Event) {
	if w.phase() != ending { // then all leave
		w.note("%v %v/%d %v", strings.ReplaceAll(e.Kind.String(), " ", "-"), e.Peer.Node, e.Peer.PID, e.Err)
	}
	if e.Kind == vmmc.PeerGone {
		w.mu.Lock()
		defer w.mu.Unlock()
		gone := w.goneLocked(e.Peer)
		select {
		case <-gone: // it imported, and exported too
		default:
			close(gone)
		}
	}
}

// isGone is closed when a process has gone.
func (w *worker) isGone(node vmmc.NodeID, pid uint64) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.goneLocked(vmmc.ProcessID{Node: node, PID: vmmc.PID(pid)})
}

func (w *worker) goneLocked(id vmmc.ProcessID) chan struct{} {
	if w.gone[id] == nil {
		w.gone[id] = make(chan struct{})
	}
	return w.gone[id]
}

func (w *worker) phase() uint64 { return w.board.get(boardPhase) }

// lives is the life of a process, and whether that one has joined its node.
func (w *worker) lives(process int) (life int, pid uint64, ready bool) {
	life = int(w.board.get(boardLife + process))
	ready = w.board.get(boardReady+process) == uint64(life)
	return life, w.board.get(boardPID + process), ready && life == int(w.board.get(boardLife+process))
}

// holdings are a process's descriptors by kind, and its goroutines.
type holdings map[string]int

func held() holdings {
	h := holdings{"goroutines": runtime.NumGoroutine()}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			h[kind(to)]++
		}
	}
	return h
}

// kind is what a descriptor is for, without what tells it from others of the kind.
func kind(target string) string {
	if i := strings.IndexByte(target, '['); i > 0 {
		return target[:i]
	}
	return target
}

// since says what later has more than h.
func (h holdings) since(later holdings) string {
	var b strings.Builder
	for k, n := range later {
		if n > h[k] {
			fmt.Fprintf(&b, "%d %s, %d before; ", n, k, h[k])
		}
	}
	return b.String()
}
