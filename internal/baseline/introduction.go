package baseline

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// The least that a first import on one node costs, whatever makes it, if a third process introduces
// the two: four packets with descriptors, each of which wakes a goroutine in another process (the
// importer polls for the last one, as the library's does), and the pages. The importer makes a page
// and sends its own two. The exporter maps them, makes another page and a socket, and sends these
// with its own page and the buffer's, which the importer maps. There is nothing else: no rights, no
// tables, no message in the packets. bench/c/floor.c does the same in C.

// packetSize is about the size of the library's packets, in bytes.
const packetSize = 300

// Introducer is the process between the two ends: it forwards the messages of either.
type Introducer struct {
	ends [2]*net.UnixConn
	wg   sync.WaitGroup
}

// NewIntroducer starts it and returns the files for the importer and the exporter, which the caller
// closes.
func NewIntroducer() (i *Introducer, importer, exporter *os.File, err error) {
	var files [2]*os.File
	i = &Introducer{}
	for k := range files {
		near, far, err := unix.PacketPair()
		if err == nil {
			files[k] = os.NewFile(uintptr(far), "introducer")
			i.ends[k], err = packets(os.NewFile(uintptr(near), "introducer"))
		}
		if err != nil {
			for _, f := range files {
				if f != nil {
					_ = f.Close()
				}
			}
			i.Close()
			return nil, nil, nil, err
		}
	}
	for k := range i.ends {
		i.wg.Go(func() {
			_ = forEach(i.ends[k], func(fds []int) error { return give(i.ends[1-k], fds) })
			i.hangUp() // the other one would wait
		})
	}
	return i, files[0], files[1], nil
}

// Close ends it.
func (i *Introducer) Close() {
	i.hangUp()
	i.wg.Wait()
}

func (i *Introducer) hangUp() {
	for _, c := range i.ends {
		if c != nil {
			_ = c.Close()
		}
	}
}

// Introduced is one of the two others.
type Introduced struct {
	c    *net.UnixConn
	own  sharedPage // its process page
	wg   sync.WaitGroup
	over sync.Once
	// Of the exporter: the pages of the latest link, released when the next one has come.
	last   []sharedPage
	socket int // Its socket, likewise.
}

// NewImporter takes the importer's file over.
func NewImporter(f *os.File) (*Introduced, error) { return introduced(f) }

// NewExporter takes the exporter's file over, and answers from then on.
func NewExporter(f *os.File) (*Introduced, error) {
	x, err := introduced(f)
	if err != nil {
		return nil, err
	}
	buffer, err := newSharedPage()
	if err != nil {
		x.Close()
		return nil, err
	}
	x.wg.Go(func() {
		defer buffer.drop()
		_ = forEach(x.c, func(fds []int) error { return x.grant(fds, buffer.fd) })
		_ = x.c.Close()
	})
	return x, nil
}

func introduced(f *os.File) (*Introduced, error) {
	c, err := packets(f)
	if err != nil {
		return nil, err
	}
	own, err := newSharedPage()
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &Introduced{c: c, own: own, socket: -1}, nil
}

// Close gives all back. It may be called twice.
func (x *Introduced) Close() {
	x.over.Do(func() {
		_ = x.c.Close()
		x.wg.Wait()
		x.own.drop()
		x.forget()
	})
}

// forget ends what there is of the exporter's latest link.
func (x *Introduced) forget() {
	dropAll(x.last)
	if x.last = nil; x.socket >= 0 {
		_ = unix.Close(x.socket)
		x.socket = -1
	}
}

// grant answers one importer.
func (x *Introduced) grant(fds []int, buffer int) (err error) {
	var made []sharedPage
	defer func() {
		if err != nil {
			dropAll(made)
		}
	}()
	if made, err = openSharedPages(fds); err != nil {
		return err
	}
	back, err := newSharedPage()
	if err != nil {
		return err
	}
	made = append(made, back)
	near, far, err := unix.StreamPair()
	if err != nil {
		return err
	}
	err = give(x.c, []int{buffer, x.own.fd, back.fd, far})
	_ = unix.Close(far)
	x.forget()
	x.last, x.socket = made, near
	made = nil
	return err
}

