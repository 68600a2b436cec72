package main

import (
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// nodeInfo is a node as the one that was asked sees it. What that one does not
// tell is left out.
type nodeInfo struct {
	Name      string   `json:"name"`
	Control   string   `json:"control,omitempty"`
	Data      string   `json:"data,omitempty"`
	State     string   `json:"state"`
	Reachable bool     `json:"reachable"`
	Path      string   `json:"path,omitempty"` // by which it was reached
	RTT       int64    `json:"rtt_ns,omitempty"`
	Processes *uint32  `json:"processes,omitempty"`
	Sessions  *uint32  `json:"sessions,omitempty"`
	Exported  *uint64  `json:"exported_bytes,omitempty"`
	Load      *float64 `json:"load_1m,omitempty"` // of its machine
	Uptime    int64    `json:"uptime_ns,omitempty"`
	Version   string   `json:"version,omitempty"`
	Error     string   `json:"error,omitempty"`
	Differs   string   `json:"hosts_differ,omitempty"`   // its list of nodes from the asked node's
	Conflict  bool     `json:"hosts_conflict,omitempty"` // and both give out the same logical pids
}

// The states of a node.
const (
	stateUp          = "up"
	stateDown        = "down" // by an administrator
	stateUnreachable = "unreachable"
)

// stateOf is a node's state, and why it is so.
func stateOf(h *nodev1.Host) (state, why string) {
	if !h.GetReachable() {
		return stateUnreachable, h.GetError()
	}
	switch h.GetPing().GetState() {
	case nodev1.NodeState_NODE_STATE_DOWN:
		return stateDown, h.GetPing().GetReason()
	case nodev1.NodeState_NODE_STATE_STARTING:
		return "starting", "it finds its sessions again"
	case nodev1.NodeState_NODE_STATE_STOPPING:
		return "stopping", "its daemon ends"
	}
	return stateUp, h.GetPing().GetStateFault()
}

// nodeInfos are nodes that were looked at by one that was reached by way.
func nodeInfos(list []*nodev1.Host, way string) []nodeInfo {
	nodes := []nodeInfo{}
	for _, h := range list {
		n := nodeInfo{
			Name: h.GetName(), Control: h.GetControlAddress(), Data: h.GetDataAddress(),
			Reachable: h.GetReachable(), RTT: h.GetRttNs(), Path: way,
			Differs: h.GetHostsDiffer(), Conflict: h.GetHostsConflict(),
		}
		n.State, n.Error = stateOf(h)
		if !h.GetSelf() {
			n.Path = "TLS " + h.GetControlAddress()
		}
		if p := h.GetPing(); n.Reachable && p != nil {
			load := float64(p.GetLoad_1MMillis()) / 1000
			n.Processes, n.Sessions, n.Exported, n.Load = &p.Processes, &p.Sessions, &p.ExportedBytes, &load
			n.Uptime, n.Version = p.GetUptimeNs(), p.GetVersion()
		}
		nodes = append(nodes, n)
	}
	return nodes
}
