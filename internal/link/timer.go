package link

import "github.com/vmmc-go/vmmc/internal/unix"

// newTimer is one of the set, whose events have the id: who takes events off the set hears it, and setting it wakes nobody.
// There is none where descriptors have run out.
func newTimer(ep *unix.Epoll, id uint64) (*unix.Timer, error) {
	t, err := unix.NewTimer()
	if err != nil {
		return nil, err
	}
	if err := ep.Add(t.Descriptor(), id, false); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}
