package daemon

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// descriptorBudget keeps the last of them for those who are there already: for the memory
// that they pass, and files. A new one is the lowest that is free, so its number says how
// many there are at least; what processes hold, and will, is counted.
type descriptorBudget struct {
	limit int // 0: not known

	mu           sync.Mutex
	lowestOther  int // that no process holds, at least: the lowest number that a connection has had
	held         int // by processes, now and when they have brought what they will
	loggedAt     time.Time
	suppressed   int                        // refused since
	refusedConns map[bool][]*nodeproto.Conn // by whether they administrate the node: others do not drive them out
	users        map[uint32]int             // connections of each user that is bounded

	userLog logLimiter // of users that have too many
}

// maxRefusedConns is how many processes that are refused may be there to hear it, of administrators and of
// others; the oldest goes.
const maxRefusedConns = 8

// headroom is what is left when a connection has come.
type headroom int

const (
	plenty      headroom = iota
	reserveOnly          // it is told so
	exhausted            // not even that
)

func ownDescriptors() descriptorBudget {
	l, err := unix.OwnLimits()
	if err != nil {
		return descriptorBudget{}
	}
	limit := int(min(l.Files, 1<<30))
	return descriptorBudget{limit: limit, lowestOther: limit}
}

// reserve are for those who are there.
func (d *descriptorBudget) reserve() int { return min(512, d.limit/4) }

// perUserReceived is how many descriptors may be open that one user's processes have sent. Honest ones have few open, for a moment.
func (d *descriptorBudget) perUserReceived() int { return max(64, d.limit/8) }

// perUser is how many connections one user may have. Each holds heldByMember descriptors, so one user
// has half of them at most, together with what that user has sent and what has not been closed yet.
func (d *descriptorBudget) perUser() int { return max(16, d.limit/(2*heldByMember)) }

// admitUser counts a connection of a user until leave is called, and reports whether the user may have it.
// Root and the node's own user may have any number: they can end the node anyway.
func (d *descriptorBudget) admitUser(uid uint32) (leave func(), ok bool) {
	if d.limit == 0 || uid == 0 || int(uid) == os.Getuid() {
		return func() {}, true
	}
	from := foreign.User(uid)
	sent := from.Held() // connections among them that have ended, and in which descriptors are queued
	from.Release()
	d.mu.Lock()
	defer d.mu.Unlock()
	if heldByMember*d.users[uid]+sent >= heldByMember*d.perUser() {
		return nil, false
	}
	if d.users == nil {
		d.users = map[uint32]int{}
	}
	d.users[uid]++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.users[uid]--; d.users[uid] == 0 {
			delete(d.users, uid)
		}
	}), true
}

// tooManyConns is why a user's connection is refused.
func (n *Node) tooManyConns(uid uint32) error {
	most := n.descriptors.perUser()
	if more, ok := n.descriptors.userLog.allow(time.Now()); ok {
		n.driver.Warn("a user has as many connections as one user may have, more are refused", "uid", uid, "most", most, "others", more)
	}
	return code.New(code.NoMem, "user %d has as many connections to node %q as one user may have, %d, or descriptors in the place of some: end some of that user's processes, or raise LimitNOFILE= of vmmcd", uid, n.cfg.Name, most)
}

// headroomAfter says how many are left behind c. The number of c is not enough for that: those who are taken on in one go each
// bring a descriptor later, which would fill what is kept for as long as they stay; and when others hang up that have low
// numbers, c gets one of those, although what is kept may be full.
func (d *descriptorBudget) headroomAfter(c syscall.Conn) headroom {
	raw, err := c.SyscallConn()
	if err != nil || d.limit == 0 {
		return plenty
	}
	left := d.limit
	if raw.Control(func(fd uintptr) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lowestOther = min(d.lowestOther, int(fd))
		left -= max(int(fd)+1, d.lowestOther+d.held)
	}) != nil {
		return plenty // it is closed: what comes next finds that out
	}
	switch {
	case left < d.reserve()/2:
		return exhausted
	case left < d.reserve():
		return reserveOnly
	}
	return plenty
}

// What a connection of a process holds.
const (
	heldByRefused = 1 // itself
	heldByMember  = 2 // and the memory that the process counts in, which comes when it registers
)

// reserveFor books n of them for a process, until releaseDescriptors is called first.
func (d *descriptorBudget) reserveFor(n int) (letGo func()) {
	add := func(n int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held += n
	}
	add(n)
	return sync.OnceFunc(func() { add(-n) })
}

// admitRefused makes room for a process that will be told.
func (d *descriptorBudget) admitRefused(c *nodeproto.Conn, administrates bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := slices.DeleteFunc(d.refusedConns[administrates], func(o *nodeproto.Conn) bool {
		select {
		case <-o.Done():
			return true
		default:
			return false
		}
	})
	if len(told) >= maxRefusedConns {
		told[0].Close()
		told = slices.Delete(told, 0, 1)
	}
	if d.refusedConns == nil {
		d.refusedConns = map[bool][]*nodeproto.Conn{}
	}
	d.refusedConns[administrates] = append(told, c)
}

// logAcceptError logs why no connection could be taken.
func (n *Node) logAcceptError(err error) {
	if errors.Is(err, syscall.EMFILE) {
		_ = n.outOfDescriptors()
		return
	}
	n.driver.Warn("accept", "err", err)
}

// outOfDescriptors logs that a connection is refused, once a minute, and is why.
func (n *Node) outOfDescriptors() error {
	d := &n.descriptors
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suppressed++; time.Since(d.loggedAt) >= timeout.Refused {
		n.driver.Warn("descriptors run out, new connections are refused", "limit", d.limit, "kept", d.reserve(), "refused", d.suppressed)
		d.loggedAt, d.suppressed = time.Now(), 0
	}
	return code.New(code.NoMem, "node %q has no descriptors for more connections: of %d, the last %d are kept for those that are there; raise LimitNOFILE= of vmmcd, or ulimit -n", n.cfg.Name, d.limit, d.reserve())
}
