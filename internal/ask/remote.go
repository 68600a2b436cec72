package ask

import (
	"net"
	"net/http"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// At returns the node at an address, for a client with the identity in certs. closing gives the
// connection back.
func At(address, certs, name string) (n *Node, closing func(), err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, nil, serve.Usage("--remote %s: wanted host:port: %w", address, err)
	}
	if err := hosts.CheckName(name); err != nil {
		return nil, nil, serve.Usage("--node %s: %w", name, err)
	}
	id, err := cert.Load(certs)
	if err != nil {
		return nil, nil, serve.Flag("certs", certs, err)
	}
	t := transport(id, name)
	return newNode(name, &http.Client{Transport: t}, hosts.URL(address)), t.CloseIdleConnections, nil
}
