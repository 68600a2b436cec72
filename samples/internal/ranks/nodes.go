package ranks

import "slices"

// Choose gives the nodes of n processes, the master's own first: those that follow
// it in hosts, wrapping around as often as needed. If own is none of hosts, the
// others begin at the first of these.
func Choose[Node comparable](hosts []Node, own Node, n int) []Node {
	at := slices.Index(hosts, own) // -1 makes the second process the first host's
	out := []Node{own}
	for k := 1; k < n; k++ {
		if len(hosts) == 0 {
			out = append(out, own)
			continue
		}
		out = append(out, hosts[(at+k)%len(hosts)])
	}
	return out[:n]
}
