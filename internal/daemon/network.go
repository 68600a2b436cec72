package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/trust"
	"github.com/vmmc-go/vmmc/internal/unix"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// network knows whether processes here may be linked with those of other nodes:
// the manual's MCPStart and MCPStop.
type network struct {
	n *Node

	transitionMu sync.Mutex // held during takeDown and bringUp

	mu       sync.Mutex      // after Node.mu
	epoch    uint64          // epoch of links made now, or made last
	epochCtx context.Context // ends with the epoch; its cause says why the node was taken down
	endEpoch context.CancelCauseFunc
}

// beginEpoch starts an epoch. mu is held, or no other goroutine uses the node yet.
func (nw *network) beginEpoch() {
	// Greater than any of a daemon before this one, whose links processes bring with them.
	nw.epoch = max(nw.epoch+1, uint64(unix.Monotonic()))
	nw.epochCtx, nw.endEpoch = context.WithCancelCause(context.Background())
}

// use is for what needs other nodes: its context ends, with the reason, when this
// one is taken down. The caller calls leave when the other nodes have answered: see
// [fairshare.MayWait].
func (nw *network) use(
	ctx context.Context,
) (_ context.Context, epoch uint64, leave func(), err error) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	life := nw.epochCtx
	if err := context.Cause(life); err != nil {
		return nil, 0, nil, err
	}
	enter := fairshare.MayWait(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return ctx, nw.epoch, func() { stop(); cancel(nil); enter() }, nil
}

// reason returns why the epoch has ended, or "".
func (nw *network) reason() string {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	if err := context.Cause(nw.epochCtx); err != nil {
		return err.Error()
	}
	return ""
}

// state is that of a node that runs: up during an epoch, down between two.
func (nw *network) state() nodeState {
	if nw.reason() != "" {
		return nodeDown
	}
	return nodeUp
}

// currentEpoch returns the epoch of links made now.
func (nw *network) currentEpoch() uint64 {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	return nw.epoch
}

// finishEpoch ends the epoch. It reports false if the node was down already.
func (nw *network) finishEpoch(why string) (epoch uint64, was bool) {
	nw.mu.Lock()
	defer nw.mu.Unlock()
	if nw.epochCtx.Err() != nil {
		return nw.epoch, false
	}
	nw.endEpoch(code.New(code.Unreachable, "%s", why))
	return nw.epoch, true
}

// maxReason bounds what an administrator or another node gives as its reason.
const maxReason = 512

func truncateReason(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}

// downReason is the error text for a node that was taken down.
func downReason(node, reason string) string {
	if reason = strings.Join(strings.Fields(truncateReason(reason)), " "); reason != "" {
		reason = ": " + reason
	}
	return fmt.Sprintf("node %q was taken down by an administrator%s", node, reason)
}

// takeDown ends all links with other nodes and refuses new ones. Links live in the
// processes, which are asked to end them: one that does not answer keeps its own,
// until it ends.
func (nw *network) takeDown(ctx context.Context, reason string) *nodev1.TakeDownResponse {
	nw.transitionMu.Lock()
	defer nw.transitionMu.Unlock()
	out := &nodev1.TakeDownResponse{}
	why := downReason(nw.n.cfg.Name, reason)
	nw.n.mu.Lock()
	epoch, was := nw.finishEpoch(why)
	if nw.n.state == nodeUp {
		nw.n.setState(nodeDown)
	}
	nw.n.mu.Unlock()
	if !was {
		return out
	}
	if err := nw.saveDown(reason); err != nil {
		nw.n.logs.Driver.Warn("the next daemon will not know that the node is down", "err", err)
	}
	nw.n.broker.forgetAll() // no importer can dial any more
	// Whichever side of a link ends it first, the other one knows why. All of it is done even if
	// the caller gives up.
	ctx = context.WithoutCancel(ctx)
	r := nodeproto.SeverRequest{Epoch: epoch, Why: why, Soon: true}
	links, silent := nw.n.registry.severAll(ctx, r)
	out.Untold = nw.n.cluster.AnnounceLeave(ctx, why)
	r.Soon = false
	_, again := nw.n.registry.severAll(ctx, r)
	for _, pid := range again {
		if !slices.Contains(silent, pid) {
			silent = append(silent, pid)
		}
	}
	out.Links, out.Silent = uint32(links), silent
	nw.n.logs.Driver.Warn("the node was taken down", "reason", reason, "links", links, "silent",
		silent, "untold", out.Untold)
	return out
}

// bringUp undoes takeDown.
func (nw *network) bringUp() error {
	nw.transitionMu.Lock()
	defer nw.transitionMu.Unlock()
	if nw.reason() == "" {
		return nil
	}
	if err := os.Remove(nw.downFile()); nw.n.cfg.State != "" && err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return code.New(code.BadConfig, "node %q stays down, the next daemon would find it so: %v",
			nw.n.cfg.Name, err)
	}
	nw.n.mu.Lock()
	nw.mu.Lock()
	nw.beginEpoch()
	nw.mu.Unlock()
	if nw.n.state == nodeDown {
		nw.n.setState(nodeUp)
	}
	nw.n.mu.Unlock()
	nw.n.logs.Driver.Info("the node was brought up")
	return nil
}

func (nw *network) downFile() string { return filepath.Join(nw.n.cfg.State, "down") }

// saveDown records for the next daemon that the node is down: a restart of the daemon or the
// machine must not bring it up.
func (nw *network) saveDown(reason string) error {
	if nw.n.cfg.State == "" {
		return errors.New("this node keeps no state")
	}
	nw.n.sessions.mu.Lock()
	err := nw.n.sessions.open(true)
	nw.n.sessions.mu.Unlock()
	if err != nil {
		return err
	}
	f := nw.downFile()
	if err := trust.WriteFile(f+".new", []byte(truncateReason(reason)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(f+".new", f)
}

// restore begins as the daemon before this one ended.
func (nw *network) restore() {
	nw.beginEpoch()
	if nw.n.cfg.State == "" {
		return
	}
	b, err := os.ReadFile(nw.downFile())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil { // it is there: the safe side is down
		nw.n.logs.Driver.Warn("why the node is down cannot be read", "err", err)
	}
	nw.finishEpoch(downReason(nw.n.cfg.Name, string(b)))
	nw.n.logs.Driver.Warn("the node is down, as it was left", "why", nw.reason())
}
