package vrpc_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// A test calls a service without a network: a Registrar that is the Caller too takes the server's
// place.
func ExampleCaller() {
	ctx := context.Background()
	var l local
	check(register(&l))

	fmt.Println(say(ctx, &l, "bread"))
	_, err := say(ctx, &l, "caviar")
	fmt.Println(errors.Is(err, vrpc.ErrNoResult))
	err = l.Call(ctx, 0x20000100, 1, 7, xdr.Void{}, xdr.Void{})
	fmt.Println(errors.Is(err, vrpc.ErrProcUnavail))
	// Output:
	// 3.20 <nil>
	// true
	// true
}

// register is the same for servers and for tests.
func register(r vrpc.Registrar) error {
	prices := map[string]*line{"bread": {"3.20"}}
	return r.Register(speaker(func(_ context.Context, text string) (*line, error) {
		return prices[text], nil
	}))
}

// local has the services of a test.
type local []*vrpc.Service

func (l *local) Register(s *vrpc.Service) error {
	*l = append(*l, s)
	return nil
}

func (l *local) Call(ctx context.Context, prog, vers, proc uint32,
	args xdr.Marshaler, res xdr.Unmarshaler,
) error {
	err := vrpc.ErrProgUnavail
	for _, s := range *l {
		if s.Program != prog || s.Version != vers {
			continue
		}
		err = vrpc.ErrProcUnavail
		for _, p := range s.Procedures {
			if p.Number == proc {
				return run(ctx, p.New(), args, res)
			}
		}
	}
	return &vrpc.Error{Peer: "this process", Program: prog, Version: vers, Procedure: proc, Err: err}
}

// run does what a server does with a call, and the client with its reply.
func run(ctx context.Context, c vrpc.Call, args xdr.Marshaler, res xdr.Unmarshaler) error {
	request, err := xdr.Marshal(args)
	if err != nil {
		return err
	}
	if err := xdr.Unmarshal(request, c); err != nil {
		return errors.Join(vrpc.ErrGarbageArgs, err)
	}
	if err := c.Do(ctx); err != nil {
		return err
	}
	reply, err := xdr.Marshal(c)
	if err != nil {
		return err
	}
	return xdr.Unmarshal(reply, res)
}
