package unix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"
)

// EraseArgument takes an argument of this process, or the rest of one, off what
// others see of its command line, and returns a copy of it. The string that was
// given has zero bytes from then on, as has each that shares its memory: the
// runtime does not copy what the kernel put there.
func EraseArgument(arg string) (string, error) {
	kept := strings.Clone(arg)
	if arg == "" {
		return kept, nil
	}
	begin, end, err := argumentArea()
	if err != nil {
		return kept, fmt.Errorf("erase an argument: %w", err)
	}
	at := uintptr(unsafe.Pointer(unsafe.StringData(arg)))
	if at < begin || at+uintptr(len(arg)) > end {
		return kept, errors.New("erase an argument: it is not where the kernel put this process's arguments")
	}
	// This memory is the kernel's gift and writable, unlike other strings'.
	clear(unsafe.Slice(unsafe.StringData(arg), len(arg)))
	return kept, nil
}

// argumentArea is the memory that /proc/PID/cmdline shows.
func argumentArea() (begin, end uintptr, err error) {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, err
	}
	// Fields 48 and 49; the second one is a name that may have blanks in it.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 47 {
		return 0, 0, fmt.Errorf("/proc/self/stat has %d fields behind the name, wanted 47 or more", len(f))
	}
	for i, to := range []*uintptr{&begin, &end} {
		n, err := strconv.ParseUint(string(f[45+i]), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/self/stat, where the arguments are: %w", err)
		}
		*to = uintptr(n)
	}
	return begin, end, nil
}
