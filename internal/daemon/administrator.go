package daemon

import (
	"os"
	"slices"
)

// administrates says whether who asks may look after the node: read its own logs,
// take its links down and up. That is root, the user whom the daemon runs as, and
// whom Config.Admins names. It gives nobody a say in other users' sessions.
func (n *Node) administrates(c caller) bool {
	own := uint32(os.Getuid())
	return c.admin() || c.cred != nil && c.cred.UID == own || c.user != "" && (c.user == userName(own) || slices.Contains(n.cfg.Admins, c.user))
}
