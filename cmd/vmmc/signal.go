package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/serve"
)

// signals are the names of signals. The numbers are Linux's, where the nodes are,
// whatever this machine is, on x86 and ARM.
var signals = []string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
	9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT",
	17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU",
	25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

// maxSignal is the greatest signal there is; those behind the names are the
// real-time ones.
const maxSignal = 64

func parseSignal(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= maxSignal {
		return n, nil
	}
	if n := slices.Index(signals, strings.TrimPrefix(strings.ToUpper(s), "SIG")); n > 0 {
		return n, nil
	}
	return 0, serve.Usage("--signal %q: give a number from 1 to %d, or a name as TERM, KILL, INT or HUP", s, maxSignal)
}

// signalName is a signal for people to read.
func signalName(n int) string {
	if n > 0 && n < len(signals) {
		return "SIG" + signals[n]
	}
	return "signal " + strconv.Itoa(n)
}
