// OnewayBandwidth measures the bandwidth of one node that keeps sending to another.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/samples/internal/bandwidth"
	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/curve"
)

func main() {
	os.Exit(command.Execute(bandwidth.Program("OnewayBandwidth", "one node that keeps sending to another", curve.Oneway)))
}
