// Package supervise is the process that stays with a session's programs on one node. It runs as the
// session's user, starts the programs, keeps what they print and how they end, and is the parent of
// all that they leave behind, so that nothing of a session escapes its end. It outlives the node's
// daemon, which finds it again by its socket.
//
// The directory of a session holds the socket and the journal, and belongs to the session's user.
// Nothing in it is trusted by the daemon.
//
// The daemon starts the supervisor with the session's directory as a descriptor and reaches it by a
// socket there, in the packets of package nodeproto. The supervisor starts programs below the base
// (os.Root), copies what each prints to its file on a goroutine of its own, and reaps every process
// that has ended (wait4(-1)). Children that execute programs are started under a lock that reaping
// holds too, so none ends unknown. The first thread starts programs, and accesses no file that may
// hang, for the kernel tells the thread that has started a program of its end. A goroutine that
// accesses files needs a place. The journal is for a supervisor that takes this one's place.
//
// An attended program has a pipe or a terminal for its input. Input is written by its offset, so a
// call may be repeated. Output is held in memory until it is seen, 256 KiB at most; then the
// copying to the file waits, and with it the program. A call that lasts says that its tool is
// there. It ends with the connection, on whatever hop, and the terminal is closed.
package supervise
