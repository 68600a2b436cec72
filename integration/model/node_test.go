package model_test

import (
	"slices"

	"github.com/vmmc-go/vmmc"
)

var _ = declare("calls", "AllHosts", "NameToNode", "Node, PID, ID", "NodeToName", "HostName", "SessionHosts", "Parent")

// nodes asks a process about nodes and itself.
func (s *sequence) nodes() {
	p := pick(s, s.open(), "process")
	s.say("%s: nodes", p.name)
	var hosts []string
	for _, h := range p.p.AllHosts() {
		hosts = append(hosts, h.String())
	}
	if !slices.Equal(hosts, []string{"a", "b", silent}) {
		s.fail("AllHosts: not the nodes of the hosts file in its order")
	}
	reach("calls", "AllHosts")
	name := pick(s, []string{"a", "b", silent, "nowhere", ""}, "name")
	n, err := p.p.NameToNode(name)
	reach("calls", "NameToNode")
	if slices.Contains(hosts, name) {
		s.expect("NameToNode", err, ok)
		if n.String() != name {
			s.fail("NameToNode: another node")
		}
	} else {
		s.expect("NameToNode", err, result{code: vmmc.ErrNoSuchNode})
	}
	called, err := p.p.NodeToName(n)
	reach("calls", "NodeToName")
	if slices.Contains(hosts, name) {
		s.expect("NodeToName", err, ok)
	} else {
		s.expect("NodeToName of no node", err, result{code: vmmc.ErrNoSuchNode})
	}
	if err == nil && called != name {
		s.fail("NodeToName: another name")
	}
	if p.p.HostName() == "" {
		s.fail("HostName: none")
	}
	reach("calls", "HostName")
	session, err := p.p.SessionHosts()
	s.expect("SessionHosts", err, ok)
	if !slices.Equal(session, p.p.AllHosts()) {
		s.fail("SessionHosts: not all nodes, though VMMCHOSTS names none")
	}
	reach("calls", "SessionHosts")
	_, err = p.p.Parent()
	s.expect("Parent", err, result{code: vmmc.ErrNoParent})
	reach("calls", "Parent")
	if p.p.ID() != p.id || p.p.Node() != p.id.Node || p.p.PID() != p.id.PID || p.p.Node().String() != p.node {
		s.fail("a process's own name has changed")
	}
	reach("calls", "Node, PID, ID")
}
