package ask

import (
	"net/http"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// At is the node at an address, as whoever certs is for. Closing gives back the
// connection.
func At(address, certs, name string) (n *Node, closing func(), err error) {
	id, err := cert.Load(certs)
	if err != nil {
		return nil, nil, err
	}
	t := transport(id, name)
	return newNode(name, &http.Client{Transport: t}, hosts.URL(address)), t.CloseIdleConnections, nil
}
