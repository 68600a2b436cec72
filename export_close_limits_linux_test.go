package vmmc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
)

func init() {
	testutil.RegisterRole("close at a limit", func() int {
		if err := closeAtLimit(testutil.Args()); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	})
}

// slack is what is left under a limit of address space or data: more than the Go runtime takes at a
// time, and less than an export has.
const slack = 72 << 20

// lift takes a limit off again.
type lift func() error

// hopeless is where no mapping of that size can be made at all, not even in the place of another
// one.
const hopeless = "locked memory"

// resources are what a process can be at the limit of. Each brings it there.
var resources = map[string]func() (lift, error){
	"nothing":       func() (lift, error) { return func() error { return nil }, nil },
	"descriptors":   useUpDescriptors,
	"mappings":      useUpMappings,
	"address space": func() (lift, error) { return lower(syscall.RLIMIT_AS, "VmSize:", slack) },
	"file size":     func() (lift, error) { return lower(syscall.RLIMIT_FSIZE, "", 4096) },
	"data":          func() (lift, error) { return lower(syscall.RLIMIT_DATA, "VmData:", 2*slack) }, // of copies, too, afterwards
	"descriptors, mappings, address space and file size": func() (lift, error) {
		return together(useUpMappings,
			func() (lift, error) { return lower(syscall.RLIMIT_AS, "VmSize:", slack) },
			func() (lift, error) { return lower(syscall.RLIMIT_FSIZE, "", 4096) }, useUpDescriptors)
	},
	hopeless: lockAll,
}

func together(all ...func() (lift, error)) (lift, error) {
	var lifts []lift
	off := func() error {
		for _, l := range lifts {
			if err := l(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range all {
		l, err := f()
		if err != nil {
			return nil, errors.Join(err, off())
		}
		lifts = append(lifts, l)
	}
	return off, nil
}

// lower sets a limit to what is in use, by a line of /proc/self/status, and a little more.
func lower(what int, line string, more uint64) (lift, error) {
	var used uint64
	if line != "" {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return nil, err
		}
		_, rest, _ := strings.Cut(string(b), line)
		if _, err := fmt.Sscan(rest, &used); err != nil {
			return nil, err
		}
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(what, &before); err != nil {
		return nil, err
	}
	err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: min(used<<10+more, before.Max), Max: before.Max})
	return func() error { return syscall.Setrlimit(what, &before) }, err
}

// lockAll has this thread make no mapping that would not fit into memory that may be locked. As an
// unprivileged user it cannot lock more.
func lockAll() (lift, error) {
	const (
		future, onFault = 2, 4 // of mlockall
		memlock         = 8    // RLIMIT_MEMLOCK
		as              = 65534
	)
	runtime.LockOSThread()
	become := func(uid int) error { // this thread alone
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			return fmt.Errorf("setresuid %d: %w", uid, e)
		}
		return nil
	}
	off, err := lower(memlock, "VmLck:", 8<<20)
	if err != nil {
		return nil, err
	}
	if err := syscall.Mlockall(future | onFault); err != nil {
		return nil, fmt.Errorf("mlockall: %w", err)
	}
	was := os.Geteuid()
	if was == 0 {
		err = become(as)
	}
	return func() error {
		if was == 0 {
			if err := become(0); err != nil {
				return err
			}
		}
		return errors.Join(syscall.Munlockall(), off())
	}, err
}

// useUpDescriptors lets the process have no descriptor more, also where it closes some.
func useUpDescriptors() (lift, error) { return lower(syscall.RLIMIT_NOFILE, "", 3) }

