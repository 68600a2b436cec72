package hostileuser

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("attacker", runAttacker)
	testutil.RegisterRole("bomb", runBomb)
}

// attacker is one process of the user who attacks. It does one thing again and again.
type attacker struct {
	socket string // of root's daemon
	vmmc   string // the command
	dir    string // the attacker's own
	files  string // of a file server that stores nothing and flushes nothing: has the files that dirty opens
	stuck  string // of a file server that opens nothing: has the program true and the directory base
	n      int    // attempts so far, refused ones too
	made   int    // attempts that count, and counted parts of them

	process *vmmc.Process // of names, over all attempts
	refused bool          // the attempt as a whole does not count
}

// attack is one way to attack. The function makes one attempt. Whether the daemon refuses it is the
// daemon's affair, so it has no result.
var attacks = map[string]func(*attacker, context.Context){
	"leased program":     (*attacker).leasedProgram,
	"leased interpreter": (*attacker).leasedInterpreter,
	"lingering sockets":  (*attacker).lingeringSockets,
	"dirty files":        (*attacker).dirtyFiles,
	"program on a file server that does not answer": (*attacker).stuckProgram,
	"flood of rights":    (*attacker).floodOfRights,
	"slow reader":        (*attacker).slowReader,
	"nested directories": (*attacker).nestedDirectories,
	"processes":          (*attacker).processes,
	"connections":        (*attacker).connections,
	"names":              (*attacker).names,
	"flood of names":     (*attacker).floodOfNames,
}

// runAttacker repeats one attack until its input ends. It prints the number of attempts now and
// then.
func runAttacker() int {
	args := testutil.Args()
	attack, ok := attacks[args[0]]
	if !ok {
		fmt.Printf("there is no attack %q\n", args[0])
		return 2
	}
	a := &attacker{socket: args[1], vmmc: args[2], dir: args[3], files: args[4], stuck: args[5]}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		a.n++
		short, end := context.WithTimeout(ctx, 3*time.Second)
		a.refused = false
		attack(a, short)
		end()
		if !a.refused {
			a.attempted()
		}
		pause(ctx, 2*time.Millisecond)
	}
	return 0
}

// attempted counts one more attempt, or a part of one that the daemon answered, and prints the
// number.
func (a *attacker) attempted() {
	a.made++
	fmt.Println(a.made)
}

// path names a new file or directory of the attacker's.
func (a *attacker) path(name string) string {
	return filepath.Join(a.dir, name+strconv.Itoa(a.n))
}

// The operations and types of fcntl(2) for leases, which package syscall lacks on some machines.
const (
	setLease   = 1024
	writeLease = 1
)

// leased makes an executable file with a write lease on it. Whatever opens it waits in the kernel
// until the lease is given back, or for /proc/sys/fs/lease-break-time.
func leased(path string, content []byte) (release func(), err error) {
	if err := os.WriteFile(path, content, 0o700); err != nil {
		return nil, err
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setLease, writeLease); e != 0 {
		_ = syscall.Close(fd)
		return nil, e
	}
	return func() { _ = syscall.Close(fd); _ = os.Remove(path) }, nil
}

// leasedProgram has the daemon start a program whose file cannot be opened.
func (a *attacker) leasedProgram(ctx context.Context) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		return
	}
	p, err := vmmc.Open(ctx)
	if err != nil {
		return
	}
	defer p.Close()
	release, err := leased(a.path("program"), program)
	if err != nil {
		fmt.Println("lease:", err)
		return
	}
	defer release()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _, _ = p.Spawn(ctx, p.Node(), a.path("program")) })
	}
	wg.Wait()
}

// leasedInterpreter has a session start scripts whose interpreter cannot be opened.
func (a *attacker) leasedInterpreter(ctx context.Context) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		return
	}
	base := a.path("base")
	if os.Mkdir(base, 0o700) != nil {
		return
	}
	defer os.RemoveAll(base)
	interpreter := filepath.Join(base, "interpreter")
	release, err := leased(interpreter, program)
	if err != nil {
		return
	}
	defer release()
	if os.WriteFile(filepath.Join(base, "script"), []byte("#!"+interpreter+"\n"), 0o700) != nil {
		return
	}
	name := "attacker" + strconv.Itoa(a.n)
	if a.command(ctx, "session", "add", "--share", base, "--out", "/out", name) != nil {
		return
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _ = a.command(ctx, "run", "-d", name, "/script") })
	}
	wg.Wait()
	_ = a.command(context.WithoutCancel(ctx), "session", "del", name)
}

