// RandomChain sends messages from one to the next at random among the nodes of a cluster.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/relay"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

const rule = `Each iteration draws one more
rank, never the same twice in a row; in the end the message comes home to A.`

func main() {
	os.Exit(command.Execute(relay.Program("RandomChain", rule, route.Chain)))
}
