package wait

import (
	"runtime"
	"runtime/metrics"
)

// SpareProcs reports whether the runtime has a processor (P) left for goroutines other than those
// that run. A system call that sleeps keeps its processor until the runtime's monitor retakes it,
// after 10 to 20 ms if the monitor was idle for long. Meanwhile data from the network would wait if
// all other processors compute.
type SpareProcs struct{ running [1]metrics.Sample }

// Available is called by a goroutine that is about to sleep so. besides is the number of others
// that sleep that way, less the running goroutines that are about to end.
func (s *SpareProcs) Available(besides int) bool {
	s.running[0].Name = "/sched/goroutines/running:goroutines"
	metrics.Read(s.running[:])
	v := s.running[0].Value
	return v.Kind() == metrics.KindUint64 && int(v.Uint64())+besides < runtime.GOMAXPROCS(0)
}
