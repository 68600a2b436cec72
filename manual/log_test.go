package manual_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/manual"
	"github.com/vmmc-go/vmmc/node"
)

func init() { testutil.RegisterRole("debug", debugRole) }

// debugRole does something of everything at a debug level.
func debugRole() int {
	level, err := strconv.Atoi(testutil.Args()[0])
	if err == nil {
		manual.SetDebugLevel(level)
		err = somethingOfEverything(vmmc.WithLogger(manual.Logger(nil)))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	manual.SetDebugLevel(0)
	if err := somethingOfEverything(vmmc.WithLogger(manual.Logger(nil))); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func somethingOfEverything(opts ...vmmc.Option) error {
	ctx := context.Background()
	n, err := node.Start()
	if err != nil {
		return err
	}
	defer n.Close()
	opts = append(opts, vmmc.WithSocket(n.Socket()))
	p, err := vmmc.Open(ctx, opts...)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	e, err := p.Export(77, m.Bytes())
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, p.Node(), p.PID(), 77)
	if err != nil {
		return err
	}
	for range 100 {
		if err := im.Send(ctx, m.Bytes()[:64], 64); err != nil {
			return err
		}
	}
	if err := im.Close(); err != nil {
		return err
	}
	return e.Close()
}

func TestDebugLevels(t *testing.T) {
	one := []string{"msg=joined", "msg=export ", "buffer=77", "bytes=4096", "msg=import ", "msg=connect", "msg=accept", `msg="import closed"`, "msg=unexport", "msg=left"}
	two := []string{"msg=register", "msg=offer"}
	for level, want := range map[string][]string{"-1": nil, "0": nil, "1": one, "2": append(two, one...), "99": two} {
		cmd := testutil.Command(t, "debug", level)
		cmd.Env = append(cmd.Env, "VMMCSESSION=s")
		var text bytes.Buffer
		cmd.Stderr = &text
		if out, err := cmd.Output(); err != nil {
			t.Fatalf("level %s: %v: %s", level, err, out)
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("level %s does not say %s:\n%s", level, w, &text)
			}
		}
		if want == nil && text.Len() > 0 {
			t.Errorf("level %s says\n%s", level, &text)
		}
		if level == "1" && strings.Contains(text.String(), "msg=register") {
			t.Errorf("level 1 has what belongs to 2:\n%s", &text)
		}
		// Data is traced where the library was built to check itself, and only at 2.
		traces := invariant.Enabled && slices.Contains(want, "msg=register")
		if n := strings.Count(text.String(), "\n"); n > 40 != traces {
			t.Errorf("level %s writes %d lines; it should trace data: %v", level, n, traces)
		}
		if line := regexp.MustCompile(`(?m)msg="mapped send" .*link=\d+ handle=\d+ seq=0 offset=64 bytes=64$`); line.MatchString(text.String()) != traces {
			t.Errorf("level %s traces a send: %v\n%s", level, !traces, &text)
		}
	}
}

// The program's own logger gets the lines that it takes, whatever the level is.
func TestDebugAndTheProgramsLogger(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		var text lines
		l := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: level})).With("own", "yes").WithGroup("vmmc")
		if err := somethingOfEverything(vmmc.WithLogger(manual.Logger(l))); err != nil {
			t.Fatal(err)
		}
		got := text.String()
		if strings.Contains(got, "msg=joined own=yes vmmc.node=local vmmc.pid=") != want || strings.Contains(got, "msg=register") {
			t.Errorf("at level %v:\n%s", level, got)
		}
	}
	if err := somethingOfEverything(vmmc.WithLogger(nil)); err != nil {
		t.Error(err)
	}
}

// lines collects a log that several goroutines write.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The level may change while others log.
func TestSetDebugLevelAnyTime(t *testing.T) {
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 3 {
				if err := somethingOfEverything(vmmc.WithLogger(manual.Logger(nil))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 1000 {
		manual.SetDebugLevel(0)
		manual.SetDebugLevel(-5)
	}
	all.Wait()
}
