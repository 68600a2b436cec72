//go:build linux && cgo

package main

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// What a path pins stays until the thread that was in a call has left it, and not longer.
func TestGrace(t *testing.T) {
	for _, barriers := range []bool{false, true} {
		used := uint32(2)
		g := grace{epochs: make([]epoch, 3), used: &used, fences: barriers}
		if !barriers {
			if err := unix.RegisterBarrier(); err != nil {
				t.Skip(err)
			}
		}
		enter := func(thread int) (leave func()) {
			now := g.epochs[thread].word()
			odd := atomic.AddUint64(now, 1)
			return func() { atomic.StoreUint64(now, odd+1) }
		}
		var freed atomic.Int32
		retire := func() {
			p, word := new(path), new([4]uint64)
			runtime.AddCleanup(word, func(int) { freed.Add(1) }, 0)
			p.pin.Pin(word)
			g.retire(p.pin.Unpin)
		}
		collected := func(n int32) bool {
			for range 100 {
				runtime.GC()
				if freed.Load() >= n {
					return true
				}
				time.Sleep(time.Millisecond)
			}
			return false
		}
		leave := enter(0)
		retire()
		if collected(1) {
			t.Error("a word was let go of while a thread may load it")
		}
		again := enter(1) // a thread that enters later has not seen the path
		leave()
		if !collected(1) {
			t.Error("the thread has left, and the word was not let go of")
		}
		retire()
		if collected(2) {
			t.Error("a word was let go of while another thread may load it")
		}
		again()
		if !collected(2) {
			t.Error("the other thread has left, and the word was not let go of")
		}
	}
}
