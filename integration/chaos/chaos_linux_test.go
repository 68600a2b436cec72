package chaos

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// Twelve processes on three nodes send, get, notify and add, while they are killed and stopped and
// their network is cut. What was sent on links that lived has arrived, once and in order; of what
// was sent to the dead, nothing is said to have arrived that has not; and nothing is left of it
// all.
func TestChaos(t *testing.T) {
	total := 5 * time.Second
	if s := os.Getenv("VMMC_CHAOS"); s != "" {
		var err error
		total, err = time.ParseDuration(s)
		check(t, err)
	} else {
		testutil.Require(t, !testing.Short(), "takes some seconds")
	}
	seed := uint64(rand.Uint32())
	if s := os.Getenv("VMMC_CHAOS_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		check(t, err)
	}
	t.Logf("VMMC_CHAOS=%v VMMC_CHAOS_SEED=%d", total, seed)
	w := newWorld(t)
	for p := range processes {
		w.begin(t, p)
	}
	w.await(t, hang, w.connected)
	c := &chaos{world: w, cut: map[int]bool{}, frozen: map[int]bool{}, stall: map[int]bool{}}
	c.play(t, schedule(seed, total))
	t.Log(c.summary(), "and then: ")
	// All that live talk to each other again.
	w.await(t, hang, w.connected)
	w.calm(t)
	w.board.set(boardPhase, draining)
	w.await(t, hang, func() string { return w.settled(t) })
	w.board.set(boardPhase, ending)
	for p, cmd := range w.procs {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", p, err)
		}
	}
	sums := w.judge(t)
	w.events(t, sums)
	w.stop(t)
	t.Logf("%v", sums)
	cuts := c.counts[cut] + c.counts[drop]
	t.Logf("seed %d: %d cuts, %d resets, %d connections lost, %d links resumed, %.0f messages and %.0f bytes sent again, %.0f duplicates suppressed",
		seed, cuts, c.counts[reset], sums["connections lost"], sums["links resumed"],
		w.sums["vmmc_link_resent_total"], w.sums["vmmc_link_resent_bytes_total"], w.sums["vmmc_link_duplicates_total"])
	if sums["messages"] == 0 || cuts == 0 || sums["links resumed"] == 0 {
		t.Error("nothing was tried")
	}
}
