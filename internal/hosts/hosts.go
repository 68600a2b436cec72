// Package hosts reads vmmc-hosts.txt, the list of a cluster's nodes.
//
// A line describes one node:
//
//	name control-address [data-address]
//
// Addresses are host:port. The data address is where the data plane of the node
// listens; without one the node serves both on its control address. Blank lines
// are skipped, and a # begins a comment that lasts to the end of the line.
//
// The order of the lines means something: it is the order in which the nodes are
// reported to programs, and a node's place gives it its block of logical pids, so
// every node of a cluster should have the same file. A line with nothing but a dash
// keeps a place free: put it where a node was that is no more.
package hosts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// The limits keep a wrong file (a log, a disk image) from being read to its end.
const (
	maxLines = 10_000
	maxLine  = 1024 // bytes, without the line's end
)

// keep is the line of a place that is kept free. It is no node's name.
const keep = "-"

const rightLine = `a line is "name host:port [data-host:port]", as in "node1 10.0.0.1:7411"`

// Host is one node of the cluster.
type Host struct {
	Name    string
	Control string // host:port
	Data    string // host:port; the same as Control unless the file gave one
	Free    int    // places before this node that are kept free
}

// Place is where the i-th node of the list stands in the file, counted from 0.
func Place(list []Host, i int) int {
	place := i
	for _, h := range list[:i+1] {
		place += h.Free
	}
	return place
}

// ReadFile reads the hosts file at path.
func ReadFile(path string) ([]Host, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of nodes: %w", err)
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads a hosts file and returns its nodes in the file's order. The name
// of the file is used in errors only.
func Parse(r io.Reader, file string) ([]Host, error) {
	// One byte more than the limit, because a buffer without room for the line's
	// end is already too short for Scanner; two for "\r\n".
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, maxLine+2), maxLine+2)

	var hosts []Host
	seen := make(map[string]int)   // name to line
	serves := make(map[string]int) // control address to line
	line, free := 0, 0
	for in.Scan() {
		line++
		if line > maxLines {
			return nil, fmt.Errorf("%s:%d: more than %d lines; this does not look like a list of nodes",
				file, line, maxLines)
		}
		if len(in.Bytes()) > maxLine {
			return nil, tooLong(file, line)
		}
		h, ok, err := parseLine(in.Text())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w; %s", file, line, err, rightLine)
		}
		if !ok {
			continue
		}
		if h.Name == keep {
			free++
			continue
		}
		h.Free, free = free, 0
		if first, dup := seen[h.Name]; dup {
			return nil, fmt.Errorf("%s:%d: node %q is already on line %d; give every node a name of its own",
				file, line, h.Name, first)
		}
		if first, dup := serves[h.Control]; dup {
			return nil, fmt.Errorf("%s:%d: node %q has the address %s of the node on line %d; "+
				"give every node an address or a port of its own", file, line, h.Name, h.Control, first)
		}
		seen[h.Name], serves[h.Control] = line, line
		hosts = append(hosts, h)
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, tooLong(file, line+1)
	} else if err != nil {
		return nil, fmt.Errorf("%s:%d: read the list of nodes: %w", file, line+1, err)
	}
	return hosts, nil
}

func tooLong(file string, line int) error {
	return fmt.Errorf("%s:%d: the line is longer than %d bytes; %s", file, line, maxLine, rightLine)
}

// parseLine reports ok = false for a line that describes no node.
func parseLine(text string) (h Host, ok bool, err error) {
	// No name and no address can hold a #, so the first one is a comment's.
	text, _, _ = strings.Cut(text, "#")
	fields := strings.Fields(text)
	switch len(fields) {
	case 0:
		return Host{}, false, nil
	case 1:
		if fields[0] == keep {
			return Host{Name: keep}, true, nil
		}
		return Host{}, false, errors.New("found 1 field(s), wanted 2 or 3")
	case 2:
		h = Host{Name: fields[0], Control: fields[1], Data: fields[1]}
	case 3:
		h = Host{Name: fields[0], Control: fields[1], Data: fields[2]}
	default:
		return Host{}, false, fmt.Errorf("found %d field(s), wanted 2 or 3", len(fields))
	}
	if err := CheckName(h.Name); err != nil {
		return Host{}, false, fmt.Errorf("node name: %w", err)
	}
	h.Name = Canonical(h.Name)
	if err := checkAddress(h.Control); err != nil {
		return Host{}, false, fmt.Errorf("control address: %w", err)
	}
	if err := checkAddress(h.Data); err != nil {
		return Host{}, false, fmt.Errorf("data address: %w", err)
	}
	return h, true, nil
}

// Format writes nodes in the form that Parse reads. Columns are not aligned:
// padding could push a line that was read over the limit of a line.
func Format(hosts []Host) string {
	var b strings.Builder
	for _, h := range hosts {
		b.WriteString(strings.Repeat(keep+"\n", h.Free))
		b.WriteString(h.Name + " " + h.Control)
		if h.Data != "" && h.Data != h.Control {
			b.WriteString(" " + h.Data)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Lookup finds a node by its name, in whatever case.
func Lookup(hosts []Host, name string) (Host, bool) {
	name = Canonical(name)
	for _, h := range hosts {
		if h.Name == name {
			return h, true
		}
	}
	return Host{}, false
}