func useUpMappings() (lift, error) {
	const pages = 200_000
	page := os.Getpagesize()
	all, err := syscall.Mmap(-1, 0, pages*page, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	off := func() error { return syscall.Munmap(all) }
	for i := 1; i < pages; i += 2 {
		err := syscall.Mprotect(all[i*page:(i+1)*page], syscall.PROT_READ)
		if errors.Is(err, syscall.ENOMEM) {
			// What is smaller than what that one would have taken.
			for syscall.Mprotect(all[(i+1)*page:], syscall.PROT_READ) == nil {
				i++
			}
			return off, nil
		}
		if err != nil {
			return nil, errors.Join(err, off())
		}
	}
	return nil, errors.Join(errors.New("no end of mappings"), off())
}

// provide has the Go runtime own already what it may need at a limit, where it would die
// without: threads, memory, and its descriptions of memory. No collection takes place afterwards.
func provide() {
	_ = make([]byte, 32<<20)
	spans := make([][]byte, 2000)
	for i := range spans {
		spans[i] = make([]byte, 8<<10)
	}
	clear(spans)
	runtime.GC()
	runtime.GC() // the first one's garbage is swept
	debug.SetGCPercent(-1)

	var all, up sync.WaitGroup
	release := make(chan struct{})
	for range runtime.GOMAXPROCS(0) + 24 {
		up.Add(1)
		all.Go(func() {
			runtime.LockOSThread() // one thread each; they stay when they are unlocked
			defer runtime.UnlockOSThread()
			up.Done()
			<-release
			for n := 1; n <= 128<<10; n *= 2 { // its processor has free memory of these sizes
				runtime.KeepAlive(make([]byte, n))
				runtime.KeepAlive(make([]*byte, (n+7)/8))
			}
		})
	}
	up.Wait()
	close(release)
	all.Wait()
}

// kept is the memory of an export as an importer has it that bypasses the library: it keeps its
// mapping.
func kept(mem []byte, write bool) ([]byte, error) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, f := range fds {
		fd, _ := strconv.Atoi(f.Name())
		var st syscall.Stat_t
		name, _ := os.Readlink("/proc/self/fd/" + f.Name())
		if !strings.HasPrefix(name, "/memfd:vmmc ") || syscall.Fstat(fd, &st) != nil || st.Size != int64(len(mem)) {
			continue
		}
		prot := syscall.PROT_READ
		if write {
			prot |= syscall.PROT_WRITE
		}
		b, err := syscall.Mmap(fd, 0, len(mem), prot, syscall.MAP_SHARED)
		if err != nil {
			return nil, err
		}
		was := mem[5]
		if mem[5] = 77; b[5] == 77 {
			mem[5] = was
			return b, nil
		}
		mem[5] = was
		_ = syscall.Munmap(b)
	}
	return nil, errors.New("no descriptor of the memory was found")
}

// exportKind is one way to export mapped memory.
type exportKind struct {
	opts     []vmmc.ExportOption
	from, to int // of pages from either end
	target   bool
	readOnly bool
}

var exportKinds = map[string]exportKind{
	"whole":     {},
	"read-only": {opts: []vmmc.ExportOption{vmmc.ReadOnly()}, readOnly: true},
	"part":      {opts: []vmmc.ExportOption{vmmc.SharePages()}, from: 2, to: 1},
	"target":    {target: true},
}

