// FetchBandwidth measures the bandwidth of one node that keeps fetching from another.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/samples/internal/bandwidth"
	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/curve"
)

func main() {
	os.Exit(command.Execute(bandwidth.Program("FetchBandwidth", "one node that keeps fetching from another", curve.Fetch)))
}
