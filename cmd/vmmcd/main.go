// Vmmcd is the node daemon of vmmc. See vmmcd --help.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/internal/serve"
)

func main() { os.Exit(serve.Execute(serve.Command("vmmcd"))) }
