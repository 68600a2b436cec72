package vmmc

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// ProxyAddr is an address in DestSpace, the imaginary address space in which a process's imports
// lie (the manual's destination proxy space). Each import is a contiguous range of it, one address
// a byte, that begins at [Import.Addr]; address arithmetic within the range is ordinary arithmetic.
// No memory is behind an address, and none equals an address of the process's own memory: it only
// says where in which import data goes. The range of an import that was closed is never given out
// again, so an address kept too long is an error and never another buffer. 0 is no address.
type ProxyAddr uint64

// String is the address in hexadecimal.
func (a ProxyAddr) String() string { return fmt.Sprintf("%#x", uint64(a)) }

// destSpace holds a process's imports in the order of their addresses. A lookup takes no lock: a
// change replaces the whole list.
type destSpace struct {
	mu   sync.Mutex
	next uint64
	list atomic.Pointer[[]*Import]
}

// destBase is the first address given out, so that 0 and small numbers are in no range.
const destBase = 1 << 32

// add gives im a range behind all earlier ones. At least one page between two ranges is in none.
func (d *destSpace) add(im *Import) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == 0 {
		d.next = destBase
	}
	room := uint64(shm.RoundUp(im.size)) + uint64(shm.PageSize)
	if room > math.MaxUint64-d.next {
		return code.NoVirtDestSpace
	}
	im.addr = ProxyAddr(d.next)
	d.next += room
	list := slices.Concat(d.all(), []*Import{im})
	if invariant.Enabled {
		checkSpace(list, d.next)
	}
	d.list.Store(&list)
	return nil
}

func (d *destSpace) all() []*Import {
	if p := d.list.Load(); p != nil {
		return *p
	}
	return nil
}

func (d *destSpace) remove(im *Import) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(d.all()), func(o *Import) bool { return o == im })
	if invariant.Enabled {
		checkSpace(list, d.next)
	}
	d.list.Store(&list)
}

// find returns the import that contains a, and the offset in it.
func (d *destSpace) find(a ProxyAddr) (im *Import, off int, err error) {
	list := d.all()
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].addr <= a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || uint64(a-list[lo-1].addr) >= uint64(list[lo-1].size) {
		return nil, 0, code.New(code.BadProxyAddr, "no import is at %v", a)
	}
	im = list[lo-1]
	return im, int(a - im.addr), nil
}

// Addr is where the import begins in DestSpace.
func (im *Import) Addr() ProxyAddr { return im.addr }

// Lookup finds the import that an address of DestSpace belongs to, and the byte
// offset in it. The error is [ErrBadProxyAddr].
func (p *Process) Lookup(a ProxyAddr) (*Import, int, error) {
	im, off, err := p.destSpace.find(a)
	if err != nil {
		return nil, 0, fail(fmt.Sprintf("look up %v", a), err)
	}
	return im, off, nil
}

// Send is [Import.Send] to an address of DestSpace (vmmc_SendData). The whole
// range must lie in one import, else the error is [ErrBadProxyAddr]: also when it
// begins in one import and ends in another.
func (p *Process) Send(ctx context.Context, src []byte, dst ProxyAddr) error {
	im, off, err := p.destSpace.find(dst)
	if err != nil {
		return fail(fmt.Sprintf("send %d bytes", len(src)), err)
	}
	return im.Send(ctx, src, off)
}

// SendNotify is [Import.SendNotify] to an address of DestSpace (vmmc_SendDataNotify).
func (p *Process) SendNotify(ctx context.Context, src []byte, dst ProxyAddr) error {
	im, off, err := p.destSpace.find(dst)
	if err != nil {
		return fail(fmt.Sprintf("send %d bytes with notification", len(src)), err)
	}
	return im.SendNotify(ctx, src, off)
}

// Get is [Import.Get] from an address of DestSpace (vmmc_GetData).
func (p *Process) Get(ctx context.Context, dst []byte, src ProxyAddr) error {
	im, off, err := p.destSpace.find(src)
	if err != nil {
		return fail(fmt.Sprintf("get %d bytes", len(dst)), err)
	}
	return im.Get(ctx, dst, off)
}

// SendAsync is [Import.SendAsync] to an address of DestSpace (vmmc_SendDataAsync).
func (p *Process) SendAsync(ctx context.Context, src []byte, dst ProxyAddr) (Request, error) {
	im, off, err := p.destSpace.find(dst)
	if err != nil {
		return Request{}, fail(fmt.Sprintf("begin to send %d bytes", len(src)), err)
	}
	return im.SendAsync(ctx, src, off)
}

// SendNotifyAsync is [Import.SendNotifyAsync] to an address of DestSpace
// (vmmc_SendDataAsyncNotify).
func (p *Process) SendNotifyAsync(ctx context.Context, src []byte, dst ProxyAddr) (Request, error) {
	im, off, err := p.destSpace.find(dst)
	if err != nil {
		return Request{}, fail(fmt.Sprintf("begin to send %d bytes with notification", len(src)), err)
	}
	return im.SendNotifyAsync(ctx, src, off)
}

// GetAsync is [Import.GetAsync] from an address of DestSpace (vmmc_GetDataAsync).
func (p *Process) GetAsync(ctx context.Context, dst []byte, src ProxyAddr) (Request, error) {
	im, off, err := p.destSpace.find(src)
	if err != nil {
		return Request{}, fail(fmt.Sprintf("begin to get %d bytes", len(dst)), err)
	}
	return im.GetAsync(ctx, dst, off)
}

// checkSpace: ranges ascend, do not touch, and end before what is given out next.
func checkSpace(list []*Import, next uint64) {
	end := uint64(destBase)
	for _, im := range list {
		invariant.Check(uint64(im.addr) >= end, "an import at %v, the one before ends at %#x", im.addr, end)
		end = uint64(im.addr) + uint64(shm.RoundUp(im.size)) + uint64(shm.PageSize)
	}
	invariant.Check(len(list) == 0 || end <= next, "imports end at %#x, the next begins at %#x", end, next)
}