var errStrange = errors.New("the introducer passes on something else")

// Import is the importer's part, n times: each reports the time of one.
func (x *Introduced) Import(ctx context.Context, n int, each func(time.Duration)) error {
	for range n {
		start := time.Now()
		ring, err := newSharedPage()
		if err != nil {
			return err
		}
		fds, err := x.ask(ctx, ring.fd)
		if err == nil {
			var link []sharedPage
			link, err = openSharedPages(fds[:3])
			dropAll(link)
		}
		ring.drop()
		closeFDs(fds)
		if err != nil {
			return err
		}
		each(time.Since(start))
	}
	return nil
}

// ask sends the importer's pages and polls for the answer.
func (x *Introduced) ask(ctx context.Context, ring int) ([]int, error) {
	if err := give(x.c, []int{x.own.fd, ring}); err != nil {
		return nil, err
	}
	c, err := x.c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var b [packetSize]byte
	oob := make([]byte, unix.RightsSpace(4))
	var start time.Time
	for {
		n, on, flags, ok, err := unix.LookForPacket(c, b[:], oob)
		switch {
		case !ok:
		case err == nil && n == 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		default:
			fds, err := unix.ParseRights(oob[:on], flags)
			if err == nil && (n != packetSize || len(fds) != 4) {
				closeFDs(fds)
				fds, err = nil, errStrange
			}
			return fds, err
		}
		if err := yield(ctx, &start); err != nil {
			return nil, err
		}
	}
}

// packets makes a connection of a file, which it owns.
func packets(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// give sends descriptors, which stay the caller's.
func give(c *net.UnixConn, fds []int) error {
	var b [packetSize]byte
	_, _, err := c.WriteMsgUnix(b[:], unix.Rights(fds), nil)
	return err
}

// forEach calls do with the descriptors of each packet that comes, and closes them, until the other
// end is closed.
func forEach(c *net.UnixConn, do func(fds []int) error) error {
	r, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var b [packetSize]byte
	oob := make([]byte, unix.RightsSpace(4))
	for {
		n, on, flags, err := unix.RecvPacket(r, func() ([]byte, []byte) { return b[:], oob }, func() {})
		if err != nil || n == 0 {
			return err
		}
		fds, err := unix.ParseRights(oob[:on], flags)
		if err == nil {
			err = do(fds)
		}
		closeFDs(fds)
		if err != nil {
			return err
		}
	}
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// sharedPage is a shared page that is touched.
type sharedPage struct {
	fd    int // -1: it was received
	unmap func()
}

// newSharedPage makes one, sealed as all that is shared.
func newSharedPage() (s sharedPage, err error) {
	fd, err := unix.Memfd("vmmc-baseline", int64(shm.PageSize))
	if err != nil {
		return s, err
	}
	if err = unix.Seal(fd, false); err == nil {
		s, err = openSharedPage(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return s, err
	}
	s.fd = fd
	return s, nil
}

// openSharedPage maps a received one, whose descriptor stays the caller's.
func openSharedPage(fd int) (s sharedPage, err error) {
	p, err := unix.Map(fd, shm.PageSize, true, true)
	return sharedPage{-1, func() { _ = unix.Unmap(p, shm.PageSize) }}, err
}

// openSharedPages maps all, or none.
func openSharedPages(fds []int) (all []sharedPage, err error) {
	for _, fd := range fds {
		s, err := openSharedPage(fd)
		if err != nil {
			dropAll(all)
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (s sharedPage) drop() {
	s.unmap()
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
}

func dropAll(all []sharedPage) {
	for _, s := range all {
		s.drop()
	}
}
