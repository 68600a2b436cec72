/* left.pml - what a socket has no room for, as internal/link/conn_write.go has it: waiters write it between their
 * polls, senders when they have more; the descriptor is armed where none of them does, and not while one writes.
 * Where long messages come the other way, a writer may end its quantum though there is room, and the re-arm watchdog flushes
 * what is left, as long as the link is on its list.
 * Models: W waiters, each of which begins to write (beginWrite), writes, leaves the link unarmed or not, and ends (endWrite), with
 * the rest scheduled or not, T times; a sender, which flushes S more messages and is no active writer; a goroutine that writes in
 * passing and is no active writer; the far end, which makes room at any time; the background, which takes the one event that an
 * armed descriptor gives when there is room, checks without the lock whether it is still wanted, and where it is not leaves the mark that one will
 * come; the watchdog, which takes the link off its list, and then checks whether anything is left, as does a waiter that goes to
 * sleep.
 * Checked: in the end nothing is left. Writing and the checks of the holder of the lock (tmu) are one step.
 * Flags that break it:
 *   -DFLUSH_UNARMED  a sender does not arm again what it has disarmed
 *   -DEND_EARLY      a waiter checks whether anything is left before it is no active writer any more
 *   -DKEEP_FLAG      the background may take what is left for written where it leaves it to an active writer
 *   -DQUANTUM_PASSING  a goroutine that writes in passing ends a quantum like an active writer
 *   -DLIST_EARLY     a writer that relies on the watchdog checks its list before it writes, and not after that
 *   -DWATCHDOG_LOOKS the watchdog checks whether anything is left before it takes the link off its list
 *   -DSCHEDULE_MARKED  an active writer does not disarm, and leaves the rest to the watchdog, which believes the mark
 * Run: spin -a [flags] left.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef W
#define W 2
#endif
#ifndef T
#define T 2
#endif
#ifndef S
#define S 2
#endif
byte left = 2, room, made, writers, over;
bool blocked, tmu, onlist;
bool armed;  /* the mark that an event will come */
bool event;  /* it will */

inline LOCK() { atomic { !tmu -> tmu = 1 } }
inline UNSET() { armed = 0; event = 0 }
inline SET() { armed = 1; event = 1 }
/* with the lock: pump writes all that there is room for, a quantum some of it */
inline PUMP() { d_step {
  do :: left && room -> left--; room-- :: else -> break od;
  if :: left -> blocked = 1 :: else -> blocked = 0 fi } }
inline QUANTUM() {
  atomic {
  if :: left && room -> left--; room-- :: else fi;
  do :: left && room -> left--; room-- :: break od;
  if :: left -> blocked = 1 :: else -> blocked = 0 fi } }
inline ARM() { if :: !writers && blocked -> SET() :: else fi }
/* listed is what the watchdog's list was when a writer that is to check early did */
#ifdef LIST_EARLY
#define LISTED listed
#else
#define LISTED onlist
#endif
inline SCHEDULE() { if :: !writers && blocked -> if :: LISTED :: !LISTED -> SET() fi :: else fi }
inline FLUSH() { UNSET(); listed = onlist;
  if :: onlist -> QUANTUM() :: else -> PUMP() fi;
#ifndef FLUSH_UNARMED
  SCHEDULE()
#endif
}
inline DUE() { if :: blocked -> LOCK(); if :: !writers && !armed -> FLUSH() :: else fi; tmu = 0 :: else fi }

proctype Waiter() { byte n; bool s, listed;
  do
  :: n == T -> break
  :: else -> n++;
     LOCK(); writers++;                              /* beginWrite */
#ifndef SCHEDULE_MARKED
     UNSET();
#endif
     tmu = 0;
     LOCK(); if :: PUMP() :: QUANTUM() fi; tmu = 0;      /* flushSome, once or more */
     if :: onlist = 1 :: 1 fi;                       /* releaseUnarmed */
     LOCK();
     listed = onlist;
#ifdef END_EARLY
     s = blocked; tmu = 0; LOCK();
     writers--;
     if :: !writers && s -> SET() :: else fi;
#else
     writers--;
     if :: 1 -> SCHEDULE() :: 1 -> ARM() fi;           /* endWriteSoon, or endWrite */
#endif
     tmu = 0
  od;
  over++ }

proctype Sender() { byte n; bool listed;
  do
  :: n == S -> break
  :: else -> n++;
     LOCK(); left++; FLUSH(); tmu = 0
  od;
  over++ }

proctype Passer() {
  LOCK(); blocked = 0;
#ifdef QUANTUM_PASSING
  QUANTUM();
#else
  PUMP(); ARM();
#endif
  tmu = 0;
  over++ }

proctype Far() { do :: made < 2+S -> atomic { made++; room++ } :: made == 2+S -> break od; over++ }

active proctype Background() {
end: do
  :: atomic { event && room -> event = 0 };          /* one-shot */
     if
     :: blocked && !writers -> LOCK(); armed = 0; blocked = 0; PUMP(); ARM(); tmu = 0
#ifdef KEEP_FLAG
     :: blocked -> blocked = 0
#endif
     :: else
     fi
  od }

active proctype Watchdog() { bool listed, s;
end: do
  :: onlist ->
#ifdef WATCHDOG_LOOKS
     s = blocked; onlist = 0;
     if :: s -> LOCK(); if :: !writers && !armed -> FLUSH() :: else fi; tmu = 0 :: else fi
#else
     onlist = 0; DUE()
#endif
  od }

init { byte i; atomic { do :: i < W -> run Waiter(); i++ :: else -> break od; run Far(); run Sender(); run Passer() };
  over == W+3;
  /* nothing happens any more */
  timeout -> assert(!left) }
