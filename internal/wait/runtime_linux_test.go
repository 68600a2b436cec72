package wait

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// short is a wait that ends before its first yield.
func short(b *Budget) (looks int) {
	s := b.Begin(false)
	defer s.End()
	for range 3 {
		looks++
		s.Next(1)
	}
	return looks
}

// plain is one that ends at its third plain look.
func plain(t *testing.T, b *Budget) (looks int) {
	if !b.PollPlain(&Cond{Until: func() bool { looks++; return looks == 3 }}) || looks != 3 {
		t.Errorf("a wait that is over at its third look had %d, and was not over", looks)
	}
	return looks
}

// eachKind runs a test with waits that end before their first yield, and with such as end before
// they begin to look for long.
func eachKind(t *testing.T, test func(t *testing.T, look func() int)) {
	var b Budget
	for name, look := range map[string]func() int{"short": func() int { return short(&b) }, "plain": func() int { return plain(t, &b) }} {
		t.Run(name, func(t *testing.T) { test(t, look) })
	}
}

// With one processor a process whose waits are all short lets its other goroutines run, also where
// it has that one processor since a moment ago.
func TestShortWaitsLetOthersRun(t *testing.T) { eachKind(t, letsOthersRun) }

func letsOthersRun(t *testing.T, look func() int) {
	defer func(n int) { runtime.GOMAXPROCS(n); updateSingleProc() }(runtime.GOMAXPROCS(1))
	var ran atomic.Bool
	go func() { ran.Store(true) }()
	looks := 0
	for !ran.Load() && looks < 50_000 { // less than the monitor lets any goroutine run on
		looks += look()
	}
	if !ran.Load() {
		t.Errorf("no other goroutine ran during %d looks", looks)
	}
}

// With one processor, a goroutine that the network has woken and that polls from then on does not
// keep others from hearing theirs.
func TestPollerLeavesTheNetworkToOthers(t *testing.T) { eachKind(t, leavesTheNetwork) }

func leavesTheNetwork(t *testing.T, look func() int) {
	const most = 20 * time.Second
	defer func(n int) { runtime.GOMAXPROCS(n); updateSingleProc() }(runtime.GOMAXPROCS(1)) // else another thread hears
	var ours, theirs [2]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		ours[i], theirs[i] = r, w
	}
	// Nothing of this process runs when the first line comes.
	c := exec.Command("sh", "-c", "sleep 0.2; echo look >&3; sleep 0.2; echo listen >&4")
	c.ExtraFiles = theirs[:]
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	var heard atomic.Bool
	listened, looked := make(chan error, 1), make(chan bool, 1)
	go func() {
		_, err := ours[1].Read(make([]byte, 16))
		heard.Store(true)
		listened <- err
	}()
	raw, err := ours[0].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		woken := false // without a call that the runtime knows of
		_ = raw.Read(func(uintptr) bool { defer func() { woken = true }(); return woken })
		for start := time.Now(); !heard.Load() && time.Since(start) < most; {
			look()
		}
		looked <- heard.Load()
	}()
	if !<-looked {
		t.Errorf("while one goroutine looked, another one did not hear for %v what came 200ms after it began", most)
	}
	if err := <-listened; err != nil {
		t.Error(err)
	}
}
