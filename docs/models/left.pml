/* left.pml - what a socket has no room for, as internal/link/conn_write.go has it: waiters write it between their
 * looks, senders when they come with more; the descriptor is armed where none of them does, and not while one writes.
 * Where long messages come the other way, a writer may end its quantum though there is room, and the re-arm watchdog flushes
 * what is left, as long as the link is on its list.
 * Models: W waiters, each of which attends (beginWrite), writes, leaves the link unarmed or not, and hands over or leaves
 * (endWrite), T times; a sender, which offers S more messages and does not attend; a goroutine that writes in passing and does
 * not attend; the far end, which makes room at any time; the background, which takes the one event that an armed descriptor
 * gives when there is room, looks without the lock whether it is still wanted, and where it is not leaves the mark that one will
 * come; the watchdog ("guard"), which takes the link off its list, and then looks whether anything is left, as does a waiter
 * that goes to sleep.
 * Checked: in the end nothing is left. Writing and the looks of the holder of the lock (tmu) are one step.
 * Flags that break it:
 *   -DOFFER_UNARMED  a sender does not arm again what it has disarmed
 *   -DPART_EARLY     a waiter looks whether anything is left before it does not attend to it any more
 *   -DKEEP_FLAG      the background may take what is left for written where it leaves it to a goroutine that attends
 *   -DTURN_PASSING   a goroutine that writes in passing ends a quantum like one that attends
 *   -DLIST_EARLY     a writer that relies on the watchdog looks at its list before it writes, and not after that
 *   -DGUARD_LOOKS    the watchdog looks whether anything is left before it takes the link off its list
 *   -DENTRUST_MARKED a goroutine that attends does not disarm, and hands over to the watchdog, which believes the mark
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
byte left = 2, room, made, attended, over;
bool stuck, tmu, guarded;
bool armed;  /* the mark that an event will come */
bool event;  /* it will */

inline LOCK() { atomic { !tmu -> tmu = 1 } }
inline UNSET() { armed = 0; event = 0 }
inline SET() { armed = 1; event = 1 }
/* with the lock: pump writes all that there is room for, a turn some of it */
inline PUMP() { d_step {
  do :: left && room -> left--; room-- :: else -> break od;
  if :: left -> stuck = 1 :: else -> stuck = 0 fi } }
inline TURN() {
  atomic {
  if :: left && room -> left--; room-- :: else fi;
  do :: left && room -> left--; room-- :: break od;
  if :: left -> stuck = 1 :: else -> stuck = 0 fi } }
inline ARM() { if :: !attended && stuck -> SET() :: else fi }
/* listed is what the guard's list was when a writer that is to look early looked */
#ifdef LIST_EARLY
#define LISTED listed
#else
#define LISTED guarded
#endif
inline ENTRUST() { if :: !attended && stuck -> if :: LISTED :: !LISTED -> SET() fi :: else fi }
inline OFFER() { UNSET(); listed = guarded;
  if :: guarded -> TURN() :: else -> PUMP() fi;
#ifndef OFFER_UNARMED
  ENTRUST()
#endif
}
inline DUE() { if :: stuck -> LOCK(); if :: !attended && !armed -> OFFER() :: else fi; tmu = 0 :: else fi }

proctype Waiter() { byte n; bool s, listed;
  do
  :: n == T -> break
  :: else -> n++;
     LOCK(); attended++;                              /* attend */
#ifndef ENTRUST_MARKED
     UNSET();
#endif
     tmu = 0;
     LOCK(); if :: PUMP() :: TURN() fi; tmu = 0;      /* advance, once or more */
     if :: guarded = 1 :: 1 fi;                       /* rest */
     LOCK();
     listed = guarded;
#ifdef PART_EARLY
     s = stuck; tmu = 0; LOCK();
     attended--;
     if :: !attended && s -> SET() :: else fi;
#else
     attended--;
     if :: 1 -> ENTRUST() :: 1 -> ARM() fi;           /* endWriteSoon, or leave */
#endif
     tmu = 0
  od;
  over++ }

proctype Sender() { byte n; bool listed;
  do
  :: n == S -> break
  :: else -> n++;
     LOCK(); left++; OFFER(); tmu = 0
  od;
  over++ }

proctype Passer() {
  LOCK(); stuck = 0;
#ifdef TURN_PASSING
  TURN();
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
     :: stuck && !attended -> LOCK(); armed = 0; stuck = 0; PUMP(); ARM(); tmu = 0
#ifdef KEEP_FLAG
     :: stuck -> stuck = 0
#endif
     :: else
     fi
  od }

active proctype Guard() { bool listed, s;
end: do
  :: guarded ->
#ifdef GUARD_LOOKS
     s = stuck; guarded = 0;
     if :: s -> LOCK(); if :: !attended && !armed -> OFFER() :: else fi; tmu = 0 :: else fi
#else
     guarded = 0; DUE()
#endif
  od }

init { byte i; atomic { do :: i < W -> run Waiter(); i++ :: else -> break od; run Far(); run Sender(); run Passer() };
  over == W+3;
  /* nothing happens any more */
  timeout -> assert(!left) }
