package vmmc

import "github.com/vmmc-go/vmmc/internal/shm"

// Release is the version of this library.
const Release = "0.1.0-dev"

// Version is the level of the VMMC programming interface that this package
// follows (the manual's vmmc_Version).
func Version() (major, minor uint32) { return 2, 0 }

// WordSize is the size in bytes of a VMMC word (vmmc_WordSize).
func WordSize() int { return shm.WordSize }

// PageSize is the size in bytes of a VMMC page, the larger of 4096 and the
// system's (vmmc_PageSize).
func PageSize() int { return shm.PageSize }
