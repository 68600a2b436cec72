// PPBandwidth measures the bandwidth of ping-pong between two nodes.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/samples/internal/bandwidth"
	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/curve"
)

func main() {
	os.Exit(command.Execute(bandwidth.Program("PPBandwidth", "ping-pong between two nodes", curve.PingPong)))
}
