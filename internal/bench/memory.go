package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// ownMemory is this process's share of the memory that it has mapped (PSS), after
// what can be given back was.
func ownMemory() (float64, error) {
	debug.FreeOSMemory()
	const file = "/proc/self/smaps_rollup"
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) >= 2 && f[0] == "Pss:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no Pss", file)
}

// socketMemory is what the buffers of all TCP sockets of the machine hold.
func socketMemory() (float64, error) {
	const file = "/proc/net/sockstat"
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.Fields(s.Text())
		for i := 0; i+1 < len(f); i++ {
			if f[0] == "TCP:" && f[i] == "mem" {
				pages, err := strconv.ParseFloat(f[i+1], 64)
				return pages * float64(os.Getpagesize()), err
			}
		}
	}
	return 0, fmt.Errorf("%s does not say what TCP's buffers hold", file)
}
