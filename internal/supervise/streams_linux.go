package supervise

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// A program's output is in one file, as it came. Beside it the supervisor keeps, in the session's
// directory, an index that says of each piece of the file where it is in all that the program has
// printed, to which stream it was printed, and when. It has a header and then records of one size,
// in the order of the file. When the file is replaced, the index begins anew.
const (
	indexPrefix = "streams."
	indexMagic  = 0x31_73_6d_72_74_73_76_01 // and the version
	indexRecord = 32
)

// Pieces to one stream that come one after the other within this time are one.
const pieceTime = 10 * time.Millisecond

// maxUnsaved bounds the records that wait for a disk that does not take them.
const maxUnsaved = 1024

// span is one piece of output in its file.
type span struct {
	pos   int64 // in all output of the program
	at    int64 // in the file
	time  int64 // Unix nanoseconds
	bytes uint32
	err   bool // it was printed to standard error
}

func (s *span) end() int64 { return s.pos + int64(s.bytes) }

func (s *span) put(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(s.pos))
	binary.LittleEndian.PutUint64(b[8:], uint64(s.at))
	binary.LittleEndian.PutUint64(b[16:], uint64(s.time))
	binary.LittleEndian.PutUint32(b[24:], s.bytes)
	binary.LittleEndian.PutUint32(b[28:], 0)
	if s.err {
		b[28] = 1
	}
}

func readSpan(b []byte) span {
	return span{
		pos: int64(binary.LittleEndian.Uint64(b)), at: int64(binary.LittleEndian.Uint64(b[8:])),
		time: int64(binary.LittleEndian.Uint64(b[16:])), bytes: binary.LittleEndian.Uint32(b[24:]), err: b[28] == 1,
	}
}

// index is that of a program whose output is being written. Its output's mu guards it.
type index struct {
	f     *os.File // nil: it could not be made, and all is in memory
	saved int      // records in f that do not change any more
	last  []span   // those behind them; f may have an older state of the first

	header []byte // says which file it is of
}

func indexFile(pid uint32) string { return indexPrefix + uitoa(pid) }

