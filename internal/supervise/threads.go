package supervise

// A file that hangs holds a thread, and where the system lets a process have no more threads Go ends it.
// So many may be at files at a time. Those who are at files of one drive hang all or none, so that more
// at a time would help few.
const (
	orders = 8 // that are about to begin a program
	logs   = 6 // reads and writes of files in the output directory
)

// Threads is how many a supervisor may need beside those that run Go: for those at files, the two of its
// signals, and what the runtime has just put aside when it looks for one.
const Threads = orders + logs + 10
