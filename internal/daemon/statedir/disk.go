package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// Disk caches whether the state directory can be written.
type Disk struct {
	dir string // "": the node keeps no state

	mu        sync.Mutex
	err       error         // result of the last check
	checkedAt time.Time     // when the last check ended
	checking  chan struct{} // closed when the check in progress ends; nil: none
	since     time.Time     // when the check in progress began
}

// NewDisk returns the check of the disk of a state directory, which may be "".
func NewDisk(dir string) *Disk { return &Disk{dir: dir} }

const (
	diskCheckAge   = time.Second // maximum age of the cached result
	diskCheckBytes = 4096        // bytes that the check writes
)

// Fault says why the state cannot be written, or nil. A disk may take its time, or
// not answer at all, so the caller does not wait for it for long.
func (d *Disk) Fault() error {
	if d.dir == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.checking == nil && time.Since(d.checkedAt) >= diskCheckAge {
		looks := make(chan struct{})
		d.checking, d.since = looks, time.Now()
		go func() { // not awaited by Close: where the disk does not answer it stays
			err := tryWrite(d.dir)
			d.mu.Lock()
			d.err, d.checkedAt, d.checking = err, time.Now(), nil
			d.mu.Unlock()
			close(looks)
		}()
		late := time.NewTimer(timeout.Ping / 4)
		defer late.Stop()
		d.mu.Unlock()
		select {
		case <-looks:
		case <-late.C:
		}
		d.mu.Lock()
	}
	if d.checking != nil {
		if waited := time.Since(d.since); waited > timeout.Ping {
			return code.New(code.NoMem,
				"the state directory %s has not answered for %v: look at its disk or file server", d.dir,
				waited.Round(time.Second))
		}
	}
	if d.err != nil {
		return code.New(code.NoMem, "the state cannot be written, new sessions and programs are "+
			"refused: %v: free some space, or mend its disk", d.err)
	}
	return nil
}

// tryWrite writes a file in the directory and removes it. A directory that is not there
// is made when it is needed.
func tryWrite(dir string) error {
	path := filepath.Join(dir, ".room")
	f, err := trust.Create(path, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, diskCheckBytes))
	return errors.Join(err, f.Close(), os.Remove(path))
}
