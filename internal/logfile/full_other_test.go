//go:build !linux

package logfile

func roleFullDisk() int { return 1 }
