package group

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Group is a process's membership in its group. Its methods may be called concurrently, but for
// collectives: of these one at a time.
//
// Experimental: it may change in any release.
type Group struct {
	p          *vmmc.Process
	group      nodeproto.Group // without parts: the process is in none
	rank, size int
	importName func(context.Context, string, ...vmmc.FindOption) (*vmmc.Import, error) // of p
	rounds     int                                                                     // of a barrier

	// The block, nil in no group.
	mem            *vmmc.Memory
	block          *vmmc.Export
	slots          []vmmc.Word              // by round
	failures, left [2 * maxRounds]vmmc.Word // by edge
	gone           chan int                 // has room for all
	all            []*partner               // each once
	in             []*partner               // by round: each sends to this member
	out            []*partner               // by round: this member sends to each

	ctx    context.Context // ends when the member leaves
	cancel context.CancelFunc

	busy sync.Mutex // Held during a collective, and while the member leaves.
	// Guarded by busy.
	seq     uint32       // of the last collective that has ended; written under mu, too
	begun   bool         // reports whether the next one has begun
	kind    uint64       // of the one that has begun: that of an Exchange has the fingerprint of its type
	round   int          // of the one that has begun
	sent    bool         // reports whether its word of this round is sent
	linked  bool         // reports whether all partners are linked, or known to be gone
	watches []vmmc.Watch // all failure words
	shares  uint32       // ended calls of Share
	sharing any          // *view.Local of a Share that was interrupted
	unshare func() error // closes sharing; nil without one
	leaving bool         // reports whether Leave has begun to tell the partners

	linkEnded chan struct{} // Has room for one: an attempt to link has ended.

	mu sync.Mutex // The last lock: no call is made under it but on channels.
	// Guarded by mu.
	failed   *failure               // the least that is known
	wake     context.CancelFunc     // ends the waits of a collective
	reported map[int]bool           // ranks that Gone has
	ids      map[int]vmmc.ProcessID // of members
	closed   bool                   // reports whether the member has left
	tasks    sync.WaitGroup         // Add is guarded by mu.
	// Of OnGone.
	listeners map[*func(rank int)]struct{}
}

// Join returns the group that this program was started in, and one of size 1 if it was started in
// none. It waits for no other member. A program joins once, by one process.
//
// Errors: [vmmc.ErrBadConfig] if the environment does not hold together (VMMC_GROUP, VMMC_RANK,
// VMMC_SIZE); [vmmc.ErrNameTaken] if another process is this member; those of
// [vmmc.Process.Publish].
//
// Experimental: it may change in any release.
func Join(ctx context.Context, p *vmmc.Process) (*Group, error) {
	return joinAs(ctx, p, env.Get(nodeproto.GroupEnv), env.Get(nodeproto.RankEnv), env.Get(nodeproto.SizeEnv))
}

// JoinAs is [Join] of a group and a rank that the program names itself, rather than its environment. All
// members give the same description, which has the form of VMMC_GROUP: "1:ID:n1*4,n2*3", where ID is 32
// random hexadecimal digits. Process p is on the node that the description names for the rank. A
// program may be a member of any number of such groups.
//
// Errors: those of Join. No node knows which programs are to be members. So a program that ends before
// it has joined is no [MemberGoneError]: calls wait for it until their contexts end.
//
// Experimental: it may change in any release.
func JoinAs(ctx context.Context, p *vmmc.Process, description string, rank int) (*Group, error) {
	g, err := nodeproto.ParseGroup(description)
	if err != nil {
		return nil, &vmmc.Error{Op: "join the group", Code: vmmc.ErrBadConfig, Err: err}
	}
	return joinAs(ctx, p, description, strconv.Itoa(rank), strconv.Itoa(g.Size()))
}

// joinAs is Join with the values of the environment's variables.
func joinAs(ctx context.Context, p *vmmc.Process, group, rank, size string) (*Group, error) {
	const op = "join the group"
	if err := check(ctx, op); err != nil {
		return nil, err
	}
	g := &Group{p: p, importName: p.ImportName, size: 1, reported: map[int]bool{}, ids: map[int]vmmc.ProcessID{}, listeners: map[*func(int)]struct{}{}}
	if group+rank+size != "" {
		if err := g.configure(group, rank, size); err != nil {
			return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadConfig, Err: err}
		}
	}
	g.gone, g.linkEnded = make(chan int, g.size), make(chan struct{}, 1)
	g.ids[g.rank] = p.ID()
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if g.group.Parts == nil {
		return g, nil
	}
	g.rounds = bits.Len(uint(g.size - 1))
	for r := range g.rounds {
		g.in = append(g.in, g.addPartner((g.rank-1<<r+g.size)%g.size, r, maxRounds+r))
		g.in[r].rounds = append(g.in[r].rounds, r)
		g.out = append(g.out, g.addPartner((g.rank+1<<r)%g.size, maxRounds+r, r))
	}
	if err := g.publish(ctx); err != nil {
		g.cancel()
		return nil, err
	}
	return g, nil
}

