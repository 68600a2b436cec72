//go:build amd64 || arm64

package unix

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// The spawn helper is what the kernel runs between this process and a program that a user controls.
//
// The kernel stops the thread that starts a program until the program's file is open and mapped.
// The file's owner can make that last: by a lease on it (F_SETLEASE), or by a FUSE server that does
// not answer. The runtime cannot take the P from such a thread, and waits for it at the next
// collection. So this process starts the helper instead, whose file is its own, and the helper
// becomes the user, enters the directory and executes the program. It is a child like any other
// from the beginning: its number, its pidfd and its process group are the program's.
//
// The user is no owner of the child before the helper runs. Otherwise the user could stop it
// (SIGSTOP) while this process waits.
//
// The helper's file is an ELF image in memory: a loop of some 20 instructions
// (spawnhelper_linux_*.s), and a list of system calls with what their arguments point to. It has no
// libc, no runtime and one thread, and needs no file of the machine. A call that fails ends it; it
// writes which one, and errno, to a pipe that the program's exec closes.

// canHelp: on other architectures a program is executed by this process.
const canHelp = true

// spawnHelperCode is where the loop is. The image has the first codeSize bytes from there on.
//
//go:noescape
func spawnHelperCode() unsafe.Pointer

// The image's layout. It has one segment, which is mapped at imageBase, a multiple of all page
// sizes.
const (
	imageBase  = 0x400000
	reportAt   = 0x3f8 // the report's descriptor
	callsAt    = 0x400 // as the loop has it
	callSize   = 64    // as the loop has it
	codeAt     = 0x100
	codeSize   = 0xc0
	ehdrSize   = 64
	phdrSize   = 56
	reportSize = 16
)

// helperCall is a system call of the helper.
type helperCall struct {
	nr     uint64
	args   [5]uint64
	passed bool // the helper goes on if it fails
}

// helperImage is what the helper does. It is small, as RLIMIT_FSIZE bounds it too.
type helperImage struct {
	report int
	dataAt uint64 // the address of the data, behind as many calls as there may be
	calls  []helperCall
	steps  []string // what each call does, for errors
	data   bytes.Buffer
}

// ownCalls are enough for what the helper does beside closing descriptors one by one.
const ownCalls = 16

func newHelperImage(report, calls int) *helperImage {
	return &helperImage{report: report, dataAt: uint64(imageBase + callsAt + calls*callSize)}
}

func (h *helperImage) call(step string, nr uintptr, args ...uint64) {
	c := helperCall{nr: uint64(nr)}
	copy(c.args[:], args)
	h.calls, h.steps = append(h.calls, c), append(h.steps, step)
}

// put adds data to the image, and returns its address there.
func (h *helperImage) put(b []byte) uint64 {
	for h.data.Len()%8 != 0 {
		h.data.WriteByte(0)
	}
	at := h.dataAt + uint64(h.data.Len())
	h.data.Write(b)
	return at
}

func (h *helperImage) putString(s string) uint64 { return h.put(append([]byte(s), 0)) }

// putStrings adds an array as execve takes it.
func (h *helperImage) putStrings(list []string) uint64 {
	var b []byte
	for _, s := range list {
		b = binary.NativeEndian.AppendUint64(b, h.putString(s))
	}
	return h.put(binary.NativeEndian.AppendUint64(b, 0))
}

