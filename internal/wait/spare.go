package wait

import (
	"runtime"
	"runtime/metrics"
)

// SpareProcs says whether the runtime has a processor left for other goroutines than those
// that run. A system call that sleeps keeps its processor until the runtime's monitor
// takes it away, after 10 to 20 ms where the monitor has found nothing to do for long:
// meanwhile what the network has brought would wait, if all other processors compute.
type SpareProcs struct{ running [1]metrics.Sample }

// Available is for the goroutine that is about to sleep so. besides are others who sleep
// that way, less those goroutines that run but are about to end.
func (s *SpareProcs) Available(besides int) bool {
	s.running[0].Name = "/sched/goroutines/running:goroutines"
	metrics.Read(s.running[:])
	v := s.running[0].Value
	return v.Kind() == metrics.KindUint64 && int(v.Uint64())+besides < runtime.GOMAXPROCS(0)
}