// configure takes over what the environment says.
func (g *Group) configure(group, rank, size string) (err error) {
	if g.group, err = nodeproto.ParseGroup(group); err != nil {
		return err
	}
	g.size = g.group.Size()
	if g.size > MaxSize {
		return fmt.Errorf("%s: it has %d programs, at most %d are possible", nodeproto.GroupEnv, g.size, MaxSize)
	}
	if size != strconv.Itoa(g.size) {
		return fmt.Errorf("%s is %q, and %s has %d programs", nodeproto.SizeEnv, size, nodeproto.GroupEnv, g.size)
	}
	g.rank, err = strconv.Atoi(rank)
	if err != nil || strconv.Itoa(g.rank) != rank || g.rank < 0 || g.rank >= g.size {
		return fmt.Errorf("%s is %q, want a number from 0 to %d", nodeproto.RankEnv, rank, g.size-1)
	}
	if at := g.group.NodeOf(g.rank); at != g.p.Node().String() {
		return fmt.Errorf("rank %d is on node %q by %s, and this process is on node %q", g.rank, at, nodeproto.GroupEnv, g.p.Node())
	}
	return nil
}

// publish exports the block.
func (g *Group) publish(ctx context.Context) (err error) {
	if g.mem, err = g.p.Alloc(g.blockSize()); err != nil {
		return err
	}
	g.step("join")
	name := g.group.MemberName(g.rank)
	g.block, err = g.p.Publish(ctx, name, g.mem.Bytes(), vmmc.WithLabel(label(g.size, g.rank)), vmmc.WithHandler(g.handleDeathNotice))
	if err != nil {
		return errors.Join(err, g.mem.Close())
	}
	if err := g.takeWords(); err != nil {
		return errors.Join(err, g.block.Close(), g.mem.Close())
	}
	g.step("joined")
	return nil
}

// onStep is called at each step of the protocols, if a test has set it to stop a member there.
var onStep atomic.Pointer[func(g *Group, name string)]

func (g *Group) step(name string) {
	if f := onStep.Load(); f != nil {
		(*f)(g, name)
	}
}

// Rank is this member's number, from 0 on. The ranks of a node follow each other, unless
// "vmmc mpirun --map-by node" has started the programs.
func (g *Group) Rank() int { return g.rank }

// Size is the number of members.
func (g *Group) Size() int { return g.size }

// LocalRank is this member's number among the members of its node, from 0 on.
func (g *Group) LocalRank() int {
	if g.group.Parts == nil {
		return 0
	}
	return g.group.CountOn(g.p.Node().String(), g.rank)
}

// LocalSize is the number of members on this member's node.
func (g *Group) LocalSize() int {
	return max(1, g.group.CountOn(g.p.Node().String(), g.size))
}

// Node is the node of a member, and the zero NodeID for a rank out of range or a node that is not
// in the hosts file.
func (g *Group) Node(rank int) vmmc.NodeID {
	switch {
	case rank == g.rank:
		return g.p.Node()
	case rank < 0 || rank >= g.size:
		return vmmc.NodeID{}
	}
	node, err := g.p.NameToNode(g.group.NodeOf(rank))
	if err != nil {
		return vmmc.NodeID{}
	}
	return node
}

// Member returns the process that is a member, and waits until it has joined. It is the process
// that was the member, if that has ended since. Of a member that has left before this one knew it,
// it finds nothing and waits.
//
// Errors: [vmmc.ErrBadArg] for a rank out of range; [MemberGoneError] if the program has ended
// before it joined; those of [vmmc.Process.ImportName].
func (g *Group) Member(ctx context.Context, rank int) (vmmc.ProcessID, error) {
	op := fmt.Sprintf("find member %d", rank)
	if err := check(ctx, op); err != nil {
		return vmmc.ProcessID{}, err
	}
	if rank < 0 || rank >= g.size {
		return vmmc.ProcessID{}, fail(op, vmmc.ErrBadArg, "the group has %d members", g.size)
	}
	g.mu.Lock()
	id, known := g.ids[rank]
	g.mu.Unlock()
	if known {
		return id, nil
	}
	im, err := g.importBlock(ctx, rank)
	if err != nil {
		return vmmc.ProcessID{}, asGone(rank, err)
	}
	g.noteID(rank, im.Exporter())
	return im.Exporter(), im.Close()
}

func (g *Group) noteID(rank int, id vmmc.ProcessID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ids[rank] = id
}

// importBlock imports a member's block, and waits until the member has joined.
func (g *Group) importBlock(ctx context.Context, rank int) (*vmmc.Import, error) {
	name := nodeproto.NameRef{Node: g.group.NodeOf(rank), Name: g.group.MemberName(rank)}
	im, err := g.importName(ctx, name.String())
	if err != nil {
		return nil, err
	}
	if !slices.Equal(im.Label(), label(g.size, rank)) || im.Size() != g.blockSize() {
		err := fail("import "+name.String(), vmmc.ErrProtocol, "member %d has another group, or another version of this package", rank)
		return nil, errors.Join(err, im.Close())
	}
	return im, nil
}

