//go:build vmmcdebug

package invariant

import "fmt"

// Enabled reports whether this program checks itself.
const Enabled = true

// Check panics unless cond holds; format and args say what was found.
func Check(cond bool, format string, args ...any) {
	if !cond {
		panic("vmmc: a fault in the library, please report it: " + fmt.Sprintf(format, args...))
	}
}
