package hostileuser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("victim", runVictim) }

// patience bounds one attempt of the victim. It is longer than any bound that the test asserts, so
// that an operation which hangs is seen as one that takes too long, and the others go on.
const patience = 20 * time.Second

// victim is the user who wants to work. Its methods are the operations that are measured.
type victim struct {
	rec    *recorder
	vmmc   string // the command
	base   string // of its sessions
	node   vmmc.NodeID
	server *vmmc.Process // exports what the operations import
	client *vmmc.Process
	im     *vmmc.Import
	named  *vmmc.Export  // of server
	prey   atomic.Uint32 // pid of a hostile exporter to import from; 0: there is none
	turn   int
}

// runVictim measures until its input ends. For each line of input it prints what was recorded since
// the line before, as JSON. A line with a number names a hostile exporter to import from.
func runVictim() int {
	args := testutil.Args()
	v := &victim{rec: newRecorder(), vmmc: args[0], base: args[1]}
	if err := v.begin(); err != nil {
		fmt.Println("victim:", err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context){v.processes, v.messages, v.names, v.sessions, v.imprudent} {
		wg.Go(func() {
			for ctx.Err() == nil {
				loop(ctx)
			}
		})
	}
	fmt.Println("ready")
	fmt.Println(v.server.PID())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if pid, err := strconv.ParseUint(lines.Text(), 10, 32); err == nil {
			v.prey.Store(uint32(pid))
		}
		b, err := json.Marshal(v.rec.take())
		if err != nil {
			fmt.Println("victim:", err)
			return 1
		}
		fmt.Printf("%s\n", b)
	}
	stop()
	wg.Wait()
	if err := errors.Join(v.client.Close(), v.server.Close()); err != nil {
		fmt.Println("victim: close:", err)
		return 1
	}
	return 0
}

func (v *victim) begin() (err error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if v.server, err = vmmc.Open(ctx); err != nil {
		return err
	}
	m, err := v.server.Alloc(4096)
	if err != nil {
		return err
	}
	if _, err := v.server.Export(1, m.Bytes()[:2048]); err != nil {
		return err
	}
	// Anybody may import this one, the attacker too.
	if _, err := v.server.Export(2, m.Bytes()[2048:], vmmc.Permit(vmmc.Permission{Users: []string{nodeproto.AnyName}, Sessions: []string{nodeproto.AnyName}})); err != nil {
		return err
	}
	if v.named, err = v.server.Export(3, make([]byte, 4096)); err != nil {
		return err
	}
	if v.client, err = vmmc.Open(ctx); err != nil {
		return err
	}
	v.node = v.client.Node()
	v.im, err = v.client.Import(ctx, v.node, v.server.PID(), 1)
	return err
}

// processes joins the node with a new process and makes its first import.
func (v *victim) processes(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var p *vmmc.Process
	v.rec.time("Open", func() (err error) {
		p, err = vmmc.Open(ctx)
		return err
	})
	if p == nil {
		return
	}
	v.rec.time("Import", func() error {
		im, err := p.Import(ctx, v.node, v.server.PID(), 1)
		if err == nil {
			err = im.Close()
		}
		return err
	})
	v.rec.time("Process.Close", p.Close)
	pause(ctx, 5*time.Millisecond)
}

// messages sends to a process that it has a link to, and reads there.
func (v *victim) messages(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var b [64]byte
	for range 20 {
		v.rec.time("Send", func() error { return v.im.Send(ctx, b[:], 0) })
	}
	v.rec.time("Get", func() error { return v.im.Get(ctx, b[:], 0) })
	pause(ctx, 5*time.Millisecond)
}

// names publishes a name, of the node and of the cluster in turn, and imports by it.
func (v *victim) names(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for _, name := range []string{"queue", "/queue"} {
		v.rec.time("PublishAs", func() error { return v.named.PublishAs(ctx, name) })
		v.rec.time("ImportName", func() error {
			im, err := v.client.ImportName(ctx, name)
			if err == nil {
				err = im.Close()
			}
			return err
		})
		v.rec.time("Unpublish", func() error { return v.named.Unpublish(ctx, name) })
	}
	pause(ctx, 5*time.Millisecond)
}

// sessions goes through the life of a session with the command-line tool.
func (v *victim) sessions(ctx context.Context) {
	v.turn++
	name := "victim" + strconv.Itoa(v.turn)
	if v.command(ctx, "session add", "session", "add", "--share", v.base, "--out", "/out", name) != nil {
		pause(ctx, 100*time.Millisecond)
		return
	}
	v.rec.time("run", func() error {
		out, err := v.output("run", name, "echo", "it runs")
		if err == nil && out != "it runs\n" {
			err = fmt.Errorf("the output is %q", out)
		}
		return err
	})
	if out, err := v.output("run", "-d", name, "sleep", "1000"); err == nil {
		if f := strings.Fields(out); len(f) > 1 { // the node and the pid
			_ = v.command(ctx, "kill", "kill", name, f[1])
		}
	}
	_ = v.command(ctx, "session del", "session", "del", name)
	pause(ctx, 20*time.Millisecond)
}

// careless names the operation of which the time after the end of its context is recorded.
const careless = "import from the attacker"

// carelessClose names the closing of such an import, which has no context.
const carelessClose = "close an import from the attacker"

// imprudent imports from the attacker's process. Nothing needs to come of it, but it ends in time,
// and the process that does it goes on.
func (v *victim) imprudent(ctx context.Context) {
	pause(ctx, 20*time.Millisecond)
	prey := v.prey.Load()
	if prey == 0 || ctx.Err() != nil {
		return
	}
	const bound = 2 * time.Second
	begin, delayed := time.Now(), testutil.Delays()
	short, stop := context.WithTimeout(ctx, bound)
	defer stop()
	im, err := v.client.Import(short, v.node, vmmc.PID(prey), 1)
	if err == nil { // what an attacker's process does with an import is its own affair
		var b [64]byte
		_ = im.Send(short, b[:], 0)
		_ = im.Get(short, b[:], 0)
	}
	v.rec.add(careless, max(0, time.Since(begin)-bound-delayed()), nil)
	if im != nil {
		begin, delayed = time.Now(), testutil.Delays()
		_ = im.Close()
		v.rec.add(carelessClose, max(0, time.Since(begin)-delayed()), nil)
	}
}

// command runs the tool and records it under name.
func (v *victim) command(ctx context.Context, name string, args ...string) (err error) {
	if ctx.Err() != nil && name != "session del" {
		return ctx.Err()
	}
	v.rec.time(name, func() error {
		_, err = v.output(args...)
		return err
	})
	return err
}

func (v *victim) output(args ...string) (string, error) {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	c := exec.CommandContext(ctx, v.vmmc, args...)
	c.WaitDelay = time.Second
	var out, told strings.Builder
	c.Stdout, c.Stderr = &out, &told
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("vmmc %s: %w: %s", strings.Join(args, " "), err, told.String())
	}
	return out.String(), nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
