package wire

// Granted is an import as the exporter numbered it, in answer to an Import. Memory and Offset tell
// where the buffer lies in what the descriptor gives.
type Granted struct {
	Handle uint32
	Size   uint64
	// As bits. 0: not granted here, and the nodes may know why.
	Rights uint8
	Mapped bool   // a descriptor of the memory goes with it
	Memory uint64 // bytes of that memory
	Offset uint64 // of the buffer in it
	Slot   uint16 // of the export's state word in the exporter's page
	State  uint32 // what that word holds while the export lives
	// Of the buffer, as the exporter publishes it when it sleeps. 0: it does not.
	Addr uint64
}

// SetGranted makes h the answer to Import number n. It uses fields that other frames use otherwise.
func (h *Header) SetGranted(n uint32, g *Granted) {
	about := uint32(g.Slot) | uint32(g.Rights)<<16
	if g.Mapped {
		about |= 1 << 24
	}
	*h = Header{
		Type: Grant, Serial: n, Handle: g.Handle, Size: g.Size, Off: g.Offset, Ack: g.Memory,
		Seq: g.Addr, Word: g.State, Credits: about,
	}
}

// Granted returns what SetGranted has stored.
func (h *Header) Granted() Granted {
	return Granted{
		Handle: h.Handle, Size: h.Size, Offset: h.Off, Memory: h.Ack, Addr: h.Seq, State: h.Word,
		Slot: uint16(h.Credits), Rights: uint8(h.Credits >> 16), Mapped: h.Credits>>24&1 != 0,
	}
}
