package link

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// running counts the notification handlers that run in this program; who is not
// zero is asked for its goroutine. ids are those that run them.
var (
	running atomic.Int32
	ids     sync.Map
)

// InHandler says whether the caller is a notification handler, of any process
// that this program has open. It costs one load while none runs.
func InHandler() bool {
	if running.Load() == 0 {
		return false
	}
	_, ok := ids.Load(goroutine())
	return ok
}

// goroutine is the number of the calling one. The runtime tells it only in the
// first line of a trace, "goroutine 7 [running]:", whose form has not changed
// since Go 1.0; golang.org/x/net/http2 reads it there too.
func goroutine() uint64 {
	var b [64]byte
	s := bytes.TrimPrefix(b[:runtime.Stack(b[:], false)], []byte("goroutine "))
	n, _ := strconv.ParseUint(string(s[:max(0, bytes.IndexByte(s, ' '))]), 10, 64)
	return n
}
