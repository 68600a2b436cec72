package chaos

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// A ledger is a file that its writer maps, so what was stored outlives a kill. The test maps it
// too, and reads it. Each word has one writer at a time.
type ledger struct {
	b    []byte
	once sync.Once
}

const (
	ledgerSize = 4096
	textAt     = 1024
)

func openLedger(dir, name string) (*ledger, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(ledgerSize); err != nil {
		return nil, err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, ledgerSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return &ledger{b: b}, nil
}

func (l *ledger) close() { l.once.Do(func() { _ = syscall.Munmap(l.b) }) }

func (l *ledger) get(word int) uint64    { return binary.LittleEndian.Uint64(l.b[8*word:]) }
func (l *ledger) set(word int, v uint64) { binary.LittleEndian.PutUint64(l.b[8*word:], v) }

// say keeps the first text, which is why the process thinks that a promise was broken, or the
// error that has ended a conversation.
func (l *ledger) say(format string, args ...any) {
	if l.text() == "" {
		copy(l.b[textAt:ledgerSize-1], fmt.Sprintf(format, args...))
	}
}

func (l *ledger) text() string {
	b := l.b[textAt:]
	n := 0
	for n < len(b) && b[n] != 0 {
		n++
	}
	return string(b[:n])
}

// What the sender of a conversation writes down.
const (
	txBegun     = iota // the last message that a call was made for
	txAccepted         // the last one whose call returned nil
	txArrived          // the last one that has arrived, as the library says
	txAdds             // atomic additions that were begun
	txAdded            // and answered
	txShared           // the same of the counter that all add to
	txSharedAdd        //
	txGets             // and echoes
	txConnected        // its import was made, at this time
	txMapped           //
	txEnd              // how it has ended
	txEndedAt          // and when
	txUnknown          // its end left open whether the last operations were done
	txNever            // the message that was surely not sent, if not 0
)

// How conversations end.
const (
	going = iota
	finished
	failed
	violated // the text says what was not as promised
)

// What its receiver writes down.
const (
	rxReady    = iota
	rxReceived // messages that were whole, each after the one before
	rxNotified // handlers that were run, each for the message after the one before
	rxCounter  // the sender's counter, at the end
	rxAddress  // of the buffer
	rxEnd
	rxArrived // by the test: the last message in the memory of a dead receiver
	rxSeen    // by the test: that memory was looked at
)

// What each life of a process writes down.
const (
	lifePID    = iota // its logical pid
	lifeEnd           // finished, or violated
	lifeShared        // the counter that all add to, at the end
)

// The board is one ledger of all: the phase, and the processes that live.
const (
	boardPhase = 0
	boardLife  = 16 // of each process: its life, by the test
	boardReady = 48 // the life that has joined its node
	boardPID   = 80 // its logical pid
)

// The phases.
const (
	running = iota
	draining
	ending
)

func (c pair) tx() string {
	return fmt.Sprintf("tx.%d.%d.%d.%d", c.from, c.fromLife, c.to, c.toLife)
}

func (c pair) rx() string {
	return fmt.Sprintf("rx.%d.%d.%d.%d", c.to, c.toLife, c.from, c.fromLife)
}

func lifeName(process, life int) string { return fmt.Sprintf("life.%d.%d", process, life) }