func (a *attacker) command(ctx context.Context, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	c := exec.CommandContext(ctx, a.vmmc, args...)
	c.WaitDelay = time.Second
	return c.Run()
}

// lingering returns the descriptor of a TCP socket whose last close waits for an hour: it has
// SO_LINGER, and data that its peer does not take. The end of peer resets the connection.
func lingering() (fd int, peer io.Closer, err error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return -1, nil, err
	}
	defer l.Close()
	if fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return -1, nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, nil, errors.Join(err, syscall.Close(fd))
	}
	c, err := l.AcceptTCP()
	if err != nil {
		return -1, nil, errors.Join(err, syscall.Close(fd))
	}
	err = errors.Join(c.SetLinger(0), syscall.SetNonblock(fd, true))
	for b := make([]byte, 1<<16); err == nil; {
		if _, e := syscall.Write(fd, b); e != nil {
			break
		}
	}
	linger := &syscall.Linger{Onoff: 1, Linger: 3600}
	err = errors.Join(err, syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, linger),
		syscall.SetNonblock(fd, false)) // the last close of one that does not block does not wait
	if err != nil {
		return -1, nil, errors.Join(err, c.Close(), syscall.Close(fd))
	}
	return fd, c, nil
}

// peers are the far ends of lingering sockets. The oldest of many end, so that an attacker stays
// within its own limit of descriptors.
type peers struct {
	mu  sync.Mutex
	all []io.Closer
}

var held peers

func (p *peers) hold(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all = append(p.all, c); len(p.all) > 256 {
		_ = p.all[0].Close()
		p.all = p.all[1:]
	}
}

// control dials the daemon and does not join.
func (a *attacker) control(ctx context.Context) (*nodeproto.Conn, error) {
	c, err := nodeproto.Dial(ctx, a.socket)
	if err != nil {
		return nil, err
	}
	return nodeproto.NewConn(c, func(context.Context, nodeproto.Method, []byte, []int) (any, []int, error) {
		return nil, nil, errors.New("no")
	}), nil
}

