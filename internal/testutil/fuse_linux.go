package testutil

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func noFUSE() string {
	if os.Geteuid() != 0 {
		return "mounting a FUSE file system needs root; run the tests as root"
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return "FUSE is not to be had here: " + err.Error()
	}
	_ = f.Close()
	return ""
}

// unmountFUSE ends the connection with the server first, which fails what waits for it.
func unmountFUSE(t testing.TB, dir string) {
	const force, detach = 1, 2
	_ = syscall.Unmount(dir, force)
	if err := syscall.Unmount(dir, detach); err != nil && !errors.Is(err, syscall.EINVAL) {
		t.Logf("unmount %s: %v", dir, err)
	}
}

func init() { RegisterRole(fuseRole, serveFUSE) }

// The requests of the protocol (linux/fuse.h) that the server knows.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseOpen        = 14
	fuseRead        = 15
	fuseWrite       = 16
	fuseStatfs      = 17
	fuseRelease     = 18
	fuseFsync       = 20
	fuseFlush       = 25
	fuseInit        = 26
	fuseOpendir     = 27
	fuseReaddir     = 28
	fuseReleasedir  = 29
	fuseAccess      = 34
	fuseInterrupt   = 36
	fuseBatchForget = 42

	fuseWritebackCache = 1 << 16
	fuseRoot           = 1
	fuseHead           = 40
)

// fuseKinds are those that may hang.
var fuseKinds = map[uint32]string{
	fuseLookup: "lookup", fuseGetattr: "getattr", fuseSetattr: "setattr", fuseOpen: "open",
	fuseRead: "read", fuseWrite: "write",
	fuseStatfs: "statfs", fuseRelease: "release", fuseFsync: "fsync", fuseFlush: "flush",
	fuseAccess: "access",
}

type fuseServer struct {
	fuseOrder
	dev int

	mu    sync.Mutex
	hang  []string
	hangs [][]byte // requests
}

func serveFUSE() int {
	s := &fuseServer{}
	if err := json.Unmarshal([]byte(Args()[0]), &s.fuseOrder); err != nil {
		fmt.Println(err)
		return 1
	}
	var err error
	if s.dev, err = syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0); err != nil {
		fmt.Println("open /dev/fuse:", err)
		return 1
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", s.dev)
	if err := syscall.Mount("vmmctest", s.Dir, "fuse", syscall.MS_NOSUID|syscall.MS_NODEV,
		options); err != nil {
		fmt.Println("mount:", err)
		return 1
	}
	fmt.Println("mounted")
	go s.obey()
	buf := make([]byte, 1<<20)
	for {
		n, err := syscall.Read(s.dev, buf)
		switch {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ENOENT):
			// What was to be read has been given up.
			continue
		case err != nil: // unmounted
			return 0
		}
		s.take(slices.Clone(buf[:n]))
	}
}

// obey does what the test says.
func (s *fuseServer) obey() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		s.mu.Lock()
		hung := s.hangs
		if s.hang = words[1:]; words[0] == "answer" {
			s.hangs = nil
		}
		s.mu.Unlock()
		fmt.Println("told")
		for _, r := range hung {
			if words[0] == "answer" {
				s.answer(r)
			}
		}
	}
}

func (s *fuseServer) take(r []byte) {
	kind := fuseKinds[binary.NativeEndian.Uint32(r[4:])]
	s.mu.Lock()
	hangs := kind != "" && slices.Contains(s.hang, kind)
	if hangs {
		s.hangs = append(s.hangs, r)
	}
	s.mu.Unlock()
	if hangs {
		fmt.Println("hung", kind)
		return
	}
	s.answer(r)
}

func (s *fuseServer) answer(r []byte) {
	n := binary.NativeEndian
	node, in := n.Uint64(r[16:]), r[fuseHead:]
	var out []byte
	var errno syscall.Errno
	switch n.Uint32(r[4:]) {
	case fuseForget, fuseBatchForget, fuseInterrupt:
		return
	case fuseInit:
		flags := uint32(0)
		if s.Writeback {
			flags = n.Uint32(in[12:]) & fuseWritebackCache
		}
		out = make([]byte, 64)
		n.PutUint32(out, 7)
		n.PutUint32(out[4:], 31)
		n.PutUint32(out[8:], n.Uint32(in[8:]))
		n.PutUint32(out[12:], flags)
		n.PutUint32(out[20:], 64<<10) // the longest write
		n.PutUint32(out[24:], 1)      // grain of times
	case fuseLookup:
		name := strings.TrimRight(string(in), "\x00")
		i := slices.IndexFunc(s.Files, func(f FUSEFile) bool { return f.Name == name })
		if i < 0 {
			errno = syscall.ENOENT
			break
		}
		out = make([]byte, 40, 128)
		n.PutUint64(out, uint64(fuseRoot+1+i))
		out = append(out, s.attr(uint64(fuseRoot+1+i))...)
	case fuseGetattr, fuseSetattr:
		out = append(make([]byte, 16), s.attr(node)...)
	case fuseOpen, fuseOpendir:
		out = make([]byte, 16)
	case fuseRead:
		f := s.Files[node-fuseRoot-1].Data
		from := min(n.Uint64(in[8:]), uint64(len(f)))
		out = f[from:min(from+uint64(n.Uint32(in[16:])), uint64(len(f)))]
	case fuseWrite:
		out = make([]byte, 8)
		n.PutUint32(out, n.Uint32(in[16:]))
	case fuseStatfs:
		out = make([]byte, 80)
	case fuseReaddir, fuseRelease, fuseReleasedir, fuseFsync, fuseFlush, fuseAccess:
	default:
		errno = syscall.ENOSYS
	}
	if errno != 0 {
		out = nil
	}
	a := make([]byte, 16, 16+len(out))
	n.PutUint32(a, uint32(16+len(out)))
	n.PutUint32(a[4:], uint32(-int32(errno)))
	copy(a[8:], r[8:16])
	_, _ = syscall.Write(s.dev, append(a, out...)) // fails if the caller does not wait any more
}

// attr are the attributes of a node.
func (s *fuseServer) attr(node uint64) []byte {
	n := binary.NativeEndian
	a := make([]byte, 88)
	n.PutUint64(a, node)
	mode, size, uid := uint32(syscall.S_IFDIR|0o755), 0, uint32(0)
	if node > fuseRoot {
		f := s.Files[node-fuseRoot-1]
		mode, size, uid = syscall.S_IFREG|f.Mode, len(f.Data), f.UID
	}
	n.PutUint64(a[8:], uint64(size))
	n.PutUint32(a[60:], mode)
	n.PutUint32(a[64:], 1)
	n.PutUint32(a[68:], uid)
	n.PutUint32(a[80:], 4096)
	return a
}
