/* departed.pml - how the end of a process reaches those it had links with, while daemons die and are replaced (internal/daemon
 * members/departed.go, members/journal.go, registry_rejoin.go, process.go, broker_datalink.go; awaitImporter in internal/link/conn_reconnect.go; redial in link_handshake.go; Conn.Watch in internal/nodeconn/reconnect.go).
 * Models: an importer 0 on node 0 and an exporter 1 on node 1, each with its daemon; their link, whose network breaks at any time.
 * A process ends by its program's end, or leaves (Close) while its program lives, here only when no daemon dies any more.
 * Its daemon sees the connection end, adds the process to the departed and writes that into the member journal, two steps
 * between which the daemon may die. The next daemon reads the journal: a process that is written as ended, or that the kernel
 * says is dead, has departed. Others are expected, rejoin in two steps (their identity; what they have), and are watched until
 * then. A daemon does not take the end of a returning process's connection for a departure, but asks the kernel. It does the
 * same for a process whose connection it has given up. An exporter that has lost its connection asks its daemon, which asks the
 * other one; a question that a daemon's death ends is repeated. The importer dials the exporter's daemon: a link that is there
 * is handed over, another one is refused, for now if any process is expected.
 * RST daemons die. The limit is not reached (silence.pml); what is said here is what is known before it.
 * Checked: no process is told that another one has departed, or that its link is gone, while that lives; if all daemons are
 * there in the end, a process that has lost its connection with an ended one was told, and the others go on.
 * Left out: several processes, the network's own epochs, the bound of what is remembered, a journal that cannot be written.
 * Flags that break it:
 *   -DALL_ENDED   it takes a process that has not rejoined for ended
 *   -DNO_WATCH    it asks when it starts, and then no more
 *   -DEOF_BACK    the end of a returning process's connection is its departure
 *   -DNO_LATER    a link that is not known is refused for good
 *   -DEARLY       a process is expected no more when it has named itself
 *   -DEND_FIRST   its links go before it has departed or is expected
 * What was built, and is found wanting (run.sh expects these to be broken):
 *   -DLEAVE       a process leaves while its daemon is away, and its program lives on: it is expected for as long as that runs,
 *                 and only the limit, or a Bye that arrives, ends its link
 *   -DHANGUP      a process whose answers its daemon, stopped, does not read gives up the connection (nodeproto.Conn.serve, after two
 *                 writes of 10 s), and has departed for the daemon when that goes on
 * Run: spin -a [flags] departed.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef RST
#define RST 2
#endif
#define IMP 0
#define EXP 1
mtype = {NONE, COMING, HERE};           /* a process for its daemon */
bool lives[2] = true, program[2] = true;        /* it has not ended; the kernel has its program */
bool up[2] = true;                      /* the daemon */
byte rst = RST, hung = 1, gives = 1;
bool conn[2] = true;                    /* the process has a connection with its daemon, as it sees it */
mtype at[2] = HERE;
bool expected[2], departed[2], rolled[2];       /* rolled: its end is in the roll */
bool given[2];                          /* the daemon has given the connection up: the process did not read it */
bool dlink = true;                      /* daemon 1 knows the link */
bool link[2] = true;                    /* a process has a connection of it */
bool told[2];                           /* a process was told that the other one is gone */
byte cuts = 2, deaths = 1;

inline finish(p) { deaths--; lives[p] = false; conn[p] = false; link[0] = false; link[1] = false }

active proctype World() {
end: do
  :: atomic { deaths && lives[0] -> finish(0); program[0] = false }
  :: atomic { deaths && lives[1] -> finish(1); program[1] = false }
#ifdef LEAVE
#define MAYLEAVE(p) true
#else
#define MAYLEAVE(p) (up[p] && conn[p] && at[p] == HERE && !rst)
#endif
  :: atomic { deaths && lives[0] && MAYLEAVE(0) -> finish(0) }
  :: atomic { deaths && lives[1] && MAYLEAVE(1) -> finish(1) }
  :: atomic { cuts && link[0] && link[1] -> cuts--; link[0] = false; link[1] = false }
  od }

