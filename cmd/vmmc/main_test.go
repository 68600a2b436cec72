package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmmc-go/vmmc/internal/cfgvmmc"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/vrpcgen"
)

func TestMain(m *testing.M) {
	testscript.Main(testutil.Checked(m), map[string]func(){
		"vmmc": func() {
			leashed()
			main()
		},
		"mpiexec": func() {
			leashed()
			main()
		},
		"cfgvmmc": func() {
			leashed()
			os.Exit(serve.Execute(cfgvmmc.Command()))
		},
		"vmmcd": func() {
			leashed()
			os.Exit(serve.Execute(serve.Command("vmmcd")))
		},
		"talker": func() {
			leashed()
			os.Exit(talker())
		},
		"crowd": func() {
			leashed()
			os.Exit(crowd())
		},
		"vrpcgen": func() { os.Exit(serve.Execute(vrpcgen.Command())) },
		"gather":  func() { os.Exit(gather()) },
		"member":  func() { os.Exit(member()) },
		"mpirank": func() { os.Exit(mpirank()) },
		"nester":  func() { os.Exit(nester()) },
		"lister":  func() { os.Exit(lister()) },
		"viatalker": func() {
			leashed()
			os.Exit(viatalker())
		},
		"joiner": func() {
			leashed()
			os.Exit(joiner())
		},
	})
}
