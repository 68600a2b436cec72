// Vrpcgen makes Go of .x files, the RPC language. See vrpcgen --help.
package main

import (
	"os"

	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/vrpcgen"
)

func main() {
	c := vrpcgen.Command()
	c.SetArgs(vrpcgen.Arguments(os.Args[1:]))
	os.Exit(serve.Execute(c))
}