/* process p with its daemon */
proctype Proc(byte p) {
end: do
  :: atomic { lives[p] && !conn[p] && up[p] && at[p] == NONE && expected[p] -> conn[p] = true; at[p] = COMING;
#ifdef EARLY
       expected[p] = false
#endif
     }
  :: atomic { lives[p] && conn[p] && up[p] && at[p] == COMING -> if :: p == EXP && !told[EXP] -> dlink = true :: else fi; at[p] = HERE; expected[p] = false }
  :: atomic { lives[p] && conn[p] && up[p] && at[p] == COMING -> conn[p] = false }      /* gives this attempt up */
#ifdef HANGUP
  :: atomic { lives[p] && conn[p] && up[p] && at[p] == HERE && hung -> hung = 0; conn[p] = false }
#endif
  od }

#ifdef EOF_BACK
#define RETURNING given[p]
#else
#define RETURNING (at[p] == COMING || given[p])
#endif
proctype Daemon(byte p) {
end: do
  :: atomic { up[p] && rst -> rst--; up[p] = false; at[p] = NONE; conn[p] = false; given[p] = false; expected[p] = false; departed[p] = false;
       if :: p == EXP -> dlink = false :: else fi }
  :: atomic { !up[p] -> up[p] = true; if :: rolled[p] -> departed[p] = true
       :: !rolled[p] && !program[p] -> departed[p] = true; rolled[p] = true
       :: !rolled[p] && program[p] ->
#ifdef ALL_ENDED
         departed[p] = true
#else
         expected[p] = true
#endif
       fi }
  :: atomic { up[p] && at[p] == HERE && conn[p] && gives -> gives--; given[p] = true; conn[p] = false }
  /* gone and bereave, in steps */
#ifdef END_FIRST
  :: atomic { up[p] && at[p] != NONE && !conn[p] && dlink && p == EXP -> dlink = false }
#endif
  :: atomic { up[p] && at[p] != NONE && !conn[p] && RETURNING -> expected[p] = true; at[p] = NONE; given[p] = false; if :: p == EXP -> dlink = false :: else fi }
  :: atomic { up[p] && at[p] != NONE && !conn[p] && !RETURNING && !departed[p] -> departed[p] = true }
  :: atomic { up[p] && at[p] != NONE && !conn[p] && !RETURNING && departed[p] -> rolled[p] = true; expected[p] = false; at[p] = NONE;
       if :: p == EXP -> dlink = false :: else fi }
#ifndef NO_WATCH
  :: atomic { up[p] && expected[p] && !program[p] -> departed[p] = true; rolled[p] = true; expected[p] = false }
#endif
  od }

#ifdef NO_LATER
#define REFUSES true
#else
#define REFUSES (!expected[EXP])
#endif
/* the importer's dialling and the exporter's question */
active proctype Link() {
end: do
  :: atomic { lives[IMP] && !link[IMP] && !told[IMP] && up[EXP] && dlink && at[EXP] != NONE && conn[EXP] && lives[EXP] ->
       if :: told[EXP] -> told[IMP] = true; assert(false) :: else -> link[IMP] = true; link[EXP] = true fi }
  :: atomic { lives[IMP] && !link[IMP] && !told[IMP] && up[EXP] && !dlink && REFUSES -> told[IMP] = true; assert(!lives[EXP]) }
  :: atomic { lives[EXP] && !link[EXP] && !told[EXP] && up[EXP] && conn[EXP] && at[EXP] == HERE && up[IMP] && departed[IMP] -> told[EXP] = true; assert(!lives[IMP]) }
  od }

init { atomic { run Proc(0); run Proc(1); run Daemon(0); run Daemon(1) };
  timeout -> atomic {
    assert(up[0] && up[1]);
    assert(lives[EXP] || !lives[IMP] || told[IMP]);
    assert(lives[IMP] || !lives[EXP] || told[EXP]);
    assert(!(lives[0] && lives[1]) || link[0] && link[1]) } }
