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
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// descriptors keeps the last of them for those who are there already: for the memory
// that they pass, and files. A new one is the lowest that is free, so its number says how
// many there are at least; what processes hold, and will, is counted.
type descriptors struct {
	limit int // 0: not known

	mu     sync.Mutex
	others int // that no process holds, at least: the lowest number that a connection has had
	held   int // by processes, now and when they have brought what they will
	said   time.Time
	more   int                    // refused since
	told   map[bool][]*local.Conn // by whether they administrate the node: others do not drive them out
	users  map[uint32]int         // connections of each user that is bounded

	toldUsers toldLines // of users that have too many
}

// maxTold is how many processes that are refused may be there to hear it, of administrators and of
// others; the oldest goes.
const maxTold = 8

// spare is what is left when a connection has come.
type spare int

const (
	plenty spare = iota
	few          // it is told so
	none         // not even that
)

func ownDescriptors() descriptors {
	l, err := unix.OwnLimits()
	if err != nil {
		return descriptors{}
	}
	limit := int(min(l.Files, 1<<30))
	return descriptors{limit: limit, others: limit}
}

// kept are for those who are there.
func (d *descriptors) kept() int { return min(512, d.limit/4) }

// foreign is how many descriptors may be open that one user's processes have sent. Honest ones have few open, for a moment.
func (d *descriptors) foreign() int { return max(64, d.limit/8) }

// perUser is how many connections one user may have. Each holds heldByMember descriptors, so one user
// has half of them at most, together with what that user has sent and what has not been closed yet.
func (d *descriptors) perUser() int { return max(16, d.limit/(2*heldByMember)) }

// admit counts a connection of a user until leave is called, and reports whether the user may have it.
// Root and the node's own user may have any number: they can end the node anyway.
func (d *descriptors) admit(uid uint32) (leave func(), ok bool) {
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

// tooMany is why a user's connection is refused.
func (n *Node) tooMany(uid uint32) error {
	most := n.descriptors.perUser()
	if more, ok := n.descriptors.toldUsers.take(time.Now()); ok {
		n.driver.Warn("a user has as many connections as one user may have, more are refused", "uid", uid, "most", most, "others", more)
	}
	return code.New(code.NoMem, "user %d has as many connections to node %q as one user may have, %d, or descriptors in the place of some: end some of that user's processes, or raise LimitNOFILE= of vmmcd", uid, n.cfg.Name, most)
}

// after says how many are left behind c. The number of c is not enough for that: those who are taken on in one go each
// bring a descriptor later, which would fill what is kept for as long as they stay; and when others hang up that have low
// numbers, c gets one of those, although what is kept may be full.
func (d *descriptors) after(c syscall.Conn) spare {
	raw, err := c.SyscallConn()
	if err != nil || d.limit == 0 {
		return plenty
	}
	left := d.limit
	if raw.Control(func(fd uintptr) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.others = min(d.others, int(fd))
		left -= max(int(fd)+1, d.others+d.held)
	}) != nil {
		return plenty // it is closed: what comes next finds that out
	}
	switch {
	case left < d.kept()/2:
		return none
	case left < d.kept():
		return few
	}
	return plenty
}

// What a connection of a process holds.
const (
	heldByTold   = 1 // itself
	heldByMember = 2 // and the memory that the process counts in, which comes when it registers
)

// hold books n of them for a process, until letGo is called first.
func (d *descriptors) hold(n int) (letGo func()) {
	add := func(n int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held += n
	}
	add(n)
	return sync.OnceFunc(func() { add(-n) })
}

// hear makes room for a process that will be told.
func (d *descriptors) hear(c *local.Conn, administrates bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := slices.DeleteFunc(d.told[administrates], func(o *local.Conn) bool {
		select {
		case <-o.Done():
			return true
		default:
			return false
		}
	})
	if len(told) >= maxTold {
		told[0].Close()
		told = slices.Delete(told, 0, 1)
	}
	if d.told == nil {
		d.told = map[bool][]*local.Conn{}
	}
	d.told[administrates] = append(told, c)
}

// notAccepted logs why no connection could be taken.
func (n *Node) notAccepted(err error) {
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
	if d.more++; time.Since(d.said) >= timeout.Refused {
		n.driver.Warn("descriptors run out, new connections are refused", "limit", d.limit, "kept", d.kept(), "refused", d.more)
		d.said, d.more = time.Now(), 0
	}
	return code.New(code.NoMem, "node %q has no descriptors for more connections: of %d, the last %d are kept for those that are there; raise LimitNOFILE= of vmmcd, or ulimit -n", n.cfg.Name, d.limit, d.kept())
}
