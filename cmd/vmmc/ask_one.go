package main

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func isMissing(err error) bool {
	return errors.Is(err, code.NoSuchProcess) || errors.Is(err, code.NoSuchSession)
}

// mostTelling leaves out the nodes without the session if others have it, and
// all but one that say the same.
func mostTelling(errs []error) []error {
	for _, err := range errs {
		if errors.Is(err, code.NoSuchProcess) {
			return []error{err}
		}
	}
	return errs[:min(1, len(errs))]
}

// having finds the node that has a process.
func (a *askAt) having(ctx context.Context, session string, pid uint32) (*asked, error) {
	var mu sync.Mutex
	var found *asked
	errs := a.each(func(_ int, n *asked) error {
		_, err := n.client.Wait(ctx, connect.NewRequest(&nodev1.WaitRequest{Session: session, Pid: pid}))
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			found = n
		}
		return err
	})
	if found != nil {
		return found, nil
	}
	return nil, failure("find the process", onlyOne(errs))
}
