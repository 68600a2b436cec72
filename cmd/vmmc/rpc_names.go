package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// rpcLines are the lines of /etc/rpc: a name, a number, other names. A machine need not have it.
func rpcLines() (lines [][]string) {
	b, err := os.ReadFile("/etc/rpc")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 1 {
			lines = append(lines, f)
		}
	}
	return lines
}

// rpcNames are the names of programs.
func rpcNames() map[uint32]string {
	names := map[uint32]string{}
	for _, f := range rpcLines() {
		if n, err := strconv.ParseUint(f[1], 10, 32); err == nil {
			names[uint32(n)] = f[0]
		}
	}
	return names
}

// rpcProgram finds a program's number.
func rpcProgram(s string) (uint32, error) {
	if n, err := strconv.ParseUint(s, 0, 32); err == nil {
		return uint32(n), nil
	}
	for _, f := range rpcLines() {
		if n, err := strconv.ParseUint(f[1], 10, 32); err == nil && slices.Contains(f, s) {
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("%q is neither a number nor a name of /etc/rpc", s)
}
