package ingress

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Descriptors reserves the last descriptors for connected processes: for the memory that they
// pass, and for files. The kernel gives out the lowest free number, so a connection's number is a
// lower bound of the descriptors in use; descriptors that processes hold, or will hold, are
// counted.
type Descriptors struct {
	node  string
	logs  *systemlog.Logs
	limit int // 0: not known

	mu sync.Mutex
	// Lower bound of descriptors that no process holds: the lowest number that a connection had.
	lowestOther int
	held        int // reserved for processes, including what they will still bring
	loggedAt    time.Time
	suppressed  int // refusals since loggedAt
	// Refused connections that wait to be told, by whether their user administers the node.
	refusedConns map[bool][]*nodeproto.Conn
	users        map[uint32]int // number of connections of each bounded user

	userLog systemlog.Limiter // limits log lines about users with too many connections
}

// maxRefusedConns bounds the refused connections that stay open to receive the reason, for
// administrators and for others; the oldest is closed.
const maxRefusedConns = 8

// Headroom says how many descriptors are left after a connection was accepted.
type Headroom int

// What is left.
const (
	Plenty      Headroom = iota // the connection is served
	ReserveOnly                 // only the reserve is left: the connection is refused with the reason
	Exhausted                   // the reserve is half used: the connection is closed
)

// NewDescriptors returns the budget of a node, by the number of descriptors that the daemon may
// have.
func NewDescriptors(node string, logs *systemlog.Logs) *Descriptors {
	d := &Descriptors{node: node, logs: logs}
	if l, err := unix.OwnLimits(); err == nil {
		d.limit = int(min(l.Files, 1<<30))
		d.lowestOther = d.limit
	}
	return d
}

// reserve is the number of descriptors kept for connected processes.
func (d *Descriptors) reserve() int { return min(512, d.limit/4) }

// PerUserReceived bounds the open descriptors that one user's processes have sent. Honest processes
// have a few open, briefly.
func (d *Descriptors) PerUserReceived() int { return max(64, d.limit/8) }

// perUser bounds the connections of one user. Each holds HeldByMember descriptors, so one user has
// at most half of all, including descriptors that the user sent and those that are not closed yet.
func (d *Descriptors) perUser() int { return max(16, d.limit/(2*HeldByMember)) }

// AdmitUser counts a connection of a user until leave is called, and reports whether the user may
// have it. Root and the node's own user may have any number: they can end the node anyway.
func (d *Descriptors) AdmitUser(uid uint32) (leave func(), ok bool) {
	if d.limit == 0 || uid == 0 || int(uid) == os.Getuid() {
		return func() {}, true
	}
	from := foreign.User(uid)
	sent := from.Held() // connections among them that have ended, and in which descriptors are queued
	from.Release()
	d.mu.Lock()
	defer d.mu.Unlock()
	if HeldByMember*d.users[uid]+sent >= HeldByMember*d.perUser() {
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

// TooManyConns returns the error for a user with too many connections, and logs it within the
// limits.
func (d *Descriptors) TooManyConns(uid uint32) error {
	most := d.perUser()
	if more, ok := d.userLog.Allow(time.Now()); ok {
		d.logs.Driver.Warn("a user has as many connections as one user may have, more are refused", "uid",
			uid, "most", most, "others", more)
	}
	return code.New(code.NoMem, "user %d has as many connections to node %q as one user may have, "+
		"%d, or descriptors in the place of some: end some of that user's processes, or raise "+
		"LimitNOFILE= of vmmcd", uid, d.node, most)
}

// HeadroomAfter returns the headroom after c was accepted. The number of c alone is not enough.
// Processes accepted in one burst each bring another descriptor later, which would fill the reserve
// for as long as they stay. And c may get a low number that another connection has just freed,
// although the reserve is full.
func (d *Descriptors) HeadroomAfter(c syscall.Conn) Headroom {
	raw, err := c.SyscallConn()
	if err != nil || d.limit == 0 {
		return Plenty
	}
	left := d.limit
	if raw.Control(func(fd uintptr) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lowestOther = min(d.lowestOther, int(fd))
		left -= max(int(fd)+1, d.lowestOther+d.held)
	}) != nil {
		return Plenty // it is closed, which the next operation reports
	}
	switch {
	case left < d.reserve()/2:
		return Exhausted
	case left < d.reserve():
		return ReserveOnly
	}
	return Plenty
}

// Descriptors that a process's connection holds.
const (
	HeldByRefused = 1 // the connection
	HeldByMember  = 2 // and the counters' memory, which comes at registration
)

// ReserveFor reserves n descriptors for a process until letGo is called.
func (d *Descriptors) ReserveFor(n int) (letGo func()) {
	add := func(n int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held += n
	}
	add(n)
	return sync.OnceFunc(func() { add(-n) })
}

// AdmitRefused keeps a refused connection open so that its process receives the reason; it closes
// the oldest one if there are too many.
func (d *Descriptors) AdmitRefused(c *nodeproto.Conn, administrates bool) {
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

// LogAcceptError logs why accept failed.
func (d *Descriptors) LogAcceptError(err error) {
	if errors.Is(err, syscall.EMFILE) {
		_ = d.RunOut()
		return
	}
	d.logs.Driver.Warn("accept", "err", err)
}

// RunOut returns the error for a refused connection, and logs it once a minute.
func (d *Descriptors) RunOut() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suppressed++; time.Since(d.loggedAt) >= timeout.Refused {
		d.logs.Driver.Warn("descriptors run out, new connections are refused", "limit", d.limit, "kept",
			d.reserve(), "refused", d.suppressed)
		d.loggedAt, d.suppressed = time.Now(), 0
	}
	return code.New(code.NoMem, "node %q has no descriptors for more connections: of %d, the last "+
		"%d are kept for those that are there; raise LimitNOFILE= of vmmcd, or ulimit -n", d.node,
		d.limit, d.reserve())
}
