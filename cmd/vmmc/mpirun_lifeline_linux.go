package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// lifeline is the tool's part of what package mpi has in its file of that name.
type lifeline struct {
	own    [2]*os.File // what this tool has
	theirs [2]*os.File // what the ranks get
	cut    sync.Once
}

func newLifeline() (*lifeline, error) {
	l := &lifeline{}
	var err error
	if l.theirs[0], l.own[0], err = os.Pipe(); err != nil {
		return nil, err
	}
	if l.own[1], l.theirs[1], err = os.Pipe(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// variable is what a rank finds. It has the pipes as its descriptors 3 and 4.
func (l *lifeline) variable() (string, error) {
	var inodes [2]uint64
	for i, f := range l.theirs {
		fi, err := f.Stat()
		if err != nil {
			return "", err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			inodes[i] = st.Ino
		}
	}
	return fmt.Sprintf("%s=3:%d,4:%d", nodeproto.LifelineEnv, inodes[0], inodes[1]), nil
}

// given closes what the ranks have got.
func (l *lifeline) given() {
	for i, f := range l.theirs {
		if f != nil {
			_ = f.Close()
		}
		l.theirs[i] = nil
	}
}

// wait waits for the programs that ranks have spawned, if they have any.
func (l *lifeline) wait() {
	l.given()
	if !unix.Readable(l.own[1]) {
		return // no rank has spawned, and a program that is none runs on
	}
	if n, _ := l.own[1].Read(make([]byte, 1)); n == 0 {
		return // all have ended, and none has spawned
	}
	_, _ = io.Copy(io.Discard, l.own[1])
}

// end ends these programs.
func (l *lifeline) end() { l.cut.Do(func() { _ = l.own[0].Close() }) }

func (l *lifeline) close() {
	l.end()
	l.given()
	if l.own[1] != nil {
		_ = l.own[1].Close()
	}
}