// closeAtLimit is a program that exports memory, comes to a limit and closes the export.
func closeAtLimit(args []string) error {
	limit, kind := resources[args[0]], exportKinds[args[1]]
	large := 4 << 20
	if args[0] == hopeless || strings.Contains(args[0], "data") || strings.Contains(args[0], "space") {
		large = slack + 24<<20
	}
	n, err := node.Start()
	if err != nil {
		return err
	}
	defer n.Close()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	p, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	if err != nil {
		return err
	}
	defer p.Close()
	importer, err := vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	if err != nil {
		return err
	}
	defer importer.Close()
	m, err := p.Alloc(large)
	if err != nil {
		return err
	}
	exported, opts := m, kind.opts
	if kind.target { // m is what messages are redirected to, and mapped as well
		if exported, err = p.Alloc(64 << 10); err != nil {
			return err
		}
		opts = append(opts, vmmc.Redirectable(m))
	}
	all := exported.Bytes()
	e, err := p.Export(1, all[kind.from*vmmc.PageSize():len(all)-kind.to*vmmc.PageSize()], opts...)
	if err != nil {
		return err
	}
	im, err := importer.Import(ctx, p.Node(), p.PID(), 1)
	if err != nil {
		return err
	}
	if im.Path() != vmmc.PathMapped {
		return fmt.Errorf("the path is %s", im.Path())
	}
	mine := m.Bytes()[kind.from*vmmc.PageSize() : large-kind.to*vmmc.PageSize()]
	theirs, err := kept(m.Bytes(), !kind.readOnly)
	if err != nil {
		return err
	}
	theirs = theirs[kind.from*vmmc.PageSize() : large-kind.to*vmmc.PageSize()]
	for i := 0; i < len(mine); i += 4096 {
		mine[i], mine[i+4095] = byte(i>>12), 9
	}
	provide()
	off, err := limit()
	if err != nil {
		return fmt.Errorf("come to the limit: %w", err)
	}
	cerr := e.Close()
	if args[0] == hopeless && cerr == nil {
		return errors.Join(errors.New("closed, where nothing can be had"), off())
	}
	sealed := kind.readOnly
	if cerr != nil {
		if err := im.Send(ctx, make([]byte, 4), 0); !errors.Is(err, vmmc.ErrRevoked) && !errors.Is(err, vmmc.ErrNoRights) {
			return fmt.Errorf("a send after a Close that failed: %w", err)
		}
		if _, err := p.Export(2, mine); !errors.Is(err, vmmc.ErrOverlappedBufs) {
			return fmt.Errorf("memory that is shared still was exported again: %w", err)
		}
		if err := m.Close(); !errors.Is(err, vmmc.ErrBadRbufState) {
			return fmt.Errorf("memory that is shared still was freed: %w", err)
		}
		if err := off(); err != nil {
			return err
		}
		if args[0] != hopeless {
			return fmt.Errorf("close: %w", cerr)
		}
		if err := e.Close(); err != nil {
			return fmt.Errorf("close again: %w", err)
		}
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("close once more: %w", err)
	}
	check := func(when string) error {
		for i := 0; i < len(mine); i += 4096 {
			if mine[i] != byte(i>>12) || mine[i+4095] != 9 {
				return fmt.Errorf("%s: page %d holds %d and %d", when, i>>12, mine[i], mine[i+4095])
			}
			if !sealed {
				theirs[i], theirs[i+4095] = 100, 100
			}
		}
		for i := 0; i < len(mine); i += 4096 {
			if mine[i] != byte(i>>12) || mine[i+4095] != 9 {
				return fmt.Errorf("%s: the importer has written to page %d", when, i>>12)
			}
		}
		mine[8] = 55
		if theirs[8] == 55 {
			return fmt.Errorf("%s: the importer sees what is stored", when)
		}
		return nil
	}
	if err := check("at the limit"); err != nil {
		return errors.Join(err, off())
	}
	if cerr == nil {
		if err := off(); err != nil {
			return err
		}
	}
	// What was taken away is not given out anew, whatever it is exported as.
	for id, opts := range [][]vmmc.ExportOption{nil, {vmmc.SharePages()}, {vmmc.ReadOnly()}, nil} {
		e, err := p.Export(uint32(10+id), mine, opts...)
		if err != nil {
			return fmt.Errorf("export it again: %w", err)
		}
		im, err := importer.Import(ctx, p.Node(), p.PID(), uint32(10+id))
		if err != nil {
			return err
		}
		got := make([]byte, 4096)
		if err := im.Get(ctx, got, 4096); err != nil || got[0] != 1 || got[4095] != 9 {
			return fmt.Errorf("exported again, it holds %d and %d: %w", got[0], got[4095], err)
		}
		if err := check(fmt.Sprintf("exported again, %s", im.Path())); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return m.Close()
}

// Closing an export works at each limit that a process can come to: afterwards no importer changes
// or sees the memory. Where nothing at all is left, Close fails and says so, the memory is not used
// again, and another Close goes on.
func TestCloseAtALimit(t *testing.T) {
	for limit := range resources {
		for kind := range exportKinds {
			t.Run(limit+"/"+kind, func(t *testing.T) {
				testutil.Require(t, !raceEnabled || limit == "nothing" || limit == "descriptors" || limit == "file size",
					"the race detector needs mappings and address space of its own")
				if out, err := testutil.CombinedOutputAtLimit(t, "close at a limit", limit, kind); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
