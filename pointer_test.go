package vmmc_test

import "unsafe"

// pointer is for plain stores, which are what bound memory is for.
func pointer(b []byte, off int) unsafe.Pointer { return unsafe.Pointer(&b[off]) }
