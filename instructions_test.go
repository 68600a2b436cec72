package vmmc_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/version"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/cpu"

	"github.com/vmmc-go/vmmc/internal/instrcount"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// instructionsFile has a line for each hot path: the most instructions that it may take, as many
// as it took when it was last measured, and its name. "go test -run '^TestInstructions$' . -update"
// measures anew and writes it.
const instructionsFile = "testdata/instructions.txt"

var update = flag.Bool("update", false, "TestInstructions writes "+instructionsFile+" instead of comparing with it")

// TestInstructions holds what the calls of the data path cost, in instructions of user mode,
// against what they did: a time would say nothing on a machine that others use too. Counting slows
// all down by some thousand times, so that waits are seldom: the count of receiving includes the
// arming of the link, some 600 instructions, which a receiver that waits often does not pay. The
// median of the rounds counts. But a path that involves another goroutine differs on a busy
// machine, at times in most of its rounds: it is longer if that goroutine sleeps and is woken, and
// far shorter if another thread has taken the message. So of a notification, whose handlers'
// goroutine may sleep while it is counted, the shortest round counts that is not far shorter than
// before. The test finds a path that always takes the longer way, and not one that often does.
func TestInstructions(t *testing.T) {
	testutil.Require(t, !raceEnabled, "the race detector adds instructions")
	testutil.Require(t, !invariant.Enabled, "the checks add instructions")
	testutil.Require(t, testing.CoverMode() == "", "counting what is covered adds instructions")
	testutil.Require(t, runtime.GOARCH == "amd64", "the instructions that were counted are amd64's")
	testutil.Require(t, cpu.X86.HasAVX && cpu.X86.HasPCLMULQDQ, "needs a processor with AVX and PCLMULQDQ: copies and checksums take more instructions on others")
	most, compiler := limits(t)
	testutil.Require(t, *update || compiler == version.Lang(runtime.Version()), instructionsFile+" is of "+compiler+", this is "+runtime.Version()+": measure again, with -update")

	if *update {
		write(t, counted(t))
		return
	}
	// On a busy machine the waiter may sleep most of the time. That is another path.
	for again := 1; ; again++ {
		counts := counted(t)
		bad := outside(t, counts, most)
		if len(counts) != len(most) {
			t.Fatalf("%d paths were counted, %s has %d: measure again, with -update", len(counts), instructionsFile, len(most))
		}
		switch {
		case len(bad) == 0:
			return
		case again == 3:
			t.Fatal(strings.Join(bad, "\n"))
		}
	}
}

// counted counts them, in a process of its own.
func counted(t *testing.T) []instrcount.Count {
	t.Helper()
	// single steps take far longer on a busy machine
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	counts, err := instrcount.Measure(ctx, testutil.Command(t, "hotpaths"))
	if errors.Is(err, instrcount.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return beyondCopies(counts)
}

// outside says which do not take what they should.
func outside(t *testing.T, counts []instrcount.Count, most map[string]int) (bad []string) {
	t.Helper()
	for _, c := range counts {
		n := c.Median()
		if meets(c.Name) {
			n = shortest(c, most[c.Name]/2)
		} else if n < most[c.Name]/2 {
			n = 0
		}
		t.Logf("%5d of at most %5d  %-28s %d", n, most[c.Name], c.Name, c.Rounds)
		if n == 0 {
			bad = append(bad, fmt.Sprintf("%s: %d instructions, at most %d: that is not this path, or it takes half of what it did: then measure again with -update", c.Name, c.Rounds, most[c.Name]))
		}
		if n > most[c.Name] {
			bad = append(bad, fmt.Sprintf("%s: %d instructions, at most %d: find out why; if it is worth it, measure again with -update", c.Name, n, most[c.Name]))
		}
	}
	return bad
}

// meets reports whether what another goroutine does at the time decides which way a path takes.
func meets(name string) bool {
	return strings.Contains(name, "Notify")
}

// shortest is the least count of at least so much, 0 without one.
func shortest(c instrcount.Count, least int) int {
	n := 0
	for _, r := range c.Rounds {
		if r >= least && (n == 0 || r < n) {
			n = r
		}
	}
	return n
}

// beyondCopies takes from what one path took what its copy alone did.
func beyondCopies(counts []instrcount.Count) []instrcount.Count {
	at := func(name string) int {
		return slices.IndexFunc(counts, func(c instrcount.Count) bool { return c.Name == name })
	}
	alone, call := at(copying), at(copies)
	if alone < 0 || call < 0 {
		panic("no path is called " + copying + ", or " + copies)
	}
	for i := range counts[call].Rounds {
		counts[call].Rounds[i] -= counts[alone].Median()
	}
	counts[call].Name += " beyond its copy"
	return slices.Delete(counts, alone, alone+1)
}

// limits reads the file, and which Go it was made with.
func limits(t *testing.T) (most map[string]int, compiler string) {
	t.Helper()
	f, err := os.Open(instructionsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	most = map[string]int{}
	for in := bufio.NewScanner(f); in.Scan(); {
		if line, comment := strings.CutPrefix(in.Text(), "# of "); comment {
			compiler = line
		}
		var limit, measured int
		if n, _ := fmt.Sscan(in.Text(), &limit, &measured); n == 2 {
			most[strings.Join(strings.Fields(in.Text())[2:], " ")] = limit
		}
	}
	return most, compiler
}

// write leaves an eighth for what other versions of the compiler and libraries do differently.
func write(t *testing.T, counts []instrcount.Count) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Instructions of user mode on amd64, at most and as measured. TestInstructions asserts\n"+
		"# them; go test -run '^TestInstructions$' . -update writes them anew.\n# of %s\n", version.Lang(runtime.Version()))
	for _, c := range counts {
		n := c.Median()
		if s := shortest(c, n/2); n-s > n/8 {
			t.Fatalf("%s: %d instructions, too different to measure: try again when the machine has less to do", c.Name, c.Rounds)
		}
		fmt.Fprintf(&b, "%6d %6d  %s\n", n+n/8, n, c.Name)
	}
	if err := os.WriteFile(instructionsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log(b.String())
}

// hotPathsRole is the process whose instructions are counted.
func hotPathsRole() int {
	p, err := newHotPair(context.Background())
	if err == nil {
		defer p.close()
		err = instrcount.Run(os.Stdin, os.Stdout, p.hotPaths(context.Background()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
