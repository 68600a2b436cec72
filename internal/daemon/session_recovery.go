package daemon

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

// restore finds the sessions of a daemon before this one, with their
// programs.
func (t *sessions) restore() error {
	t.mu.Lock() // other nodes ask already
	t.state, t.byName, t.lockTaken = t.n.cfg.State, map[string]*session{}, t.n.keepPIDs
	t.drives = map[string]string{}
	if t.state == "" {
		t.mu.Unlock()
		return nil
	}
	err := t.open(false)
	none := t.lock == nil
	t.mu.Unlock()
	if err != nil || none {
		return err
	}
	torn, _ := filepath.Glob(filepath.Join(escapeGlob(t.state), "sessions", "*.json"+newRecord))
	for _, f := range torn { // of a daemon that died while it wrote
		_ = os.Remove(f)
	}
	files, err := t.files()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, f := range files {
		var r record
		b, err := os.ReadFile(f)
		if err == nil {
			err = r.read(b)
		}
		if err != nil || t.file(r.Name) != f {
			t.n.log.Warn("a session's record cannot be read", "file", f, "err", err)
			continue
		}
		s := t.newSession(r)
		t.add(s)
		if r.Share != "" && !r.Ending {
			t.claimDrive(r.Drive, r.Name)
		}
		all.Go(func() {
			ctx, stop := context.WithTimeout(t.n.ctx, timeout.Control)
			defer stop()
			if _, err := s.reach(ctx); err != nil {
				t.n.log.Warn("a session's supervisor cannot be reached", "session", r.Name, "err", err)
			}
		})
	}
	all.Wait()
	for _, s := range t.after("") {
		if s.Ending {
			if s.Share != "" {
				t.claimDrive(s.Drive, s.Name)
			}
			t.n.wg.Go(func() {
				if _, err := s.delete(t.n.ctx); err != nil {
					t.n.log.Warn("a session that was being deleted is there", "session", s.Name, "err", err)
				}
			})
		}
	}
	return nil
}
