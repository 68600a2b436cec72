package vrpc_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/vrpc"
)

// A server takes calls of the users that it knows. A client whose call is refused learns whether
// other credentials help.
func ExampleWithAllow() {
	ctx := context.Background()
	allow := func(ctx context.Context, s *vrpc.Service, procedure uint32) error {
		p, _ := vrpc.PeerOf(ctx)
		switch {
		case procedure == 0: // anyone may ask whether the server is there
			return nil
		case p.Sys == nil:
			return &vrpc.AuthError{Stat: vrpc.AuthTooWeak}
		case p.Sys.UID != 1000:
			return &vrpc.AuthError{Stat: vrpc.AuthRejectedCred}
		}
		return nil
	}
	_, address, end := listen(func(ctx context.Context, _ string) (*line, error) {
		p, _ := vrpc.PeerOf(ctx)
		return &line{fmt.Sprintf("%d in %d and %v of %s by %s",
			p.Sys.UID, p.Sys.GID, p.Sys.GIDs, p.Sys.Machine, p.Addr.Network())}, nil
	}, vrpc.WithAllow(allow))
	defer end()

	for _, opts := range [][]vrpc.ClientOption{
		nil,
		{vrpc.WithAuthSys(vrpc.AuthSys{UID: 13})},
		{vrpc.WithAuthSys(vrpc.AuthSys{
			Stamp: 1, Machine: "here", UID: 1000, GID: 100, GIDs: []uint32{4, 27},
		})},
	} {
		c, err := vrpc.Dial(ctx, "tcp", address, opts...)
		check(err)
		who, err := say(ctx, c, "who am I?")
		var refused *vrpc.AuthError
		if errors.As(err, &refused) {
			fmt.Printf("%v: %s\n", refused.Stat, remedy(refused.Stat))
		} else {
			fmt.Println(who, err)
		}
		check(c.Close())
	}
	// Output:
	// too weak: send AUTH_SYS
	// rejected credential: ask the server's owner for access, or begin a new session
	// 1000 in 100 and [4 27] of here by tcp <nil>
}

// remedy is what a client does about each reason for which a server refuses it.
func remedy(s vrpc.AuthStat) string {
	switch s {
	case vrpc.AuthTooWeak:
		return "send AUTH_SYS"
	case vrpc.AuthRejectedCred, vrpc.AuthRejectedVerf:
		return "ask the server's owner for access, or begin a new session"
	case vrpc.AuthBadCred, vrpc.AuthBadVerf:
		return "mend the client: its credentials are malformed"
	case vrpc.AuthFailed:
		return "see the server's log"
	}
	return "look it up in RFC 5531"
}
