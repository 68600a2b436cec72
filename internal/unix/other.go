//go:build !linux

package unix

import (
	"context"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// IO does nothing on this system.
type IO struct{}

// Passed does nothing on this system.
type Passed struct{ Came func(fds []int) }

// See the file of Linux.
const (
	MaxRights  = 253
	RightsLost = 0
)

// Epoll does nothing on this system.
type Epoll struct{}

// Timer does nothing on this system.
type Timer struct{}

// Bell does nothing on this system.
type Bell struct{}

// PageWatch does nothing on this system.
type PageWatch struct{}

func Memfd(string, int64) (int, error)                  { return -1, ErrUnsupported }
func Seal(int, bool) error                              { return ErrUnsupported }
func Inspect(int) (MemoryInfo, error)                   { return MemoryInfo{}, ErrUnsupported }
func Map(int, int, bool, bool) (unsafe.Pointer, error)  { return nil, ErrUnsupported }
func MapOver(unsafe.Pointer, int, int) error            { return ErrUnsupported }
func MapNothing(unsafe.Pointer, int, bool) error        { return ErrUnsupported }
func MapOwn(unsafe.Pointer, int, int, int) error        { return ErrUnsupported }
func OwnPages(unsafe.Pointer, int) error                { return ErrUnsupported }
func Punch(int, int, int) error                         { return ErrUnsupported }
func MapForbidden(unsafe.Pointer, int) error            { return ErrUnsupported }
func Alias(unsafe.Pointer, int) (unsafe.Pointer, error) { return nil, ErrUnsupported }
func Unmap(unsafe.Pointer, int) error                   { return ErrUnsupported }
func Present([]byte, bool) error                        { return ErrUnsupported }
func DontDump(unsafe.Pointer, int) error                { return ErrUnsupported }
func Faulted(error) bool                                { return false }
func Absent([]byte) (int, error)                        { return 0, ErrUnsupported }
func WithRoom(f func())                                 { f() }
func Lock([]byte) error                                 { return ErrUnsupported }
func Close(int) error                                   { return ErrUnsupported }
func Dup(int) (int, error)                              { return -1, ErrUnsupported }
func (*IO) Send(int, []byte, []byte) (int, error)       { return 0, ErrUnsupported }
func (*IO) SendPieces(int, [][]byte) (int, error)       { return 0, ErrUnsupported }
func (*IO) Recv(int, []byte, []byte) (int, error)       { return 0, ErrUnsupported }
func StreamPair() (a, b int, err error)                 { return -1, -1, ErrUnsupported }
func PacketPair() (a, b int, err error)                 { return -1, -1, ErrUnsupported }
func (*IO) Peek(int, []byte) (int, error)               { return 0, ErrUnsupported }
func (*IO) Discard(int, int) (int, error)               { return 0, ErrUnsupported }
func Piecewise(int) bool                                { return false }
func GiveUpAfter(int, time.Duration)                    {}
func Unacknowledged(int) time.Duration                  { return 0 }
func Unsent(int) int                                    { return 0 }
func RoundTrip(int) time.Duration                       { return 0 }
func BoundSend(int, int)                                {}
func Unpace(int)                                        {}
func Pace(int)                                          {}
func BeginUnpaced(_, _ string, _ syscall.RawConn) error { return nil }
func Congestion(int) string                             { return "" }
func LongestSegment(int) (int, error)                   { return 0, ErrUnsupported }
func IsStream(int) error                                { return ErrUnsupported }
func HungUp(syscall.RawConn) bool                       { return true }
func TakeOver(syscall.Conn) (int, error)                { return -1, ErrUnsupported }
func Adopt(int) (*net.TCPConn, error)                   { return nil, ErrUnsupported }
func Borrow(syscall.Conn) (int, error)                  { return -1, ErrUnsupported }
func PeerCred(*net.UnixConn) (Cred, error)              { return Cred{}, ErrUnsupported }
func Rights([]int) []byte                               { return nil }
func RightsSpace(int) int                               { return 0 }
func ParseRights([]byte, int) ([]int, error)            { return nil, ErrUnsupported }
func Received([]byte, int) ([]int, error)               { return nil, ErrUnsupported }
func NewEpoll() (*Epoll, error)                         { return nil, ErrUnsupported }
func (*Epoll) Add(int, uint64, bool) error              { return ErrUnsupported }
func (*Epoll) Arm(int, uint64, bool) error              { return ErrUnsupported }
func (*Epoll) Disarm(int, uint64)                       {}
func (*Epoll) Remove(int)                               {}
func (*Epoll) Look([]Event) int                         { return 0 }
func (*Epoll) Wait([]Event) (int, error)                { return 0, ErrUnsupported }
func (*Epoll) Close() error                             { return nil }
func NewTimer() (*Timer, error)                         { return nil, ErrUnsupported }
func (*Timer) Descriptor() int                          { return -1 }
func (*Timer) Set(time.Duration)                        {}
func (*Timer) Close()                                   {}
func BorrowSocket(int) (net.Conn, error)                { return nil, ErrUnsupported }
func Yield()                                            {}
func YieldOpenly()                                      {}
func LockFile(string) (*os.File, error)                 { return nil, ErrUnsupported }
func SetUmask(fs.FileMode)                              {}
func ChmodSocket(string, fs.FileMode) error             { return ErrUnsupported }
func SecureExec() bool                                  { return false }

func OpenOwn(path string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, mode)
}