// begin makes the index of a new file.
func (x *index) begin(pid uint32, of *os.File) {
	x.close()
	*x = index{header: indexHeader(of)}
	f, err := os.OpenFile(indexFile(pid), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	if _, err := f.WriteAt(x.header, 0); err != nil {
		_ = f.Close()
		_ = os.Remove(indexFile(pid))
		return
	}
	x.f = f
}

// indexHeader names the file that an index is of.
func indexHeader(of *os.File) []byte {
	b := make([]byte, indexRecord)
	dev, ino := unix.FileID(of)
	binary.LittleEndian.PutUint64(b, indexMagic)
	binary.LittleEndian.PutUint64(b[8:], dev)
	binary.LittleEndian.PutUint64(b[16:], ino)
	return b
}

func (x *index) close() {
	if x.f != nil {
		_ = x.f.Close()
		x.f = nil
	}
}

// add notes a piece that is in the file.
func (x *index) add(s span) {
	if n := len(x.last); n > 0 {
		l := &x.last[n-1]
		same := l.end() == s.pos && l.at+int64(l.bytes) == s.at && int64(l.bytes)+int64(s.bytes) < 1<<31
		if same && (l.err == s.err && s.time-l.time < int64(pieceTime) || n >= maxUnsaved) {
			l.bytes += s.bytes
			x.save()
			return
		}
	}
	x.last = append(x.last, s)
	x.save()
}

// save writes the records that are not on disk, and keeps the last one, which may grow.
func (x *index) save() {
	if x.f == nil {
		return
	}
	b := make([]byte, indexRecord*len(x.last))
	for i := range x.last {
		x.last[i].put(b[indexRecord*i:])
	}
	if _, err := x.f.WriteAt(b, int64(indexRecord*(1+x.saved))); err != nil {
		return // they stay in memory
	}
	x.saved += len(x.last) - 1
	x.last = append(x.last[:0], x.last[len(x.last)-1])
}

// spans are the records of an index, those in a file first.
type spans struct {
	f     *os.File
	saved int
	last  []span
	bad   error
}

// view is what the index has now. It is good until the index changes.
func (x *index) view(pid uint32) *spans {
	v := &spans{last: x.last, saved: x.saved}
	if x.saved > 0 {
		v.f, v.bad = os.Open(indexFile(pid))
	}
	return v
}

// openIndex opens the index of a program that has ended, or that another supervisor has started. It
// is nil if there is none.
func openIndex(pid uint32) (v *spans, header []byte) {
	f, err := os.Open(indexFile(pid))
	if err != nil {
		return nil, nil
	}
	b := make([]byte, indexRecord)
	st, err := f.Stat()
	if err == nil {
		_, err = f.ReadAt(b, 0)
	}
	if err != nil || binary.LittleEndian.Uint64(b) != indexMagic {
		_ = f.Close()
		return nil, nil
	}
	return &spans{f: f, saved: int(st.Size()/indexRecord) - 1}, b
}

func (v *spans) close() {
	if v.f != nil {
		_ = v.f.Close()
	}
}

func (v *spans) len() int { return v.saved + len(v.last) }

func (v *spans) at(i int) span {
	if i >= v.saved {
		return v.last[i-v.saved]
	}
	var b [indexRecord]byte
	if v.bad == nil {
		_, v.bad = v.f.ReadAt(b[:], int64(indexRecord*(1+i)))
	}
	return readSpan(b[:])
}

// from is the first record with output behind a position.
func (v *spans) from(pos int64) int {
	return sort.Search(v.len(), func(i int) bool {
		s := v.at(i)
		return s.end() > pos
	})
}

// end is the position behind all that is in the file.
func (v *spans) end() int64 {
	if n := v.len(); n > 0 {
		s := v.at(n - 1)
		return s.end()
	}
	return 0
}

// answer is what a reader gets, of total that was printed. f may be nil because of bad, or of why.
func (v *spans) answer(
	ctx context.Context, f *os.File, bad error, r ReadRequest, total int64, why string,
) (c Chunk, err error) {
	if bad != nil && !errors.Is(bad, errOtherFile) {
		return Chunk{}, bad
	}
	if r.Tail != nil {
		c.Apart = true
		c.Next, err = v.tail(ctx, f, *r.Tail, total)
		return c, err
	}
	if c, err = v.read(f, r.Offset, total, min(max(r.Max, 1), MaxChunk)); c.Lost > 0 {
		if c.Why = why; why == "" {
			c.Why = errOtherFile.Error()
		}
	}
	return c, err
}

// read gives output from a position on, of total that was printed. What is not in the file is Lost.
func (v *spans) read(f *os.File, pos, total int64, most int) (Chunk, error) {
	c := Chunk{Apart: true, Next: pos}
	var short bool
	for i := v.from(pos); i < v.len() && len(c.Data) < most && len(c.Pieces) < maxPieces; i++ {
		s := v.at(i)
		if v.bad != nil {
			return Chunk{}, v.bad
		}
		if s.pos > c.Next {
			if len(c.Data) > 0 {
				return c, nil // the gap is told of with what is behind it
			}
			c.Lost, c.Next = c.Lost+s.pos-c.Next, s.pos
		}
		skip := c.Next - s.pos
		b := make([]byte, min(int64(s.bytes)-skip, int64(most-len(c.Data))))
		n := 0
		if f != nil {
			n, _ = f.ReadAt(b, s.at+skip)
		}
		if n > 0 {
			c.Data, c.Next = append(c.Data, b[:n]...), c.Next+int64(n)
			c.Pieces = append(c.Pieces, Piece{Error: s.err, Bytes: n, Time: time.Unix(0, s.time)})
		}
		if short = n < len(b); short {
			break
		}
	}
	if v.bad != nil {
		return Chunk{}, v.bad
	}
	if len(c.Data) == 0 && c.Next < total { // the file ends before it
		c.Lost, c.Next = c.Lost+total-c.Next, total
	}
	return c, nil
}

// tail is the position at which the last lines begin.
func (v *spans) tail(ctx context.Context, f *os.File, lines int, total int64) (int64, error) {
	b := make([]byte, 32<<10)
	next := total
	if f == nil {
		return 0, nil // all that is lost is to be told
	}
	for i := v.len() - 1; i >= 0 && lines > 0; i-- {
		s := v.at(i)
		for left := int64(s.bytes); left > 0; {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			n := min(left, int64(len(b)))
			left -= n
			if _, err := f.ReadAt(b[:n], s.at+left); err != nil {
				return next, nil // what is there begins here
			}
			for j := n - 1; j >= 0; j-- {
				if at := s.pos + left + j; b[j] == '\n' && at+1 < total {
					if lines--; lines == 0 {
						return at + 1, nil
					}
				}
			}
			next = s.pos + left
		}
	}
	return next, v.bad
}

// dropIndexes removes the indexes of all programs but those that are known.
func dropIndexes(known func(pid string) bool) {
	d, err := os.Open(".")
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if pid, is := strings.CutPrefix(name, indexPrefix); is && !known(pid) {
				_ = os.Remove(name)
			}
		}
		if err != nil {
			return
		}
	}
}

// errOtherFile says that a program's file is another one than it was.
var errOtherFile = errors.New("the file was removed, renamed or replaced by another program")

// openIndexed opens the file of an index that is no longer written.
func (d *drive) openIndexed(name string, header []byte) (*os.File, error) {
	f, err := d.openOwn(within(d.spec.Output)+"/"+name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errOtherFile
	}
	if err == nil && string(indexHeader(f)) != string(header) {
		_ = f.Close()
		return nil, errOtherFile
	}
	return f, err
}