// writeTo writes the image.
func (h *helperImage) writeTo(f *os.File) error {
	b := make([]byte, callsAt, callsAt+len(h.calls)*callSize)
	le := binary.NativeEndian
	size := h.dataAt - imageBase + uint64(h.data.Len())
	copy(b, "\x7fELF\x02\x01\x01") // 64 bits, little endian
	le.PutUint16(b[16:], 2)        // ET_EXEC
	le.PutUint16(b[18:], elfMachine)
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[24:], imageBase+codeAt)
	le.PutUint64(b[32:], ehdrSize)
	le.PutUint16(b[52:], ehdrSize)
	le.PutUint16(b[54:], phdrSize)
	le.PutUint16(b[56:], 2)
	load := b[ehdrSize:]
	le.PutUint32(load[0:], 1) // PT_LOAD
	le.PutUint32(load[4:], 5) // readable, executable
	le.PutUint64(load[16:], imageBase)
	le.PutUint64(load[24:], imageBase)
	le.PutUint64(load[32:], size)
	le.PutUint64(load[40:], size)
	le.PutUint64(load[48:], 0x10000)
	stack := load[phdrSize:]
	le.PutUint32(stack[0:], 0x6474e551) // PT_GNU_STACK
	le.PutUint32(stack[4:], 6)          // readable, writable
	copy(b[codeAt:], unsafe.Slice((*byte)(spawnHelperCode()), codeSize))
	le.PutUint64(b[reportAt:], uint64(h.report))
	for _, c := range h.calls {
		b = le.AppendUint64(b, c.nr)
		for _, a := range c.args {
			b = le.AppendUint64(b, a)
		}
		passed := uint64(0)
		if c.passed {
			passed = 1
		}
		b = le.AppendUint64(le.AppendUint64(b, passed), 0)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	_, err := f.WriteAt(h.data.Bytes(), int64(h.dataAt-imageBase))
	return err
}

// file makes the image's file, which the caller closes.
func (h *helperImage) file() (*os.File, error) {
	const name = "vmmc-spawn"
	fd, err := sys.MemfdCreate(name, sys.MFD_CLOEXEC|sys.MFD_EXEC)
	if err == sys.EINVAL { // Linux before 6.3 makes all of them executable
		fd, err = sys.MemfdCreate(name, sys.MFD_CLOEXEC)
	}
	if err != nil {
		f, ferr := h.plainFile() // vm.memfd_noexec is 2
		if ferr != nil {
			return nil, fmt.Errorf("make the spawn helper: memfd_create: %w, and instead of it: %w", err, ferr)
		}
		return f, nil
	}
	f := os.NewFile(uintptr(fd), name)
	if err := h.writeTo(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("make the spawn helper: %w", err)
	}
	return f, nil
}

// plainFile makes it in the file system, without a name.
func (h *helperImage) plainFile() (*os.File, error) {
	// A child of another thread that is just being started must not have it open for writing: the
	// kernel would not execute it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	// not TMPDIR, which a setuid program must not believe
	w, err := os.CreateTemp("/tmp", "vmmc-spawn-*")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	defer os.Remove(w.Name())
	if err := h.writeTo(w); err != nil {
		return nil, err
	}
	if err := w.Chmod(0o500); err != nil {
		return nil, err
	}
	return os.Open(w.Name())
}

// closeRange reports whether the kernel has close_range(2) (Linux 5.9) and no filter of system
// calls forbids it. No descriptor is that large.
var closeRange = sync.OnceValue(func() bool {
	_, _, e := sys.RawSyscall(sys.SYS_CLOSE_RANGE, math.MaxUint32, math.MaxUint32, 0)
	return e == 0
})