func RingBell(string, fs.FileMode) error        { return ErrUnsupported }
func HearBell(string, ...uint32) (*Bell, error) { return nil, ErrUnsupported }
func (*Bell) Wait(time.Duration) (bool, error)  { return false, ErrUnsupported }
func (*Bell) Close()                            {}
func MaySwitchUsers() bool                      { return false }
func Alive(int) bool                            { return false }
func LookAt(int, time.Duration, func()) error   { return ErrUnsupported }
func Born(int) (uint64, error)                  { return 0, ErrUnsupported }

func NewPageWatch(unsafe.Pointer, int) (*PageWatch, error) { return nil, ErrUnsupported }

func (*PageWatch) Protect(int, int) error { return ErrUnsupported }

func (*PageWatch) Written(int, int, bool, []PageRun) (n, end int, err error) {
	return 0, 0, ErrUnsupported
}
func (*PageWatch) Close()                         {}
func Nap(time.Duration)                           {}
func CPUTime() time.Duration                      { return 0 }
func MapPrivate(int) (unsafe.Pointer, error)      { return nil, ErrUnsupported }
func MapAlias(_, _ unsafe.Pointer, _ int) error   { return ErrUnsupported }
func MapBack(unsafe.Pointer, int, int, int) error { return ErrUnsupported }

func MapAt(_, _, _ int, _, _ bool) (unsafe.Pointer, error) { return nil, ErrUnsupported }

func BecomeSubreaper() error                        { return ErrUnsupported }
func ReapAny() (int, Ending, bool)                  { return 0, Ending{}, false }
func Childless() bool                               { return false }
func AwaitEnd(int)                                  {}
func InForeground() bool                            { return false }
func Wake(int) error                                { return ErrUnsupported }
func Kill(int, int) error                           { return ErrUnsupported }
func KillGroup(int, int) error                      { return ErrUnsupported }
func OutputPipe() (r, w *os.File, err error)        { return nil, nil, ErrUnsupported }
func InputPipe() (r, w *os.File, err error)         { return nil, nil, ErrUnsupported }
func ReadSome(uintptr, []byte) (n int, again bool)  { return 0, false }
func Readable(*os.File) bool                        { return false }
func OwnerOf(*os.File) (uint32, uint64, error)      { return 0, 0, ErrUnsupported }
func FileID(*os.File) (dev, ino uint64)             { return 0, 0 }
func OpenPath(string) (*os.File, error)             { return nil, ErrUnsupported }
func RemoveTree(context.Context, string) error      { return ErrUnsupported }
func OpenDirectory(dir string) (*os.File, error)    { return os.Open(dir) }
func OpenTerminal(Size) (*os.File, *os.File, error) { return nil, nil, ErrUnsupported }
func Resize(*os.File, Size) error                   { return ErrUnsupported }
func EraseArgument(arg string) (string, error)      { return arg, ErrUnsupported }

func (*IO) SendPassed(int, []byte, int) (int, bool, error) { return 0, false, ErrUnsupported }

func (*IO) RecvPassed(int, []byte, []byte, *Passed) (int, error) { return 0, ErrUnsupported }
func (*Passed) Len() int                                         { return 0 }
func (*Passed) Take() int                                        { return -1 }
func (*Passed) Rest() []int                                      { return nil }

func RefuseRights(int) bool                              { return false }
func AwaitRights(int)                                    {}
func TakesNoRights(_, _ string, _ syscall.RawConn) error { return nil }
func ClosesAtOnce(int) bool                              { return false }
func HugeMemfd(string, int64) (int, error)               { return -1, ErrUnsupported }
func SendRights(int, []byte, []int) error                { return ErrUnsupported }
func IsMemory(int) bool                                  { return false }
func IsLocalStream(int) error                            { return ErrUnsupported }
func NoRightsQueued(int) bool                            { return false }
func Shutdown(int)                                       {}
func Unclear(int) bool                                   { return false }

func ReceivePacket(int, []byte, []byte) (n, on, flags int, ok bool, err error) {
	return 0, 0, 0, true, ErrUnsupported
}

func RecvPacket(syscall.RawConn, func() (b, oob []byte), func()) (n, on, flags int, err error) {
	return 0, 0, 0, ErrUnsupported
}

func LookForPacket(syscall.RawConn, []byte, []byte) (n, on, flags int, ok bool, err error) {
	return 0, 0, 0, true, ErrUnsupported
}

func OwnLimits() (Limits, error)       { return Limits{}, ErrUnsupported }
func LimitFiles(uint64) error          { return ErrUnsupported }
func LimitLocked(uint64) error         { return ErrUnsupported }
func Owner(os.FileInfo) (uint32, bool) { return 0, false }
func Group(os.FileInfo) (uint32, bool) { return 0, false }
