package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/childproc"
)

// sender is the tool's own process.
type sender struct {
	p      *vmmc.Process
	answer *vmmc.Export
}

func newSender(p *vmmc.Process) (*sender, error) {
	e, err := exportPage(p, bufAnswer, pageSize)
	return &sender{p: p, answer: e}, err
}

// target is a receiver as the sender reaches it.
type target struct {
	data, control, ping *vmmc.Import
}

func (s *sender) reach(ctx context.Context, node string, pid vmmc.PID) (t target, err error) {
	n, err := s.p.NameToNode(node)
	if err != nil {
		return t, err
	}
	for id, im := range map[uint32]**vmmc.Import{bufData: &t.data, bufControl: &t.control, bufPing: &t.ping} {
		if *im, err = s.p.Import(ctx, n, pid, id); err != nil {
			return t, err
		}
	}
	return t, nil
}

// measure does all that is done on one path.
func (s *sender) measure(
	ctx context.Context, f *childproc.Group, c Config, name, node, socket string,
) (Path, error) {
	size := 4
	if name == "remote" {
		size = 64
	}
	path := Path{Path: name, LatencyMessageBytes: size}
	clear(s.answer.Bytes())
	rx, pid, err := startPeer(f, "receive", socket, s.p.Node().String(), strconv.FormatUint(uint64(s.p.PID()), 10), strconv.Itoa(size))
	if err != nil {
		return path, err
	}
	t, err := s.reach(ctx, node, pid)
	if err != nil {
		return path, err
	}
	if err := s.moveFile(ctx, t, c, &path); err != nil {
		return path, err
	}
	if err := s.rounds(ctx, f, t, &path); err != nil {
		return path, err
	}
	stop := make([]byte, size)
	copy(stop[size-4:], words(stopPing))
	if err := t.ping.Send(ctx, stop, 0); err != nil {
		return path, err
	}
	return path, rx.Finish()
}

// moveFile sends the file through the receiver's two windows.
func (s *sender) moveFile(ctx context.Context, t target, c Config, path *Path) error {
	in, err := c.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	buf := make([]byte, windowSize)
	var busy time.Duration // without the time for reading and hashing here
	for seq := uint32(1); ; seq++ {
		n, err := io.ReadFull(in, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		sum.Write(buf[:n])
		start := time.Now()
		if err := s.window(ctx, t, seq, buf[:n]); err != nil {
			return err
		}
		busy += time.Since(start)
		if n == 0 {
			break
		}
		path.Bytes += int64(n)
		if c.Progress != nil {
			c.Progress(path.Path, path.Bytes)
		}
	}
	w, err := s.answer.Word(sumAt + sha256.Size)
	if err != nil {
		return err
	}
	if err := waitFor(ctx, w, 1); err != nil {
		return err
	}
	path.SHA256OK = bytes.Equal(s.answer.Bytes()[sumAt:sumAt+sha256.Size], sum.Sum(nil))
	if busy > 0 {
		path.TransferMBps = float64(path.Bytes) / busy.Seconds() / 1e6
	}
	return nil
}

// window waits until the window is free, fills it, and says so.
func (s *sender) window(ctx context.Context, t target, seq uint32, b []byte) error {
	w := int(seq % windows)
	if seq > windows {
		free, err := s.answer.Word(w * stride)
		if err != nil {
			return err
		}
		if err := waitFor(ctx, free, seq-windows); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		whole := b[:(len(b)+3)&^3] // whole words; the receiver knows the length
		if err := t.data.Send(ctx, whole, w*windowSize); err != nil {
			return err
		}
	}
	return t.control.Send(ctx, words(uint32(len(b)), seq), w*stride)
}
