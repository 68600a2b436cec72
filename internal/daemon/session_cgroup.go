package daemon

import (
	"path/filepath"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// findCgroups looks whether sessions can have cgroups, and says so.
func (t *sessions) findCgroups() {
	home, err := cgroup.Home()
	if err != nil {
		t.n.log.Info("sessions have no cgroups", "why", err)
		return
	}
	t.cgroups = home
	t.n.log.Info("sessions have cgroups", "below", home)
}

// placeCgroup says which cgroup the session is to have, if it can have one.
func (s *session) placeCgroup() {
	if s.n.sessions.cgroups != "" {
		s.Cgroup = filepath.Join(s.n.sessions.cgroups, "vmmc-"+s.Marker)
	}
}

// confine puts a new supervisor into the session's cgroup, before it starts
// anything. What an earlier one has left there is ended.
func (s *session) confine(pid int) {
	if s.Cgroup == "" {
		return
	}
	err := cgroup.Kill(s.Cgroup, timeout.Stop)
	if err == nil {
		err = cgroup.Enter(s.Cgroup, pid)
	}
	if err != nil {
		s.n.log.Warn("a session goes without its cgroup", "session", s.Name, "err", err)
	}
}

// dropCgroup ends all that is left in the session's cgroup, and removes it.
func (s *session) dropCgroup() error {
	if s.Cgroup == "" {
		return nil
	}
	if err := cgroup.Kill(s.Cgroup, timeout.Stop); err != nil {
		return err
	}
	return cgroup.Remove(s.Cgroup)
}
