package shmlayout

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// The two pages of a redirectable export that an importer has mapped (docs/models: redir). The
// exporter makes both. Only the exporter writes Post, and only the importer writes Claim.

// Post is the exporter's page.
type Post struct{ *shm.Region }

// Claim is the importer's page.
type Claim struct{ *shm.Region }

// NewPost makes one.
func NewPost() (Post, error) {
	r, err := create("vmmc-post", kindPost, 2*cacheLine, true)
	return Post{r}, err
}

// OpenPost maps an exporter's.
func OpenPost(fd int) (Post, error) {
	r, err := open(fd, kindPost, 2*cacheLine, false)
	return Post{r}, err
}

// NewClaim makes one that an importer can write.
func NewClaim() (Claim, error) {
	r, err := create("vmmc-claim", kindClaim, 3*cacheLine, false)
	return Claim{r}, err
}

// OpenClaim maps an exporter's for writing.
func OpenClaim(fd int) (Claim, error) {
	r, err := open(fd, kindClaim, 3*cacheLine, true)
	return Claim{r}, err
}

// State is 0, [Posted] or [Ending] of the last generation. Sender and receiver
// both store one word and then load the other's; all of these are sequentially
// consistent, so at least one of the two sees the other.
func (p Post) State() *atomic.Uint32 { return shm.Word(p.Bytes(), cacheLine) }

// Posted is the state of a redirection that can be claimed.
func Posted(g uint32) uint32 { return 2 * g }

// Ending is the state of one that cannot any more.
func Ending(g uint32) uint32 { return 2*g + 1 }

// Generations is after how many posts generations begin again with 1.
const Generations = 1<<31 - 1

// Low is the range's beginning in the export, in bytes.
func (p Post) Low() *atomic.Uint64 { return shm.Word64(p.Bytes(), cacheLine+8) }

// High is its end.
func (p Post) High() *atomic.Uint64 { return shm.Word64(p.Bytes(), cacheLine+16) }

// ByStream is the [Post.Target] of a redirection to memory that the importer has
// not mapped. The importer sends the message by the stream, and the exporter's
// receiver claims the redirection and stores the words.
const ByStream = 1<<32 - 1

// Target is the number of the memory that words go to, or [ByStream].
func (p Post) Target() *atomic.Uint32 { return shm.Word(p.Bytes(), cacheLine+4) }

// Offset is where in it the range's first word goes.
func (p Post) Offset() *atomic.Uint64 { return shm.Word64(p.Bytes(), cacheLine+24) }

// Claimed is the generation that the importer redirects to, 0 for none.
func (c Claim) Claimed() *atomic.Uint32 { return shm.Word(c.Bytes(), cacheLine) }

// Finished is the generation whose last store the importer has made.
func (c Claim) Finished() *atomic.Uint32 { return shm.Word(c.Bytes(), cacheLine+4) }

// First is the first redirected byte, counted from the range's beginning.
func (c Claim) First() *atomic.Uint64 { return shm.Word64(c.Bytes(), cacheLine+8) }

// Done is how many bytes were redirected from there.
func (c Claim) Done() *atomic.Uint64 { return shm.Word64(c.Bytes(), cacheLine+16) }

// Messages counts the messages to the export.
func (c Claim) Messages() *atomic.Uint64 { return shm.Word64(c.Bytes(), 2*cacheLine) }

// End is the offset of message n's last word. It is stored before Messages
// becomes n, and again for message n+2, so a reader that finds Messages still at
// n after it has read End of n has read n's.
func (c Claim) End(n uint64) *atomic.Uint64 {
	return shm.Word64(c.Bytes(), 2*cacheLine+8+8*int(n%2))
}
