package supervise

// A file that hangs holds a thread, and where the system lets a process have no more threads Go
// ends it. So many may be at files at a time, without looking whether there is room for more
// threads.
const (
	orders = 8 // that are about to begin a program
	logs   = 6 // reads and writes of files in the output directory, which hang all or none
)

// minSpareThreads are the threads that there must be room for where more go on.
const minSpareThreads = 64

// otherThreads are threads for the two that a supervisor's signals have to themselves, and for what
// the runtime has just put aside when it looks for one.
const otherThreads = 10

// Threads is how many a supervisor may need beside those that run Go.
const Threads = orders + logs + otherThreads
