package root

import (
	"errors"
	"os"
)

// Places are where a node has its things; "" is what no flag names.
type Places struct {
	Hosts  string // file
	Certs  string // directory
	Socket string
	State  string // directory
}

// Below finds in a root directory the places that were not named, except the socket. A node
// that neither has other nodes nor listens needs no certificate.
func (p *Places) Below(r Dir, listens bool) {
	there := func(path string) bool { _, err := os.Stat(path); return !errors.Is(err, os.ErrNotExist) }
	if p.Hosts == "" && there(r.Hosts()) {
		p.Hosts = r.Hosts()
	}
	if p.Certs == "" && (p.Hosts != "" || listens) && there(r.Certs()) {
		p.Certs = r.Certs()
	}
	if p.State == "" {
		p.State = r.State()
	}
}
