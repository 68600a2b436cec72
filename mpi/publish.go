package mpi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
)

// A published name is an export whose label is the port. Its name has the service's hash: services
// have any length and any characters, and names have not.

// lookupBound is how long the rank that has published a name may take to answer.
const lookupBound = 5 * time.Second

// publication is a name that this rank has published.
type publication struct {
	port string
	mem  *vmmc.Memory
	e    *vmmc.Export
}

func (n *publication) close() error { return errors.Join(n.e.Close(), n.mem.Close()) }

// serviceName is the name that the library knows for a service.
func serviceName(service string) string {
	sum := sha256.Sum256([]byte(service))
	return "/.mpi.service." + hex.EncodeToString(sum[:])
}

// PublishName publishes a port under the name of a service, for [Comm.LookupName] at ranks of the same
// user and session, in the whole cluster (MPI_Publish_name, chapter Process Creation and Management).
// The name ends with UnpublishName, with Finalize, and with this rank. [ErrPort]: it is no name of a
// port; [ErrService]: the name is published already.
//
// Experimental: it may change in any release.
func (c *Comm) PublishName(ctx context.Context, service, port string) (err error) {
	defer func() { err = c.raise(err) }()
	const op = "MPI_Publish_name"
	if ctx == nil {
		return fail(op, "ctx", ErrArg, "the context is nil")
	}
	if err := checkPort(port); err != nil {
		return wrapAs(op, err)
	}
	j := c.j.home()
	p, err := j.process(ctx)
	if err != nil {
		return wrapAs(op, err)
	}
	n := &publication{port: port}
	if n.mem, err = p.Alloc(vmmc.PageSize()); err != nil {
		return wrap(op, err)
	}
	n.e, err = p.Publish(ctx, serviceName(service), n.mem.Bytes(), vmmc.WithLabel([]byte(port)))
	if err != nil {
		err = errors.Join(err, n.mem.Close())
		if errors.Is(err, vmmc.ErrNameTaken) {
			return fail(op, "service_name", ErrService, "%.64q is published already: %w", service, err)
		}
		return wrap(op, err)
	}
	j.bmu.Lock()
	defer j.bmu.Unlock()
	if j.names == nil {
		j.names = map[string]*publication{}
	}
	j.names[service] = n
	return nil
}

// UnpublishName ends a name that this rank has published for a port (MPI_Unpublish_name).
// [ErrService]: it has not.
//
// Experimental: it may change in any release.
func (c *Comm) UnpublishName(service, port string) (err error) {
	defer func() { err = c.raise(err) }()
	const op = "MPI_Unpublish_name"
	j := c.j.home()
	j.bmu.Lock()
	n := j.names[service]
	found := n != nil && n.port == port
	if found {
		delete(j.names, service)
	}
	j.bmu.Unlock()
	if !found {
		return fail(op, "service_name", ErrService, "this rank has not published %.64q for port %.64q", service, port)
	}
	return wrap(op, n.close())
}

// LookupName returns the port that is published under the name of a service (MPI_Lookup_name). It does
// not wait for the name. [ErrName]: no rank of this user and session has published it, or the one
// that has does not answer.
//
// Experimental: it may change in any release.
func (c *Comm) LookupName(ctx context.Context, service string) (_ string, err error) {
	defer func() { err = c.raise(err) }()
	const op = "MPI_Lookup_name"
	if ctx == nil {
		return "", fail(op, "ctx", ErrArg, "the context is nil")
	}
	p, err := c.j.home().process(ctx)
	if err != nil {
		return "", wrapAs(op, err)
	}
	found, err := published(ctx, p, serviceName(service))
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fail(op, "", ErrCanceled, "look up %.64q: %w", service, err)
	case err != nil:
		return "", fail(op, "service_name", ErrName, "%.64q: %w", service, err)
	}
	return found, nil
}

// published is the label of the export that has a name.
func published(ctx context.Context, p *vmmc.Process, name string) (string, error) {
	for info, err := range p.Names(ctx, name) {
		if err != nil {
			return "", err
		}
		ctx, stop := context.WithTimeout(ctx, lookupBound)
		defer stop()
		im, err := p.Import(ctx, info.Process.Node, info.Process.PID, info.Buffer)
		if err != nil {
			return "", err
		}
		label := string(im.Label())
		if err := im.Close(); err != nil {
			return "", err
		}
		if checkPort(label) != nil {
			return "", fmt.Errorf("%v has published %.64q, which is no port", info.Process, label)
		}
		return label, nil
	}
	return "", errors.New("no rank of this user and session has published it")
}
