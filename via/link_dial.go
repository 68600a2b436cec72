package via

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// staleTime bounds how long the import of a letterbox that was there a moment ago may take.
const staleTime = 5 * time.Second

// linkTo returns the link with a NIC that has a listener for the address.
func (n *NIC) linkTo(ctx context.Context, remote Address) (*link, error) {
	for {
		found, err := n.find(ctx, listenerName, remote)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fail("", ErrNoMatch, "%v", remote)
		}
		l, err := n.linkAt(ctx, found[rand.IntN(len(found))], staleTime) //nolint:gosec // spreads requests
		if !errors.Is(err, errStale) {
			return l, err
		}
		// A letterbox that was closed is not published any more. A process that is stopped may go on.
		// The attempt has lasted staleTime, as only that makes an error errStale: no pause is needed.
		pair.At("connect.stale")
	}
}

// errStale is the error of a letterbox whose process does not answer.
var errStale = errors.New("what is published there does not answer")

// find returns the letterboxes for an address.
func (n *NIC) find(ctx context.Context, kind string, a Address) (found []vmmc.NameInfo, err error) {
	_, node, err := n.nodeOf(a.Host)
	if err != nil {
		return nil, &Error{Code: ErrNotReachable, Err: err}
	}
	for info, err := range n.p.Names(ctx, publishedName(node, kind, a.Discriminator)) {
		if err != nil {
			return nil, err
		}
		found = append(found, info)
	}
	return found, nil
}

// linkAt returns the link with the NIC that has published a letterbox. stale bounds how long the
// import of that may take: it may have been closed meanwhile.
func (n *NIC) linkAt(ctx context.Context, info vmmc.NameInfo, stale time.Duration) (*link, error) {
	soon, stop := context.WithTimeout(ctx, stale)
	defer stop()
	letterbox, err := n.p.Import(soon, info.Process.Node, info.Process.PID, info.Buffer)
	if err != nil {
		if soon.Err() != nil && ctx.Err() == nil {
			return nil, errors.Join(errStale, err)
		}
		return nil, err
	}
	l, err := n.linkBy(ctx, letterbox)
	return l, errors.Join(err, letterbox.Close())
}

// linkBy returns the link with the NIC that has a letterbox.
func (n *NIC) linkBy(ctx context.Context, letterbox *vmmc.Import) (*link, error) {
	label := letterbox.Label()
	if len(label) != labelSize || string(label[:len(labelMagic)]) != labelMagic ||
		letterbox.Size() != letterboxSize {
		return nil, fail("", ErrNoMatch, "what is published there is no NIC of this version")
	}
	key := peerKey{letterbox.Exporter(), binary.LittleEndian.Uint32(label[len(labelMagic):])}
	if err := n.dials.Acquire(ctx); err != nil {
		return nil, err
	}
	defer n.dials.Release()
	if n.ctx.Err() != nil {
		return nil, errNICClosed("")
	}
	for _, l := range n.linkList() {
		if l.key == key {
			return l, nil
		}
	}
	l, err := n.newLink(key.process)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(n.ctx, stop)()
	defer stop()
	im, err := pair.Dial(ctx, n.p, letterbox, 0, l.own)
	if err == nil {
		if err = l.join(ctx, im); err == nil {
			err = l.start()
		}
		if err != nil {
			err = errors.Join(err, im.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.closeBuffer())
	}
	return l, nil
}

// acceptLink makes the link with a NIC that dials.
func (n *NIC) acceptLink(theirs *vmmc.Import) (uint32, error) {
	l, err := n.newLink(theirs.Exporter())
	if err != nil {
		return 0, err
	}
	if err = l.join(n.ctx, theirs); err == nil {
		err = l.start()
	}
	if err != nil {
		return 0, errors.Join(err, l.closeBuffer())
	}
	return l.own.ID(), nil
}
