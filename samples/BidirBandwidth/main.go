// BidirBandwidth measures the bandwidth of two nodes that send to each other at the
// same time.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/samples/internal/bandwidth"
	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/curve"
)

func main() {
	os.Exit(command.Execute(bandwidth.Program("BidirBandwidth", "two nodes that send to each other at the same time", curve.Bidir)))
}
