//go:build !linux

package unix

import "syscall"

// ArrivalLen is of Linux.
const ArrivalLen = 0

func Arrivals(syscall.RawConn, bool) error { return ErrUnsupported }
func AnswerFrom([]byte) []byte             { return nil }
