package directory

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// replicas is how many directory nodes a name has, in a cluster that has as many nodes.
const replicas = 3

// View is a list of nodes. It does not change.
type View struct {
	Digest uint64 // of the names, in whatever order they came
	nodes  []string
	hashes []uint64
}

// NewView returns the view of nodes.
func NewView(nodes []string) *View {
	v := &View{nodes: slices.Clone(nodes)}
	slices.Sort(v.nodes)
	for _, n := range v.nodes {
		v.hashes = append(v.hashes, hash(n))
	}
	v.Digest = hash(strings.Join(v.nodes, "\n"))
	return v
}

// hash is the same on all machines and in all releases.
func hash(parts ...string) uint64 {
	h := sha256.New()
	for _, p := range parts {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(p)))
		h.Write([]byte(p))
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// mix spreads the bits of x: the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Alone reports whether there is one node at most.
func (v *View) Alone() bool { return len(v.nodes) < 2 }

// has reports whether the node is in the view.
func (v *View) has(node string) bool {
	_, there := slices.BinarySearch(v.nodes, node)
	return there
}

// without returns the nodes that another view lacks.
func (v *View) without(o *View) (nodes []string) {
	for _, n := range v.nodes {
		if !o.has(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Set returns the directory nodes of a name, in descending order of their rendezvous weight.
func (v *View) Set(k Key) []string {
	type weighed struct {
		weight uint64
		at     int // of equal weights the first in the order of names precedes
	}
	n := replicas
	if len(v.nodes) < n {
		n = min(1, len(v.nodes))
	}
	best := make([]weighed, 0, replicas+1)
	key := hash(k.User, k.Session, k.Name)
	for i, h := range v.hashes {
		w := weighed{mix(h ^ key), i}
		at := len(best)
		for at > 0 && best[at-1].weight < w.weight {
			at--
		}
		if at < n {
			best = slices.Insert(best, at, w)
			best = best[:min(n, len(best))]
		}
	}
	set := make([]string, len(best))
	for i, b := range best {
		set[i] = v.nodes[b.at]
	}
	return set
}

// isDirectory reports whether a node is a directory node of the name.
func (v *View) isDirectory(node string, k Key) bool { return slices.Contains(v.Set(k), node) }

// quorum is how many of a set must register a claim.
func quorum(set []string) int { return len(set)/2 + 1 }
