//go:build !linux || !amd64

package unix

// Thread does nothing on this system.
type Thread struct{}

func OwnThread() Thread { return Thread{} }
func (Thread) ID() int  { return 0 }
func (Thread) Mark()    {}

// Tracee does nothing on this system: stepping through the load and the store
// of an exclusive pair never gets past them on some processors.
type Tracee struct{}

// Step is where a traced thread stands.
type Step struct {
	PC   uint64
	Call uint64
	Args [2]uint64
}

func Seize(int, int) (*Tracee, error)           { return nil, ErrUnsupported }
func (*Tracee) ToMark() error                   { return ErrUnsupported }
func (*Tracee) StepToMark() (int, error)        { return 0, ErrUnsupported }
func (*Tracee) EachStep(func(Step) error) error { return ErrUnsupported }
func (*Tracee) Release() error                  { return ErrUnsupported }
func (*Tracee) Bury()                           {}
