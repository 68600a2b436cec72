package vmmc_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// A client says what it does after each error of an import.
func ExampleImport_recovery() {
	ctx := context.Background()
	client, server, end := pair(ctx, vmmc.WithImportLimit(128))
	defer end()
	mem, err := server.Alloc(128)
	check(err)
	exp, err := server.Export(1, mem.Bytes()[:64])
	check(err)
	im, err := client.Import(ctx, server.Node(), server.PID(), 1)
	check(err)

	check(exp.Close())
	<-im.Done() // the client has been told
	word := []byte("word")
	fmt.Println(remedy(im.Send(ctx, word, 0)))
	exp, err = server.Export(1, mem.Bytes())
	check(err)
	_, err = im.Rejoin(ctx)
	fmt.Println(remedy(err))
	check(exp.Close())
	_, err = server.Export(1, mem.Bytes()[:32])
	check(err)
	_, err = im.Rejoin(ctx)
	fmt.Println(remedy(err))
	check(server.Close())
	_, err = im.Rejoin(ctx)
	fmt.Println(remedy(err))
	// Output:
	// rejoin: the server exports the buffer again
	// close other imports first
	// ask the server for its new layout, and import that
	// find the server's new process, and rejoin there
}

// remedy is what a client does about an error of an import, or of an operation on one.
func remedy(err error) string {
	switch {
	case err == nil:
		return "go on"
	case errors.Is(err, vmmc.ErrOutcomeUnknown): // and one of the errors below
		return "find out what has arrived before you send it again"
	case errors.Is(err, vmmc.ErrRevoked):
		return "rejoin: the server exports the buffer again"
	case errors.Is(err, vmmc.ErrStaleImport):
		return "ask the server for its new layout, and import that"
	case errors.Is(err, vmmc.ErrPeerGone), errors.Is(err, vmmc.ErrNoSuchProcess):
		return "find the server's new process, and rejoin there"
	case errors.Is(err, vmmc.ErrUnreachable), errors.Is(err, vmmc.ErrNoDaemon),
		errors.Is(err, vmmc.ErrTimeout):
		return "try again later"
	case errors.Is(err, vmmc.ErrNoPhysDestSpace):
		return "close other imports first"
	case errors.Is(err, vmmc.ErrNoRights):
		return "have the server permit it"
	case errors.Is(err, vmmc.ErrProtocol):
		return "leave this server alone: it is broken, or hostile"
	}
	return "mend this program"
}