// inherited are the descriptors beyond the standard ones that this process does not close on exec,
// if the helper must close them one by one.
func inherited() (fds []int, err error) {
	if closeRange() {
		return nil, nil
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("find the descriptors that a program must not inherit: %w", err)
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := sys.FcntlInt(uintptr(fd), sys.F_GETFD, 0); err == nil &&
			flags&sys.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// closeFrom has the helper close all descriptors from first on.
func (h *helperImage) closeFrom(first int, inherited []int) {
	if closeRange() {
		h.call("close inherited descriptors", sys.SYS_CLOSE_RANGE, uint64(first), math.MaxUint32)
		return
	}
	for _, fd := range inherited {
		if fd >= first {
			h.call("close inherited descriptors", sys.SYS_CLOSE, uint64(fd))
			h.calls[len(h.calls)-1].passed = true
		}
	}
}

// become has the helper switch to a user and drop all capabilities.
func (h *helperImage) become(as *Identity) {
	groups := make([]byte, 0, 4*len(as.Groups))
	for _, g := range as.Groups {
		groups = binary.NativeEndian.AppendUint32(groups, g)
	}
	uid, gid := uint64(as.UID), uint64(as.GID)
	h.call("become the user: setgroups", sys.SYS_SETGROUPS, uint64(len(as.Groups)), h.put(groups))
	h.call("become the user: setresgid", sys.SYS_SETRESGID, gid, gid, gid)
	h.call("become the user: setresuid", sys.SYS_SETRESUID, uid, uid, uid)
	if os.Geteuid() == 0 {
		return // the kernel has taken root's capabilities, or the program is root's
	}
	h.call("give up capabilities: prctl", sys.SYS_PRCTL, sys.PR_CAP_AMBIENT, sys.PR_CAP_AMBIENT_CLEAR_ALL)
	version := binary.NativeEndian.AppendUint32(nil, sys.LINUX_CAPABILITY_VERSION_3)
	h.call("give up capabilities: capset", sys.SYS_CAPSET, h.put(append(version, 0, 0, 0, 0)), h.put(make([]byte, 24)))
}

// launch is a helper that is about to start.
type launch struct {
	image *os.File
	files []*os.File // its descriptors
	own   *os.File   // one of them that is this launch's; may be nil
	steps []string
}

func (l *launch) close() {
	if l.image != nil {
		_ = l.image.Close()
	}
	if l.own != nil {
		_ = l.own.Close()
	}
}

// path names the image to the child, in which it is the last one of the descriptors: any other
// number may be one of them there.
func (l *launch) path() string { return fmt.Sprintf("/proc/self/fd/%d", len(l.files)-1) }

// direct is of systems without a helper.
func (*Program) direct(*os.ProcAttr) error { return nil }

// prepare makes the helper of a program, whose descriptors files are, but for the last one: the
// report's.
func prepare(p Program, files []*os.File) (l *launch, err error) {
	l = &launch{files: files}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for _, s := range []string{p.Path, p.Dir} {
		if strings.ContainsRune(s, 0) {
			return nil, &os.PathError{Op: "exec", Path: s, Err: syscall.EINVAL}
		}
	}
	over, err := inherited()
	if err != nil {
		return nil, err
	}
	h := newHelperImage(len(files)-1, ownCalls+len(over))
	path := p.Path
	if path == ownProgram { // the helper's is another one
		fd, err := sys.Open(ownProgram, sys.O_PATH|sys.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: ownProgram, Err: err}
		}
		l.own = os.NewFile(uintptr(fd), ownProgram)
		path = fmt.Sprintf("/proc/self/fd/%d", len(l.files))
		l.files = append(l.files, l.own)
	}
	dir := len(l.files)
	if p.In != nil {
		l.files = append(l.files, p.In)
	}
	for fd := len(files) - 1; fd < len(l.files); fd++ {
		h.call("mark a descriptor", sys.SYS_FCNTL, uint64(fd), sys.F_SETFD, sys.FD_CLOEXEC)
	}
	h.call("close the helper's file", sys.SYS_CLOSE, uint64(len(l.files)))
	h.calls[len(h.calls)-1].passed = true
	h.closeFrom(len(l.files)+1, over)
	if p.As != nil {
		h.become(p.As)
	}
	if p.In != nil {
		h.call(stepDirectory, sys.SYS_FCHDIR, uint64(dir))
	} else if p.Dir != "" {
		h.call(stepDirectory, sys.SYS_CHDIR, h.putString(p.Dir))
	}
	h.call("exec", sys.SYS_EXECVE, h.putString(path), h.putStrings(p.Args), h.putStrings(p.Env))
	l.steps = h.steps
	if l.image, err = h.file(); err == nil {
		l.files = append(l.files, l.image)
	}
	return l, err
}

// failure reads the helper's report.
func failure(report []byte, p Program, steps []string) error {
	errno := syscall.Errno(-int64(binary.NativeEndian.Uint64(report)))
	i := (binary.NativeEndian.Uint64(report[8:]) - imageBase - callsAt) / callSize
	if i >= uint64(len(steps)) {
		return fmt.Errorf("start %s: the spawn helper reports step %d of %d", p.Path, i, len(steps))
	}
	path := p.Path
	if steps[i] == stepDirectory {
		if path = p.Dir; p.In != nil {
			path = p.In.Name()
		}
	}
	return &os.PathError{Op: steps[i], Path: path, Err: errno}
}
