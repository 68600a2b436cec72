package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/statedir"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// sessionService answers tools and other nodes for their users.
type sessionService struct{ n *Node }

// maxListed is how many sessions are in one answer, maxListing about how many
// bytes: one session's are less than what is then left of nodeproto.MaxControl.
const (
	maxListed  = 16
	maxListing = 8 << 10
)

// maxAttempt is how long the name of a call that makes a session may be.
const maxAttempt = 64

// reply makes an answer of what a call came to.
func reply[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, peers.Coded(err)
	}
	return connect.NewResponse(m), nil
}

// ask finds the caller's session and its supervisor.
func (s *sessionService) ask(
	ctx context.Context, name string,
) (*session, *supervise.Client, error) {
	c, err := users.CallerOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	in, err := s.n.sessions.find(c, name)
	if err != nil {
		return nil, nil, err
	}
	bounded, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	sup, err := in.reach(bounded)
	return in, sup, err
}

func (s *sessionService) AddSession(
	ctx context.Context, r *connect.Request[nodev1.AddSessionRequest],
) (*connect.Response[nodev1.AddSessionResponse], error) {
	c, err := users.CallerOf(ctx)
	var rec statedir.Record
	if err == nil {
		rec, err = s.n.sessions.newRecord(c, r.Msg.GetName(), r.Msg.GetUser(), r.Msg.GetDrive(),
			r.Msg.GetShare(), r.Msg.GetOutputDirectory())
	}
	var in *session
	if rec.Attempt = r.Msg.GetAttempt(); err == nil && len(rec.Attempt) > maxAttempt {
		err = code.New(code.BadArg, "the name of an attempt has %d bytes: at most %d", len(rec.Attempt),
			maxAttempt)
	}
	if err == nil {
		err = rec.SetOrigin(r.Msg)
	}
	if err == nil {
		in, err = s.n.sessions.create(ctx, rec, mount.Credentials{
			User: r.Msg.GetCredentials().GetUser(), Password: r.Msg.GetCredentials().GetPassword(),
		})
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	return reply(&nodev1.AddSessionResponse{Session: s.describe(ctx, in)}, nil)
}

func (s *sessionService) DeleteSession(
	ctx context.Context, r *connect.Request[nodev1.DeleteSessionRequest],
) (*connect.Response[nodev1.DeleteSessionResponse], error) {
	c, err := users.CallerOf(ctx)
	var in *session
	var notice string
	if err == nil {
		in, err = s.n.sessions.find(c, r.Msg.GetName())
	}
	if a := r.Msg.GetAttempt(); err == nil && a != "" && a != in.Attempt {
		err = code.New(code.NoSuchSession, "session %q on node %q was made by another call", in.Name,
			s.n.cfg.Name)
	}
	if err == nil {
		// A caller that gives up finds it deleted or not, but never half deleted.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 4*timeout.Stop)
		defer stop()
		notice, err = in.delete(ctx)
	}
	return reply(&nodev1.DeleteSessionResponse{Notice: notice}, err)
}

func (s *sessionService) ListSessions(
	ctx context.Context, r *connect.Request[nodev1.ListSessionsRequest],
) (*connect.Response[nodev1.ListSessionsResponse], error) {
	c, err := users.CallerOf(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	m := &nodev1.ListSessionsResponse{}
	var page []*session
	for _, in := range s.n.sessions.after(r.Msg.GetAfter()) {
		if in.authorize(c) != nil {
			continue
		}
		if m.More = len(page) == maxListed; m.More {
			break
		}
		page = append(page, in)
	}
	m.Sessions = make([]*nodev1.Session, len(page))
	var all sync.WaitGroup
	for i, in := range page { // at once, because some supervisors may not answer
		all.Go(func() { m.Sessions[i] = s.describe(ctx, in) })
	}
	all.Wait()
	for len(m.Sessions) > 1 && proto.Size(m) > maxListing {
		m.Sessions, m.More = m.Sessions[:len(m.Sessions)-1], true
	}
	return reply(m, nil)
}

func (s *sessionService) Run(
	ctx context.Context, r *connect.Request[nodev1.RunRequest],
) (*connect.Response[nodev1.RunResponse], error) {
	in, sup, err := s.ask(ctx, r.Msg.GetSession())
	if c, _ := users.CallerOf(ctx); err == nil && in.UID == 0 && c.Cred == nil && !s.n.cfg.SpawnRoot {
		err = code.New(code.NoRights, "node %q starts no programs as user %q for callers elsewhere: "+
			"start its daemon with --spawn-root", s.n.cfg.Name, in.User)
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	o := order{
		session: in.Name, inSession: in, group: r.Msg.GetGroup(), search: true,
		input: r.Msg.GetInput(), terminal: terminalOf(r.Msg.GetTerminal()),
		SpawnRequest: nodeproto.SpawnRequest{
			Node: s.n.cfg.Name, Path: r.Msg.GetPath(), Args: r.Msg.GetArgs(),
			Directory: r.Msg.GetDirectory(), Hosts: r.Msg.GetHosts(),
		},
	}
	o.follow, o.env, o.reserve = r.Msg.GetFollow(), r.Msg.GetEnv(), r.Msg.GetReserve()
	o.bound, o.turn = r.Msg.GetBound(), int(r.Msg.GetTurn())
	for _, n := range r.Msg.GetProcessors() {
		o.processors = append(o.processors, int(n))
	}
	err = errors.Join(o.Check(o.session), checkVariables(o.env))
	if o.reserve != "" {
		err = errors.Join(err, nodeproto.CheckName(o.reserve))
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	p, err := s.n.children.runInSession(ctx, o)
	return reply(&nodev1.RunResponse{
		Process: processInfo(p), Followed: o.follow && sup.Streams, EnvSet: true,
		Reserved: o.reserve != "", Bound: o.bound && sup.Leases,
		ProcessorsSet: (o.turn > 0 || len(o.processors) > 0) && sup.Affine,
	}, err)
}

func (s *sessionService) ListProcesses(
	ctx context.Context, r *connect.Request[nodev1.ListProcessesRequest],
) (*connect.Response[nodev1.ListProcessesResponse], error) {
	in, sup, err := s.ask(ctx, r.Msg.GetSession())
	var l supervise.Listing
	if err == nil {
		l, err = sup.List(ctx, supervise.ListRequest{After: r.Msg.GetAfter()})
		err = in.errorOf(ctx, sup, err)
	}
	m := &nodev1.ListProcessesResponse{More: l.More}
	for _, p := range l.Programs {
		m.Processes = append(m.Processes, processInfo(p))
	}
	return reply(m, err)
}

func (s *sessionService) Wait(
	ctx context.Context, r *connect.Request[nodev1.WaitRequest],
) (*connect.Response[nodev1.WaitResponse], error) {
	in, sup, err := s.ask(ctx, r.Msg.GetSession())
	var p supervise.Program
	if err == nil {
		p, err = sup.Await(ctx, supervise.AwaitRequest{
			PID: r.Msg.GetPid(), For: clampTimeout(r.Msg.GetTimeoutNs()),
		})
		err = in.errorOf(ctx, sup, err)
		if err == nil && p.Swept {
			err = in.deleted()
		}
	}
	return reply(&nodev1.WaitResponse{Process: processInfo(p)}, err)
}

func (s *sessionService) Kill(
	ctx context.Context, r *connect.Request[nodev1.KillRequest],
) (*connect.Response[nodev1.KillResponse], error) {
	in, sup, err := s.ask(ctx, r.Msg.GetSession())
	n := 0
	if err == nil {
		n, err = sup.Signal(ctx, supervise.SignalRequest{
			PID: r.Msg.GetPid(), Group: r.Msg.GetGroup(), Signal: int(r.Msg.GetSignal()),
		})
		err = in.errorOf(ctx, sup, err)
	}
	if err == nil {
		s.n.logs.Server.Info("session signalled", "session", in.Name, "pid", r.Msg.GetPid(), "group",
			r.Msg.GetGroup(), "signal", syscall.Signal(r.Msg.GetSignal()), "processes", n)
	}
	return reply(&nodev1.KillResponse{Processes: uint32(n)}, err)
}

func (s *sessionService) ReadLog(
	ctx context.Context, r *connect.Request[nodev1.ReadLogRequest],
) (*connect.Response[nodev1.ReadLogResponse], error) {
	in, sup, err := s.ask(ctx, r.Msg.GetSession())
	var c supervise.Chunk
	if err == nil {
		q := supervise.ReadRequest{
			PID: r.Msg.GetPid(), Offset: r.Msg.GetOffset(), Max: supervise.MaxChunk,
			For:      clampTimeout(r.Msg.GetTimeoutNs()),
			Attended: r.Msg.GetAttended(), Apart: r.Msg.GetApart(),
		}
		if r.Msg.Tail != nil && q.Apart {
			n := int(r.Msg.GetTail())
			q.Tail = &n
		}
		c, err = sup.Read(ctx, q)
		err = in.errorOf(ctx, sup, err)
	}
	if err == nil && (len(c.Data) > supervise.MaxChunk || len(c.Pieces) > len(c.Data)) {
		err = code.New(code.Protocol, "the session's supervisor gave more output than was asked for")
	}
	m := &nodev1.ReadLogResponse{
		Data: c.Data, Done: c.Done, Apart: c.Apart, Next: c.Next, LostBytes: c.Lost,
		LostWhy: strings.ToValidUTF8(c.Why, "\ufffd"),
	}
	for _, p := range c.Pieces {
		m.Pieces = append(m.Pieces, &nodev1.OutputPiece{
			ToStderr: p.Error, Bytes: uint32(p.Bytes), TimeUnixNs: p.Time.UnixNano(),
		})
	}
	return reply(m, err)
}

// clampTimeout bounds how long a call waits: the client repeats the call.
func clampTimeout(ns int64) time.Duration {
	return max(0, min(time.Duration(ns), timeout.Control/2))
}

// describe tells of a session.
func (s *sessionService) describe(ctx context.Context, in *session) *nodev1.Session {
	ctx, stop := context.WithTimeout(ctx, timeout.Ping)
	defer stop()
	d := &nodev1.Session{
		Name: in.Name, User: in.User, Drive: in.Drive, Share: in.Share, OutputDirectory: in.Output,
		Base: in.Base,
	}
	c, err := in.reach(ctx)
	d.State = in.currentState().String()
	if err != nil {
		d.Error = err.Error()
		return d
	}
	d.Base = c.Base
	if in.Cgroup != "" && cgroup.Holds(in.Cgroup, c.Real()) {
		d.Cgroup = in.Cgroup
	}
	for r := (supervise.ListRequest{Running: true}); ; {
		l, err := c.List(ctx, r)
		if err != nil {
			d.Error = err.Error()
			return d
		}
		d.Processes += uint32(len(l.Programs))
		if !l.More || len(l.Programs) == 0 {
			return d
		}
		r.After = l.Programs[len(l.Programs)-1].PID
	}
}

func processInfo(p supervise.Program) *nodev1.Process {
	m := &nodev1.Process{
		Pid: p.PID, RealPid: uint32(p.Real), Group: p.Group, Command: p.Command,
		Begun:  timestamppb.New(p.Begun),
		Joined: p.Joined, Ended: p.Ended, ExitStatus: int32(p.Status), Signal: int32(p.Signal),
		Lost:        p.Lost,
		OutputBytes: p.Output, MissingBytes: p.Missing, MissingWhy: p.Why,
	}
	if p.Ended {
		m.EndedAt = timestamppb.New(p.End)
	}
	return m
}

// maxTerminalSide is what the kernel can say of a terminal's size.
const maxTerminalSide = 1<<16 - 1

func terminalSize(rows, columns uint32) unix.Size {
	return unix.Size{
		Rows: uint16(min(rows, maxTerminalSide)), Columns: uint16(min(columns, maxTerminalSide)),
	}
}

// terminalOf is the terminal that a program is to have, if it is to have one.
func terminalOf(t *nodev1.Terminal) *supervise.Terminal {
	if t == nil {
		return nil
	}
	return &supervise.Terminal{Size: terminalSize(t.GetRows(), t.GetColumns()), Term: t.GetTerm()}
}

func (s *sessionService) Attend(
	ctx context.Context, r *connect.Request[nodev1.AttendRequest],
) (*connect.Response[nodev1.AttendResponse], error) {
	in, sup, err := s.ask(ctx, r.Msg.GetSession())
	if err == nil {
		// While the node stops calls end because of it, and not because their clients have left: the
		// supervisor hears of the node's end alone.
		attending, leave := context.WithCancel(context.WithoutCancel(ctx))
		defer leave()
		defer context.AfterFunc(ctx, func() {
			if s.n.ctx.Err() == nil && !s.n.isStopping() {
				leave()
			}
		})()
		err = sup.Attend(attending, supervise.AttendRequest{PID: r.Msg.GetPid(), Group: r.Msg.GetGroup()})
		err = in.errorOf(ctx, sup, err)
	}
	return reply(&nodev1.AttendResponse{}, err)
}

func (s *sessionService) WriteInput(
	ctx context.Context, r *connect.Request[nodev1.WriteInputRequest],
) (*connect.Response[nodev1.WriteInputResponse], error) {
	m := r.Msg
	if len(m.GetData()) > supervise.MaxChunk {
		return nil, peers.Coded(code.New(code.BadArg, "write %d bytes of input: at most %d at a time",
			len(m.GetData()), supervise.MaxChunk))
	}
	in, sup, err := s.ask(ctx, m.GetSession())
	var w supervise.Written
	if err == nil {
		w, err = sup.Write(ctx, supervise.WriteRequest{
			PID: m.GetPid(), Offset: m.GetOffset(), Data: m.GetData(), End: m.GetEnd(),
			For: clampTimeout(m.GetTimeoutNs()),
		})
		err = in.errorOf(ctx, sup, err)
	}
	return reply(&nodev1.WriteInputResponse{Taken: w.Taken, Closed: w.Closed}, err)
}

func (s *sessionService) ResizeTerminal(
	ctx context.Context, r *connect.Request[nodev1.ResizeTerminalRequest],
) (*connect.Response[nodev1.ResizeTerminalResponse], error) {
	in, sup, err := s.ask(ctx, r.Msg.GetSession())
	if err == nil {
		err = sup.Resize(ctx, supervise.ResizeRequest{
			PID: r.Msg.GetPid(), Size: terminalSize(r.Msg.GetRows(), r.Msg.GetColumns()),
		})
		err = in.errorOf(ctx, sup, err)
	}
	return reply(&nodev1.ResizeTerminalResponse{}, err)
}

// SessionOrigin reads the record alone: a session's supervisor need not answer.
func (s *sessionService) SessionOrigin(
	ctx context.Context, r *connect.Request[nodev1.SessionOriginRequest],
) (*connect.Response[nodev1.SessionOriginResponse], error) {
	c, err := users.CallerOf(ctx)
	var in *session
	if err == nil {
		in, err = s.n.sessions.find(c, r.Msg.GetSession())
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	return reply(in.Origin(), nil)
}