// unjoined dials the daemon and waits until it answers something: before that it takes no
// descriptors.
func (a *attacker) unjoined(ctx context.Context) (*net.UnixConn, error) {
	c, err := nodeproto.Dial(ctx, a.socket)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err = c.Write(request(nodeproto.Control, 0)); err == nil {
		_, err = c.Read(make([]byte, nodeproto.MaxPacket))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// request is the packet of a request with n descriptors.
func request(m nodeproto.Method, n int) []byte {
	b := append([]byte("VML1\x01"), byte(n))
	b = binary.LittleEndian.AppendUint16(b, uint16(m))
	return append(binary.LittleEndian.AppendUint64(b, uint64(m)), "{}"...)
}

// lingeringSockets passes sockets to the daemon with requests that await none, and leaves it the
// last descriptors of them.
func (a *attacker) lingeringSockets(ctx context.Context) {
	var fds []int
	for range 4 {
		fd, peer, err := lingering()
		if err != nil {
			break
		}
		held.hold(peer)
		fds = append(fds, fd)
	}
	c, err := a.unjoined(ctx)
	if err != nil {
		go closeAll(fds) // waits itself
		return
	}
	defer c.Close()
	for _, fd := range fds {
		go func() {
			_, _, _ = c.WriteMsgUnix(request(nodeproto.Import, 1), syscall.UnixRights(fd), nil)
			closeAll([]int{fd}) // at once: the daemon's close is the last one, or this one waits
		}()
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = c.Read(make([]byte, nodeproto.MaxPacket))
	}
}

// dirtyEach is how many files each kind of attacker has for dirty. An attacker opens each only
// once: the second open of a dirty file waits for its server.
const dirtyEach = 128

var dirtied atomic.Int32

func dirtyFile(of string, n int) string { return fmt.Sprintf("dirty-%s-%d", of, n) }

// dirty returns a file that its server does not flush: the last close of it waits for the server.
func dirty(files, of string) (fd int, err error) {
	n := int(dirtied.Add(1)) - 1
	if n >= dirtyEach {
		return -1, errors.New("all files are dirty")
	}
	fd, err = syscall.Open(filepath.Join(files, dirtyFile(of, n)), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if _, err := syscall.Pwrite(fd, []byte("dirty"), 0); err != nil {
		go closeAll([]int{fd})
		return -1, err
	}
	return fd, nil
}

// dirtyFiles passes files to the daemon with requests that await none.
func (a *attacker) dirtyFiles(ctx context.Context) {
	c, err := a.control(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	fd, err := dirty(a.files, "attacker")
	if err != nil {
		return
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	_, _ = c.Call(short, nodeproto.Import, nodeproto.ImportRequest{Node: "one", PID: 1, ID: 1}, []int{fd}, nil)
	go closeAll([]int{fd}) // waits for the file server
	pause(ctx, 500*time.Millisecond)
}

// stuckProgram has the daemon start a program whose file server does not answer.
func (a *attacker) stuckProgram(ctx context.Context) {
	p, err := vmmc.Open(ctx)
	if err != nil {
		return
	}
	defer p.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _, _ = p.Spawn(ctx, p.Node(), filepath.Join(a.stuck, "true")) })
	}
	wg.Wait()
}

// floodOfRights passes as many descriptors as fit, of a file that is harmless to close.
func (a *attacker) floodOfRights(ctx context.Context) {
	c, err := nodeproto.Dial(ctx, a.socket)
	if err != nil {
		return
	}
	defer c.Close()
	f, err := os.Open("/dev/null")
	if err != nil {
		return
	}
	defer f.Close()
	fds := make([]int, 253) // the kernel's limit for one message
	for i := range fds {
		fds[i] = int(f.Fd())
	}
	rights := syscall.UnixRights(fds...)
	_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for range 64 {
		if _, _, err := c.WriteMsgUnix([]byte("no request"), rights, nil); err != nil {
			return
		}
	}
}

// slowReader asks without end and reads no answer.
func (a *attacker) slowReader(ctx context.Context) {
	c, err := a.control(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	if _, _, err := nodeproto.Ask[nodeproto.Welcome](ctx, c, nodeproto.Register, nodeproto.Hello{Version: nodeproto.Version, Incarnation: uint64(a.n)}, nil); err != nil {
		return
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() { // each waits for an export that is never made
			_, _ = c.Call(ctx, nodeproto.Import, nodeproto.ImportRequest{Node: "one", PID: 1, ID: 1}, nil, nil)
		})
	}
	raw, err := nodeproto.Dial(ctx, a.socket)
	if err == nil {
		_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
		for {
			if _, err := raw.Write(make([]byte, 4096)); err != nil {
				break
			}
		}
		_ = raw.Close()
	}
	c.Close()
	wg.Wait()
}

// nestedDirectories leaves a session's output directory deep.
func (a *attacker) nestedDirectories(ctx context.Context) {
	const depth = 4000
	base := a.path("deep")
	if os.Mkdir(base, 0o700) != nil {
		return
	}
	name := "deep" + strconv.Itoa(a.n)
	if a.command(ctx, "session", "add", "--share", base, "--out", "/out", name) != nil {
		return
	}
	if os.Chdir(base) != nil {
		return
	}
	begun := time.Now()
	for range depth {
		if time.Since(begun) > 500*time.Millisecond || os.Mkdir("d", 0o700) != nil || os.Chdir("d") != nil {
			break
		}
	}
	_ = a.command(context.WithoutCancel(ctx), "session", "del", name)
	_ = os.Chdir("/")
	_ = exec.Command("rm", "-rf", base).Run()
}

// processes starts programs that join the daemon and end at once, as fast as the user may.
func (a *attacker) processes(ctx context.Context) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := exec.CommandContext(ctx, "/proc/self/exe")
			c.Env = append(os.Environ(), "VMMC_TEST_ROLE=bomb", nodeproto.Env+"="+a.socket)
			_ = c.Run()
		})
	}
	wg.Wait()
}

// runBomb joins, and ends without a word.
func runBomb() int {
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	if p, err := vmmc.Open(ctx); err == nil {
		if m, err := p.Alloc(4096); err == nil {
			_, _ = p.Export(1, m.Bytes())
		}
	}
	return 0
}

// connections takes many connections at once, and holds them for a moment.
func (a *attacker) connections(ctx context.Context) {
	var cs []*net.UnixConn
	for range 2000 {
		c, err := nodeproto.Dial(ctx, a.socket)
		if err != nil {
			break
		}
		cs = append(cs, c)
	}
	pause(ctx, 500*time.Millisecond)
	for _, c := range cs {
		_ = c.Close()
	}
}

