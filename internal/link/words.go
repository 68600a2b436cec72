package link

import "github.com/vmmc-go/vmmc/internal/shm"

func lastWord(b []byte) uint32       { return shm.LastWord(b) }
func setLastWord(b []byte, v uint32) { shm.SetLastWord(b, v) }

// storeLast makes a message visible: its other words were stored before, and
// the exchange keeps them so for whoever polls this one.
func storeLast(mem []byte, off uint64, v uint32) { shm.Word(mem, int(off)).Swap(v) }

func loadLast(mem []byte, off uint64) uint32 { return shm.Word(mem, int(off)).Load() }
