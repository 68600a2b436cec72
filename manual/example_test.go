package manual_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// What the library does, on standard error.
func ExampleSetDebugLevel() {
	manual.SetDebugLevel(1)
	defer manual.SetDebugLevel(0)
	socket := filepath.Join(os.TempDir(), "no node's socket")
	_, err := vmmc.Open(context.Background(), vmmc.WithSocket(socket), vmmc.WithLogger(manual.Logger(nil)))
	fmt.Println(errors.Is(err, vmmc.ErrNoDaemon))
	// Output: true
}

// The manual's numbers and texts.
func ExampleErrorStr() {
	for _, c := range []vmmc.Code{manual.Success, manual.ErrBadProxyExtension, manual.ErrUnblockedNotifications, manual.ErrNoVirtDestSpace, manual.ErrNoSuchError} {
		fmt.Println(int(c), manual.ErrorStr(c))
	}
	fmt.Println(manual.Version())
	// Output:
	// 0 success
	// -5 the DestSpace reservation could not be grown
	// -10 notifications are not blocked
	// -13 the DestSpace addresses are used up
	// -20 no such error
	// 2 0
}
