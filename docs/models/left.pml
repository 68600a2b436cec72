/* left.pml - what a socket has no room for, as internal/link/room.go has it: waiters write it between their
 * looks, senders when they come with more; the descriptor is armed where nobody does, and not while somebody writes.
 * Models: W waiters, each of which attends, writes what there is room for, and leaves, T
 * times; a sender, who offers S more messages and does not attend; the far end, which makes room at any time; the background, which takes the one
 * event that an armed descriptor gives when there is room, and looks without the lock whether it is still wanted.
 * Checked: in the end nothing is left. Writing and the looks of who holds the lock (tmu) are one step where the lock is held.
 * Flags that break it:
 *   -DOFFER_UNARMED  a sender does not arm again what it has disarmed
 *   -DPART_EARLY     a waiter looks whether anything is left before it does not attend to it any more
 *   -DKEEP_FLAG      the background may take what is left for written where it leaves it to who attends
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
bool stuck, armed, tmu;

inline LOCK() { atomic { !tmu -> tmu = 1 } }
/* pump: with the lock */
inline PUMP() { d_step {
  do :: left && room -> left--; room-- :: else -> break od;
  if :: left -> stuck = 1 :: else -> stuck = 0 fi } }
inline ARM() { if :: !attended && stuck -> armed = 1 :: else fi }

proctype Waiter() { byte n; bool s;
  do
  :: n == T -> break
  :: else -> n++;
     LOCK(); attended++; armed = 0; tmu = 0;          /* attend */
     LOCK(); PUMP(); tmu = 0;                         /* advance, once or more */
     LOCK();                                          /* leave */
#ifdef PART_EARLY
     s = stuck; tmu = 0; LOCK();
     attended--;
     if :: !attended && s -> armed = 1 :: else fi;
#else
     attended--; ARM();
#endif
     tmu = 0
  od;
  over++ }

proctype Sender() { byte n;
  do
  :: n == S -> break
  :: else -> n++;
     LOCK(); armed = 0; d_step { left++; stuck = 0 }; PUMP();  /* offer */
#ifndef OFFER_UNARMED
     ARM();
#endif
     tmu = 0
  od;
  over++ }

proctype Far() { do :: made < 2+S -> atomic { made++; room++ } :: made == 2+S -> break od; over++ }

active proctype Background() {
end: do
  :: atomic { armed && room -> armed = 0 };          /* the event, one-shot */
     if
     :: stuck && !attended -> LOCK(); armed = 0; stuck = 0; PUMP(); ARM(); tmu = 0
#ifdef KEEP_FLAG
     :: stuck -> stuck = 0
#endif
     :: else
     fi
  od }

init { byte i; atomic { do :: i < W -> run Waiter(); i++ :: else -> break od; run Far(); run Sender() };
  over == W+2;
  /* nothing happens any more */
  timeout -> assert(!left) }