// names publishes many names, has as many imports wait for others as it may, and lists them all by
// a pattern that takes long to match. It keeps one process over all attempts: the user's other
// attacks take all connections that the user may have, so a second one would be refused. What is
// counted are the lists, as an attempt ends only when the daemon has answered or dropped 2,200
// imports.
func (a *attacker) names(ctx context.Context) {
	if a.process == nil {
		p, err := vmmc.Open(ctx)
		if err != nil {
			a.refused = true
			return
		}
		a.process = p
	}
	p := a.process
	const exports, page = 64, 4096
	m, err := p.Alloc(exports * page)
	if err != nil {
		return
	}
	defer m.Close()
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range 1100 {
		wg.Go(func() { _, _ = p.ImportName(ctx, "none"+strconv.Itoa(i)) })
		wg.Go(func() { _, _ = p.ImportName(ctx, "queue"+strconv.Itoa(i), vmmc.OwnedBy("root", "")) })
	}
	for id := range uint32(exports) {
		e, err := p.Export(id+1, m.Bytes()[id*page:][:page])
		if err != nil {
			break
		}
		wg.Go(func() {
			for n := range 16 {
				name := strings.Repeat("a", 80) + strconv.Itoa(int(id)) + "." + strconv.Itoa(n)
				_ = e.PublishAs(ctx, name)
				_ = e.PublishAs(ctx, "/"+name)
				_ = e.Unpublish(ctx, "/"+name)
			}
			_ = e.Close()
		})
	}
	pattern := strings.Repeat("*a", 40) + "b*"
	for ctx.Err() == nil {
		for _, of := range []string{pattern, "/" + pattern} {
			for _, err := range p.Names(ctx, of) {
				if err != nil {
					break
				}
			}
			a.attempted()
		}
	}
}

// floodOfNames sends requests by several connections without waiting for answers in between: it
// publishes and drops names, waits for names that are then published all at once, and looks up
// missing ones and ones that are too long.
func (a *attacker) floodOfNames(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	a.refused = true // what counts is each connection that the daemon accepts
	for range 8 {
		c, err := a.control(ctx)
		if err != nil {
			return
		}
		defer c.Close()
		hello := nodeproto.Hello{Version: nodeproto.Version, Incarnation: uint64(a.n)}
		w, _, err := nodeproto.Ask[nodeproto.Welcome](ctx, c, nodeproto.Register, hello, nil)
		if err != nil {
			return
		}
		a.attempted()
		scope := w.Process.String()
		_, _ = c.Call(ctx, nodeproto.Export, nodeproto.ExportRequest{ID: 1, Size: 4096, Serial: 1}, nil, nil)
		ask := func(m nodeproto.Method, in any) {
			wg.Go(func() {
				for ctx.Err() == nil {
					if _, err := c.Call(ctx, m, in, nil, nil); err != nil && c.Err() != nil {
						return
					}
				}
			})
		}
		// Whenever this name is published, all of its waiters wake up.
		herd := &nodeproto.NameRef{Name: "herd" + scope}
		for range 256 {
			ask(nodeproto.Import, nodeproto.ImportRequest{Name: herd})
		}
		for i := range 16 {
			name := herd.Name
			if i > 0 {
				name = strings.Repeat("n", 100) + strconv.Itoa(i)
			}
			r := nodeproto.PublishRequest{Name: name, ID: 1, Serial: 1, Set: true}
			ask(nodeproto.Publish, r)
			ask(nodeproto.Unpublish, r)
		}
		root, none := "root", ""
		for _, name := range []string{"missing", strings.Repeat("long", 4000), "", "a/b", "\xff"} {
			for range 16 {
				ask(nodeproto.Import, nodeproto.ImportRequest{Name: &nodeproto.NameRef{
					Name: name, User: &root, Session: &none,
				}})
			}
		}
	}
}

// counter is the number that an attacker printed last.
type counter struct{ n atomic.Int64 }

// Write implements io.Writer for the attacker's standard output.
func (c *counter) Write(b []byte) (int, error) {
	var n int64
	for _, ch := range b {
		switch {
		case ch >= '0' && ch <= '9':
			n = 10*n + int64(ch-'0')
		case ch == '\n':
			c.n.Store(max(n, c.n.Load()))
			n = 0
		}
	}
	return len(b), nil
}
