package mpijob

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

// Host is a node, and how many ranks it takes before the next one's turn.
type Host struct {
	Name  string
	Slots int
}

// MaxRanks keeps a slip of the finger from filling the cluster.
const MaxRanks = 4096

// ParseHosts reads a list of nodes, as "n1:2,n2".
func ParseHosts(s string) (all []Host, err error) {
	for part := range strings.SplitSeq(s, ",") {
		if all, err = addHost(all, part); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addHost adds a node, as "n1:2". A node that is there, in whichever case, gets more slots.
func addHost(all []Host, s string) ([]Host, error) {
	name, slots, counted := strings.Cut(strings.TrimSpace(s), ":")
	h := Host{hosts.Canonical(name), 1}
	if name == "" {
		return nil, fmt.Errorf("%q has no node's name", s)
	}
	if counted {
		n, err := strconv.Atoi(slots)
		if err != nil || n < 1 || n > MaxRanks {
			return nil, fmt.Errorf("%q is no number of slots on node %q, want 1 to %d", slots, name, MaxRanks)
		}
		h.Slots = n
	}
	for i := range all {
		if all[i].Name == h.Name {
			all[i].Slots += h.Slots
			return all, nil
		}
	}
	return append(all, h), nil
}

// ParseHostfile reads a file with a node on each line: "n1", "n1:2", or "n1 slots=2". What follows
// a # is a comment.
func ParseHostfile(text string) (all []Host, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		host := words[0]
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			switch {
			case name == "slots" && !strings.Contains(host, ":"):
				host += ":" + value
			case name == "max_slots" || name == "max-slots":
			default:
				return nil, fmt.Errorf("line %d: %q is not known, want NODE, NODE:SLOTS or NODE slots=N", number, w)
			}
		}
		if all, err = addHost(all, host); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("it names no node")
	}
	return all, nil
}

// Hosts are the nodes that the command line names for all programs; none if it names none.
func (j *Job) Hosts() (all []Host, err error) {
	switch {
	case j.hosts != "" && j.hostfile != "":
		return nil, errors.New("--host-list with --hostfile: give one of them")
	case j.hosts != "":
		if all, err = ParseHosts(j.hosts); err != nil {
			return nil, fmt.Errorf("--host-list %s: %w", j.hosts, err)
		}
	case j.hostfile != "":
		text, err := os.ReadFile(j.hostfile)
		if err != nil {
			return nil, fmt.Errorf("--hostfile %s: %w", j.hostfile, err)
		}
		if all, err = ParseHostfile(string(text)); err != nil {
			return nil, fmt.Errorf("--hostfile %s: %w", j.hostfile, err)
		}
	}
	return all, nil
}

// Rank is what one rank runs, and where.
type Rank struct {
	Program *Program
	App     int // the number of the program
	Host    string
	Local   int // its number among the ranks of the host
}

// Universe is how many ranks the nodes have slots for: those of the job, and those that only a program
// names. It is at least how many ranks there are.
func (j *Job) Universe(hosts []Host, ranks int) int {
	all := slices.Clone(hosts)
	for _, p := range j.Programs {
		for _, h := range p.Hosts {
			if !slices.ContainsFunc(all, func(o Host) bool { return strings.EqualFold(o.Name, h.Name) }) {
				all = append(all, h)
			}
		}
	}
	return max(newMapper(j, all).slots(), ranks)
}

// Place says what each rank runs, and where: on the program's nodes, or on those of the job.
func (j *Job) Place(hosts []Host) (all []Rank, err error) {
	local := map[string]int{}
	var loads map[string]float64 // of all programs, which share the nodes
	if j.NeedsLoads() {
		if loads = maps.Clone(j.Loads); loads == nil {
			loads = map[string]float64{}
		}
	}
	shared := newMapper(j, hosts)
	for i := range j.Programs {
		p, m := &j.Programs[i], shared
		if len(p.Hosts) > 0 {
			m = newMapper(j, p.Hosts)
		}
		m.loads = loads
		count := p.Count
		if count == 0 {
			count = m.slots()
		}
		if count > MaxRanks-len(all) {
			return nil, fmt.Errorf("--np (-n): %d ranks behind %d: a job has 1 to %d", count, len(all), MaxRanks)
		}
		for range count {
			host := m.next()
			all = append(all, Rank{p, i, host, local[host]})
			local[host]++
		}
	}
	if j.Stdin >= len(all) {
		return nil, fmt.Errorf("--stdin %d: the job has %d ranks, from 0 on", j.Stdin, len(all))
	}
	return all, nil
}

// mapper gives ranks their nodes.
type mapper struct {
	hosts []Host
	free  []int // slots of this round
	inRow bool  // reports whether a node's slots are filled before the next node's
	at    int

	loads map[string]float64 // with the ranks that were mapped; nil: another way than by load
}

// NeedsLoads reports whether ranks are mapped by load.
func (j *Job) NeedsLoads() bool { return j.mapBy == ByLoad }

func newMapper(j *Job, hosts []Host) *mapper {
	m := &mapper{hosts: slices.Clone(hosts), inRow: j.mapBy == BySlot}
	for i := range m.hosts {
		if j.perNode > 0 {
			m.hosts[i].Slots = j.perNode
		}
		m.free = append(m.free, m.hosts[i].Slots)
	}
	return m
}

func (m *mapper) slots() (n int) {
	for _, h := range m.hosts {
		n += h.Slots
	}
	return n
}

// next is the node of the next rank. When all slots are taken it begins again.
func (m *mapper) next() string {
	if m.loads != nil {
		return m.leastLoaded()
	}
	if !slices.ContainsFunc(m.free, func(n int) bool { return n > 0 }) {
		for i, h := range m.hosts {
			m.free[i] = h.Slots
		}
		m.at = 0
	}
	for m.free[m.at] == 0 {
		m.at = (m.at + 1) % len(m.hosts)
	}
	at := m.at
	m.free[at]--
	if !m.inRow {
		m.at = (m.at + 1) % len(m.hosts)
	}
	return m.hosts[at].Name
}

// leastLoaded is the node that has the least load for each of its slots, the first one of several.
// The rank adds to its load.
func (m *mapper) leastLoaded() string {
	at, least := 0, math.Inf(1)
	for i, h := range m.hosts {
		if load, known := m.loads[h.Name]; known && load/float64(h.Slots) < least {
			at, least = i, load/float64(h.Slots)
		}
	}
	name := m.hosts[at].Name
	if _, known := m.loads[name]; known {
		m.loads[name]++
	}
	return name
}