// asGone says of an error that it is the end of a member, if it is.
func asGone(rank int, err error) error {
	if c := codeOf(err); c == vmmc.ErrNoSuchProcess || c == vmmc.ErrPeerGone {
		return fmt.Errorf("%w: %w", MemberGoneError{rank}, err)
	}
	return err
}

// Import imports a buffer of a member, as [vmmc.Process.Import] does. Errors: those, and those of
// [Group.Member]; [MemberGoneError] also if the member has ended.
func (g *Group) Import(ctx context.Context, rank int, id uint32) (*vmmc.Import, error) {
	pid, err := g.Member(ctx, rank)
	if err != nil {
		return nil, err
	}
	im, err := g.p.Import(ctx, pid.Node, pid.PID, id)
	if err != nil {
		return nil, asGone(rank, err)
	}
	return im, nil
}

// importsAtOnce bounds what ImportAll does at a time.
const importsAtOnce = 32

// ImportAll imports the buffer that all members have exported under one id: by their ranks, and nil
// at the own. It imports all or none. Errors: those of [Group.Import], of the first that fails.
func (g *Group) ImportAll(ctx context.Context, id uint32) ([]*vmmc.Import, error) {
	if err := check(ctx, fmt.Sprintf("import buffer %d of all members", id)); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ims, room := make([]*vmmc.Import, g.size), make(chan struct{}, importsAtOnce)
	var err error // the first
	var once sync.Once
	var wg sync.WaitGroup
	for rank := range ims {
		if rank == g.rank {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			im, e := g.Import(ctx, rank, id)
			if ims[rank] = im; e != nil {
				once.Do(func() { err = e })
				stop()
			}
		})
	}
	wg.Wait()
	if err == nil {
		return ims, nil
	}
	for _, im := range ims {
		if im != nil {
			err = errors.Join(err, im.Close())
		}
	}
	return nil, err
}

// Leave ends the membership in order: [Group.Gone] of the others does not give it. It is no
// collective, and returns when all that this process has sent is in place. What [Share] gave stays
// until it is closed, but for a Share that was interrupted. Call Leave before the program ends,
// when no collective is to follow. After an error, of the context or
// [vmmc.ErrBlockedNotifications], call it again: until it succeeds, or the process ends, others may
// wait for this member. After Leave collectives fail with [vmmc.ErrClosed].
//
// Before its first collective a member waits in Leave until the 2⌈log2 n⌉ others that it has links
// with have joined or ended.
func (g *Group) Leave(ctx context.Context) error {
	const op = "leave the group"
	if err := check(ctx, op); err != nil {
		return err
	}
	if !g.busy.TryLock() {
		return fail(op, vmmc.ErrInProgress, "a collective is under way")
	}
	defer g.busy.Unlock()
	if g.isClosed() {
		return g.release()
	}
	if err := g.p.Fence(ctx); err != nil && ctx.Err() != nil {
		return interrupted(ctx, op, err)
	}
	g.startLinks() // a partner learns only over a link that this member has left
	for err := g.awaitLinks(ctx); err != nil; err = g.awaitLinks(ctx) {
		if ctx.Err() != nil {
			return interrupted(ctx, op, err)
		}
	}
	g.awaitFlood(ctx)
	g.step("leave")
	g.leaving = true
	for _, pt := range g.all {
		if im := g.importOf(pt); im != nil {
			if err := im.Send(ctx, wordBytes(1), leaveAt(pt.edge)); err != nil && ctx.Err() != nil {
				return interrupted(ctx, op, err)
			}
		}
	}
	if err := g.p.Fence(ctx); err != nil && ctx.Err() != nil { // the words come before the block's end
		return interrupted(ctx, op, err)
	}
	g.step("left")
	g.stop()
	return g.release()
}

// stop ends all tasks.
func (g *Group) stop() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.tasks.Wait()
}

// release gives back what a member has that has left. It may be called again.
func (g *Group) release() (err error) {
	if g.unshare != nil {
		err = g.unshare() // which may be repeated
	}
	for _, pt := range g.all {
		if im := g.importOf(pt); im != nil {
			err = errors.Join(err, im.Close())
		}
	}
	if g.block != nil {
		if err := errors.Join(err, g.block.Close()); err != nil {
			return err
		}
		return g.mem.Close()
	}
	return err
}

func (g *Group) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// begin starts a task of the group, unless the member has left. mu is held.
func (g *Group) begin(task func()) bool {
	if !g.closed {
		g.tasks.Go(task)
	}
	return !g.closed
}

// check refuses what no call that waits takes.
func check(ctx context.Context, op string) error {
	switch {
	case ctx == nil:
		return fail(op, vmmc.ErrBadArg, "the context is nil: give context.Background() for none")
	case vmmc.InHandler():
		return fail(op, vmmc.ErrNotInHandler, "%w", vmmc.ErrNotInHandler)
	}
	return nil
}

func fail(op string, code vmmc.Code, format string, args ...any) error {
	return &vmmc.Error{Op: op, Code: code, Err: fmt.Errorf(format, args...)}
}

// codeOf is the code of an error of package vmmc, and 0 of another one.
func codeOf(err error) (c vmmc.Code) {
	errors.As(err, &c)
	return c
}
