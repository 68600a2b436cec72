package report

import (
	"time"

	"github.com/vmmc-go/vmmc"
)

// Speed is how fast messages of one size went.
type Speed struct {
	Words    int     `json:"words"` // of a message
	Bytes    int     `json:"bytes"` // of a message
	Messages uint64  `json:"messages"`
	Seconds  float64 `json:"seconds"`
	MBps     float64 `json:"mb_per_s"` // a MB is 1 000 000 bytes
	Micros   float64 `json:"us_per_message"`
}

// NewSpeed is that of a number of messages, which took some time together.
func NewSpeed(words int, messages uint64, took time.Duration) Speed {
	s := Speed{Words: words, Bytes: words * vmmc.WordSize(), Messages: messages, Seconds: took.Seconds()}
	s.Micros = s.Seconds * 1e6 / float64(messages)
	if s.Seconds > 0 { // no clock that we know stands still so long, but a division by 0 is no JSON
		s.MBps = float64(s.Bytes) * float64(messages) / 1e6 / s.Seconds
	}
	return s
}
