package members

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io/fs"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// BeginReturn authenticates a process that rejoins by c: by the kernel's pid and start time of the
// program, its user, and its rejoin token. From then on the process is returning, unless it has
// another connection.
func (j *Journal) BeginReturn(
	r *nodeproto.RejoinRequest, cred unix.Cred, c *nodeproto.Conn, connected bool,
) (Record, error) {
	born, err := unix.Born(cred.PID) // without mu, see Join
	j.mu.Lock()
	defer j.mu.Unlock()
	inProgress := code.New(code.InProgress, "process %d has a connection with node %q still",
		r.Process.PID, j.cfg.Node)
	x := j.absent[r.Process.PID]
	if x == nil {
		if j.live[r.Process] != nil {
			return Record{}, inProgress
		}
		return Record{}, code.New(code.NoSuchProcess, "node %q does not know process %d: the "+
			"daemon that it joined has not recorded it, or took it for ended; open another one",
			j.cfg.Node, r.Process.PID)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Record{}, code.New(code.NoMem,
			"node %q cannot check the process that rejoins as %d: %v", j.cfg.Node, r.Process.PID, err)
	}
	if err != nil || r.Process != x.Process || cred.UID != x.UID || cred.PID != x.Real ||
		x.Born != 0 && born != x.Born ||
		subtle.ConstantTimeCompare([]byte(tokenHash(r.Pass)), []byte(x.Hash)) != 1 {
		return Record{}, code.New(code.NoRights,
			"this program (%d of user %d) is not process %d of node %q", cred.PID, cred.UID, r.Process.PID,
			j.cfg.Node)
	}
	if connected || x.state == memberReturning {
		return Record{}, inProgress
	}
	j.setState(x, memberReturning)
	x.conn = c
	return x.Record, nil
}

// returning returns the membership of a process that returns by c, or nil. mu is held.
func (j *Journal) returning(id nodeproto.ProcessID, c *nodeproto.Conn) *membership {
	if m := j.live[id]; m != nil && m.state == memberReturning && m.conn == c {
		return m
	}
	return nil
}

// IsReturning reports whether a process returns by c.
func (j *Journal) IsReturning(id nodeproto.ProcessID, c *nodeproto.Conn) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.returning(id, c) != nil
}

// EndReturn records that a process has announced everything. It reports whether the process was
// returning by c.
func (j *Journal) EndReturn(id nodeproto.ProcessID, c *nodeproto.Conn) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.returning(id, c)
	if m != nil {
		j.setState(m, memberJoined)
	}
	return m != nil
}

func tokenHash(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}
