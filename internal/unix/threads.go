package unix

import (
	"runtime"
	"sync"
)

// Threads sees to it that the process has n threads that are idle, which Go keeps for as long
// as it runs. Go ends a program that needs one more thread than the system lets it have, as
// goroutines do that wait in system calls; those find one of these then. Each costs some tens of
// KiB, and counts as one of the processes that the system bounds.
func Threads(n int) {
	var there, all sync.WaitGroup
	there.Add(n)
	for range n {
		all.Go(func() {
			runtime.LockOSThread() // or they would share a few
			defer runtime.UnlockOSThread()
			there.Done()
			there.Wait()
		})
	}
	all.Wait()
}
