package unix

import (
	"os"
	"sync"

	sys "golang.org/x/sys/unix"
)

// atSecure is AT_SECURE of getauxval(3).
const atSecure = 23

// SecureExec reports whether the kernel started this program with other rights than
// its caller has: by a setuid or setgid bit, file capabilities, or a security
// module's transition.
var SecureExec = sync.OnceValue(func() bool {
	auxv, err := sys.Auxv()
	if err == nil {
		for _, a := range auxv {
			if a[0] == atSecure {
				return a[1] != 0
			}
		}
	}
	return os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid()
})
