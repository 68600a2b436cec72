// Package sample holds what was measured, and keeps it in a file of a run.
package sample

// What is measured. A latency is of one way, unless it says otherwise.
const (
	Latency   = "latency"
	Bandwidth = "bandwidth"
	Bidir     = "bidir"
	Fetch     = "fetch" // the round trip of a get
	Rate      = "rate"
	Import    = "import"
	RPC       = "rpc" // remote procedure calls of ours, there and back
)

// Where it is measured: in shared memory, over TCP on loopback, over TCP between two namespaces.
const (
	Local    = "local"
	Loopback = "loopback"
	Veth     = "veth"
)

// Names of contenders that others are compared with.
const (
	Ours  = "vmmc"
	Limit = "vmmc's limit" // what our tool measures of the machine beside each figure
	C     = "C"            // the same in C, without a library
)

// Units.
const (
	Nanoseconds = "ns"
	Megabytes   = "MB/s" // of 1,000,000 bytes
	PerSecond   = "1/s"
)

// Key says what a sample is of.
type Key struct {
	Contender string `json:"contender"`
	How       string `json:"how,omitempty"` // which of the contender's ways: put, send, spin
	What      string `json:"what"`
	Place     string `json:"place"`
	Size      int    `json:"size"`
}

// Sample is one measurement of one round.
type Sample struct {
	Round int `json:"round"`
	Key
	Value float64 `json:"value"` // of a latency the median, or the mean where Mean says so
	Unit  string  `json:"unit"`
	Mean  bool    `json:"mean,omitempty"`
	Min   float64 `json:"min,omitempty"`
	P99   float64 `json:"p99,omitempty"`
	P999  float64 `json:"p999,omitempty"`
	Batch float64 `json:"batch,omitempty"` // without the clock's own cost
	// Of ours to the limit beside it; of C, of ours to it, by turns.
	Ratio float64 `json:"ratio,omitempty"`
}

// Failure is a contender that did not run to its end in a round.
type Failure struct {
	Round int    `json:"round"`
	Name  string `json:"name"`
	Why   string `json:"why"`
}
