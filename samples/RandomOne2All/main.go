// RandomOne2All sends messages from one to all others and back to another one among the nodes of a
// cluster.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/relay"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

const rule = `Each iteration draws
one more rank, never the same twice in a row; in the end all send to A.`

func main() {
	os.Exit(command.Execute(relay.Program("RandomOne2All", rule, route.One2All)))
}
