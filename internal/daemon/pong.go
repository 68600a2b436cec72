package daemon

import (
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/local"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// pong is what the node says of itself.
func (n *Node) pong() *nodev1.PingResponse {
	a := &nodev1.PingResponse{
		Node: n.cfg.Name, Incarnation: n.incarnation, Version: n.cfg.Version, ProtocolVersion: local.Version,
		UptimeNs: int64(time.Since(n.started)), ClockUnixNs: time.Now().UnixNano(), Load_1MMillis: load(),
		State: nodev1.NodeState_NODE_STATE_UP, Reason: n.network.reason(), HostsDigest: n.roster.Load().digest,
		StateFault: faultText(n.stateFault()),
	}
	if a.Reason != "" {
		a.State = nodev1.NodeState_NODE_STATE_DOWN
	}
	n.mu.Lock()
	switch {
	case n.closed:
		a.State = nodev1.NodeState_NODE_STATE_STOPPING
	case !n.recalled:
		a.State = nodev1.NodeState_NODE_STATE_STARTING
	}
	ps := make([]*process, 0, len(n.processes))
	for _, p := range n.processes {
		ps = append(ps, p)
	}
	n.mu.Unlock()
	a.Processes, a.Sessions = uint32(len(ps)), uint32(len(n.sessionsAfter("")))
	for _, p := range ps {
		a.ExportedBytes += p.exported()
	}
	return a
}

// exported is how many bytes the process says that it exports.
func (p *process) exported() (sum uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.exports {
		sum += uint64(e.Size)
	}
	return sum
}

// load is the machine's, in thousandths; 0 where it is not told.
func load() uint32 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil || v < 0 || v > math.MaxUint32/1000 {
		return 0
	}
	return uint32(v * 1000)
}
