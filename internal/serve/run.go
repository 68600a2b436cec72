package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/metrics"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// run serves until a signal, the parent's end or ctx's.
func (o *options) run(ctx context.Context, log io.Writer) error {
	// First of all, so that a signal during the start ends in an orderly way too.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	if forAllUsers() {
		// Its directories are for all users, and so are the files of their sessions: what
		// umask root's shell happened to have says nothing about those.
		unix.SetUmask(0o022)
	}
	tell := newNotifier()
	logger, err := o.logger(log)
	if err != nil {
		return err
	}
	if err := unix.KeepStarter(); err != nil { // before the node receives a descriptor
		logger.Warn("a user whose file server does not answer can keep the node from starting programs", "err", err)
	}
	if n, wanted := keepThreads(nodeThreads); n < wanted {
		logger.Warn("the node may end when it needs one more thread: raise pids.max of its cgroup (TasksMax= of vmmcd)", "idle threads", n, "wanted", wanted)
	}
	cfg, err := o.config()
	defer o.giveRoot()
	if err != nil {
		return err
	}
	if o.parentPipe >= 0 {
		var release func()
		if ctx, release, err = withParent(ctx, o.parentPipe); err != nil {
			return err
		}
		defer release()
	}
	cfg.Log = logger
	n, err := daemon.Start(cfg)
	if err != nil {
		return fmt.Errorf("start node %q: %w", cfg.Name, err)
	}
	if o.metrics != "" {
		m, err := metrics.Listen(o.metrics, n, cfg.Name, cfg.Version)
		if err != nil {
			n.Close()
			return fmt.Errorf("start node %q: %w", cfg.Name, err)
		}
		defer m.Close()
		logger.Info("metrics are served", "node", cfg.Name, "at", m.Addr())
	}
	tell.say("READY=1")
	untilDone(ctx, n, again)
	tell.say("STOPPING=1")
	stop() // a second signal kills, in case the shutdown takes too long
	logger.Info("node stops", "node", cfg.Name, "why", context.Cause(ctx))
	n.Close()
	return nil
}

// forAllUsers reports whether this is the system's daemon, and not a user's own.
func forAllUsers() bool { return os.Geteuid() == 0 || unix.MaySwitchUsers() }

// untilDone reads the hosts file again whenever it is told to.
func untilDone(ctx context.Context, n *daemon.Node, again <-chan os.Signal) {
	for {
		select {
		case <-again:
			n.Reload()
		case <-ctx.Done():
			return
		}
	}
}

func (o *options) logger(w io.Writer) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: o.logLevel}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, Usage("--log-format %q: use text or json", o.logFormat)
}

// config reads the files that the flags name.
func (o *options) config() (cfg daemon.Config, err error) {
	logs, err := o.below()
	if err != nil {
		return cfg, err
	}
	if o.listen != "" && o.Certs == "" {
		return cfg, Usage("--listen %s without --certs: nodes and tools prove who they are; make a certificate with \"vmmc cert node\"", o.listen)
	}
	if o.Certs != "" && o.Hosts == "" && o.listen == "" {
		return cfg, Usage("--certs %s without --hosts or --listen: a node alone talks to nobody who would ask for them", o.Certs)
	}
	if err := nodeproto.CheckPath(o.Socket); err != nil && o.socketGiven {
		return cfg, Flag("socket", o.Socket, err)
	}
	if o.listen != "" {
		if _, _, err := net.SplitHostPort(o.listen); err != nil {
			return cfg, Usage("--listen %s: wanted host:port: %w", o.listen, err)
		}
	}
	if o.name != "" {
		if err := hosts.CheckName(o.name); err != nil {
			return cfg, Usage("--name %s: node name: %w", o.name, err)
		}
	}
	if o.metrics != "" {
		if err := metrics.Check(o.metrics); err != nil {
			return cfg, Usage("--metrics: %w", err)
		}
	}
	cfg = daemon.Config{Logs: logs, Name: o.name, Socket: o.Socket, Listen: o.listen, Version: vmmc.Release, Encrypt: o.encrypt, SpawnRoot: o.spawnRoot, Admins: o.admins, State: o.State, Drives: o.drives, Supervisor: o.supervisor}
	if o.Certs != "" {
		if cfg.Certs, err = filepath.Abs(o.Certs); err != nil {
			return cfg, fmt.Errorf("name the directory of certificates: %w", err)
		}
		if cfg.Identity, err = cert.Load(o.Certs); err != nil {
			return cfg, fmt.Errorf("%w; --certs names the directory", err)
		}
	}
	if cfg.Name == "" && cfg.Identity != nil && cfg.Identity.Kind == cert.Node {
		cfg.Name = cfg.Identity.Name // the only one that it can serve under
	}
	if cfg.Name == "" {
		if cfg.Name, err = os.Hostname(); err != nil {
			return cfg, fmt.Errorf("name the node after the host: %w; give one with --name", err)
		}
	}
	if cfg.State == "" {
		cfg.State = DefaultState(cfg.Name)
	}
	for _, dir := range []*string{&cfg.State, &cfg.Drives} {
		if *dir != "" {
			if *dir, err = filepath.Abs(*dir); err != nil {
				return cfg, fmt.Errorf("name the state directory: %w", err)
			}
			// The daemon goes on without sessions where it cannot have them; what is no directory
			// was misnamed.
			if i, err := os.Stat(*dir); err == nil && !i.IsDir() {
				return cfg, fmt.Errorf("%s is no directory: name another one with --state or --drives", *dir)
			}
		}
	}
	if o.Hosts != "" {
		if cfg.HostsFile, err = filepath.Abs(o.Hosts); err != nil {
			return cfg, fmt.Errorf("name the hosts file: %w", err)
		}
		cfg.HostsRead, _ = os.Stat(cfg.HostsFile) // before it is read: a change meanwhile is one
		if cfg.Hosts, err = hosts.ReadFile(o.Hosts); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("%w; check --hosts, or leave it out for a node alone", err)
			}
			return cfg, err
		}
		// To the daemon an empty list means a node alone. A user who names a file
		// does not mean that.
		if len(cfg.Hosts) == 0 {
			return cfg, fmt.Errorf("the hosts file %s names no node: add a line \"name host:port\" for each", o.Hosts)
		}
	}
	return cfg, nil
}
