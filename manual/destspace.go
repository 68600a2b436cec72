package manual

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
)

// ProxyAddr is an address in a [DestSpace]. 0 is no address.
type ProxyAddr uint64

// String is the address in hexadecimal.
func (a ProxyAddr) String() string { return fmt.Sprintf("%#x", uint64(a)) }

// DestSpace is the imaginary address space in which a process's imports lie (the manual's
// destination proxy space). Each import that was added is a contiguous range of it, one address a
// byte; address arithmetic within the range is ordinary arithmetic. No memory is behind an address,
// and none equals an address of the process's own memory: it only says where in which import data
// goes. A range that was removed is never given out again, so an address kept too long is an error
// and never another buffer.
//
// The zero value is an empty space. All methods may be called concurrently. Finding an address
// takes no lock and allocates nothing. A space keeps its imports until they are removed: call
// Remove when an import is closed.
type DestSpace struct {
	mu     sync.Mutex
	next   uint64 // where the next range begins, less firstAddr. Guarded by mu.
	ranges atomic.Pointer[[]addrRange]
}

// addrRange is what one import has of the space.
type addrRange struct {
	begin ProxyAddr
	im    *vmmc.Import
}

const (
	firstAddr = 1 << 32 // 0 and small numbers are in no range
	between   = 1 << 12 // ranges begin at multiples of it, and at least as much is unused between two
)

// Add gives im a range and returns the range's first address. An import that is added twice has two
// ranges. It fails with [ErrNoVirtDestSpace] when the addresses are used up, and for a nil import
// with [vmmc.ErrBadArg].
func (d *DestSpace) Add(im *vmmc.Import) (ProxyAddr, error) {
	const op = "add an import to DestSpace"
	if im == nil {
		return 0, fail(op, vmmc.ErrBadArg, "there is no import")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	begin, room := firstAddr+d.next, (uint64(im.Size())+2*between-1)&^(between-1)
	if room > math.MaxUint64-begin {
		return 0, fail(op, ErrNoVirtDestSpace, ErrNoVirtDestSpace.Error())
	}
	d.next += room
	all := slices.Concat(d.all(), []addrRange{{ProxyAddr(begin), im}}) // finds go on with the old list
	d.ranges.Store(&all)
	return ProxyAddr(begin), nil
}

// Remove takes all of im's ranges back (a part of vmmc_UnimportRecvBuf). Close does not: until
// Remove, calls on addresses of a closed import fail with [vmmc.ErrClosed], afterwards with
// [vmmc.ErrBadProxyAddr].
func (d *DestSpace) Remove(im *vmmc.Import) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(d.all()), func(r addrRange) bool { return r.im == im })
	d.ranges.Store(&all)
}

func (d *DestSpace) all() []addrRange {
	if p := d.ranges.Load(); p != nil {
		return *p
	}
	return nil
}

// find returns the import that contains a, and the offset in it, or a nil import.
func (d *DestSpace) find(a ProxyAddr) (*vmmc.Import, int) {
	all := d.all()
	lo, hi := 0, len(all)
	for lo < hi {
		if mid := (lo + hi) / 2; all[mid].begin <= a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || uint64(a-all[lo-1].begin) >= uint64(all[lo-1].im.Size()) {
		return nil, 0
	}
	return all[lo-1].im, int(a - all[lo-1].begin)
}

func noImport(op string, n int, a ProxyAddr) error {
	return fail(fmt.Sprintf("%s %d bytes at %v", op, n, a), vmmc.ErrBadProxyAddr, "no import is there")
}

// Lookup returns the import that an address belongs to and the byte offset in it. The error is
// [vmmc.ErrBadProxyAddr].
func (d *DestSpace) Lookup(a ProxyAddr) (*vmmc.Import, int, error) {
	im, off := d.find(a)
	if im == nil {
		return nil, 0, fail(fmt.Sprintf("look up %v", a), vmmc.ErrBadProxyAddr, "no import is there")
	}
	return im, off, nil
}

// Send is [vmmc.Import.Send] to an address (vmmc_SendData). The whole range lies in one import:
// otherwise, or where there is none, the error is [vmmc.ErrBadProxyAddr].
func (d *DestSpace) Send(ctx context.Context, src []byte, dst ProxyAddr) error {
	im, off := d.find(dst)
	if im == nil {
		return noImport("send", len(src), dst)
	}
	return im.Send(ctx, src, off)
}

// SendNotify is [vmmc.Import.SendNotify] to an address (vmmc_SendDataNotify).
func (d *DestSpace) SendNotify(ctx context.Context, src []byte, dst ProxyAddr) error {
	im, off := d.find(dst)
	if im == nil {
		return noImport("send", len(src), dst)
	}
	return im.SendNotify(ctx, src, off)
}

// Get is [vmmc.Import.Get] from an address (vmmc_GetData).
func (d *DestSpace) Get(ctx context.Context, dst []byte, src ProxyAddr) error {
	im, off := d.find(src)
	if im == nil {
		return noImport("get", len(dst), src)
	}
	return im.Get(ctx, dst, off)
}

// SendAsync is [vmmc.Import.SendAsync] to an address (vmmc_SendDataAsync).
func (d *DestSpace) SendAsync(
	ctx context.Context, src []byte, dst ProxyAddr,
) (vmmc.Request, error) {
	im, off := d.find(dst)
	if im == nil {
		return vmmc.Request{}, noImport("send", len(src), dst)
	}
	return im.SendAsync(ctx, src, off)
}

// SendNotifyAsync is [vmmc.Import.SendNotifyAsync] to an address (vmmc_SendDataAsyncNotify).
func (d *DestSpace) SendNotifyAsync(
	ctx context.Context, src []byte, dst ProxyAddr,
) (vmmc.Request, error) {
	im, off := d.find(dst)
	if im == nil {
		return vmmc.Request{}, noImport("send", len(src), dst)
	}
	return im.SendNotifyAsync(ctx, src, off)
}

// GetAsync is [vmmc.Import.GetAsync] from an address (vmmc_GetDataAsync).
func (d *DestSpace) GetAsync(ctx context.Context, dst []byte, src ProxyAddr) (vmmc.Request, error) {
	im, off := d.find(src)
	if im == nil {
		return vmmc.Request{}, noImport("get", len(dst), src)
	}
	return im.GetAsync(ctx, dst, off)
}

func fail(op string, c vmmc.Code, why string) error {
	return &vmmc.Error{Op: op, Code: c, Err: errors.New(why)}
}
