// RandomAll2All sends messages from all to all, in random order, among the nodes of a cluster.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/relay"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

const rule = `Each iteration is one All->All:
all ranks send one message to each other one, in random order.`

func main() {
	os.Exit(command.Execute(relay.Program("RandomAll2All", rule, route.All2All)))
}
