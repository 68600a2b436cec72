// Cfgvmmc is the manual's tool for sessions. See cfgvmmc --help.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/internal/cfgvmmc"
	"github.com/vmmc-go/vmmc/internal/serve"
)

func main() { os.Exit(serve.Execute(cfgvmmc.Command())) }
