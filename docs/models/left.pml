/* left.pml - what a socket has no room for, as internal/link/room.go and rest.go have it: waiters write it between their
 * looks; one that leaves for a while arms nothing if the link is the guard's, and the guard gives to the background what is
 * left of a link that nobody has used.
 * Models: W waiters, each of which attends, writes what there is room for, leaves the link at rest or not, and recedes, T
 * times; a sender, who offers another message and does not attend; the far end, which makes room at any time; the guard, whose list has one link; the background, which takes the one
 * event that an armed descriptor gives when there is room. The guard's entry into its list, which is by its lock, is one step with the flag.
 * Checked: in the end nothing is left. Writing and the looks of who holds the lock (tmu) are one step where the lock is held.
 * Flags that break it:
 *   -DNO_INHERIT   the guard arms for reading alone
 *   -DLOOK_EARLY   the guard looks for what is left before it lets go of the link
 *   -DPART_EARLY   a waiter looks whether the link is the guard's before it does not attend to it any more
 *   -DKEEP_FLAG    the background may take what is left for written where it leaves it to who attends
 * Run: spin -a [flags] left.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef W
#define W 2
#endif
#ifndef T
#define T 2
#endif
#define MOST 3
byte left = MOST-1, room, made, attended, over;
bool stuck, armed, tmu, used, guarded, listed;

inline LOCK() { atomic { !tmu -> tmu = 1 } }
/* pump: with the lock */
inline PUMP() { d_step {
  do :: left && room -> left--; room-- :: else -> break od;
  if :: left -> stuck = 1 :: else -> stuck = 0 fi } }

proctype Waiter() { byte n; bool g;
  do
  :: n == T -> break
  :: else -> n++;
     LOCK(); attended++; armed = 0; tmu = 0;          /* attend */
     LOCK(); PUMP(); tmu = 0;                         /* advance, once or more */
     if
     :: skip                                          /* no rest: somebody else polls the link */
     :: used = 1;                                     /* rest */
        if :: atomic { !guarded -> guarded = 1; listed = 1 } :: guarded fi
     fi;
     LOCK();                                          /* recede */
#ifdef PART_EARLY
     g = guarded; tmu = 0; LOCK();
     attended--;
     if :: !attended && stuck && !g -> armed = 1 :: else fi;
#else
     attended--;
     if :: !attended && stuck -> if :: !guarded -> armed = 1 :: guarded fi :: else fi;
#endif
     tmu = 0
  od;
  over++ }

proctype Sender() {
  LOCK(); d_step { left++; stuck = 0 }; PUMP();       /* offer */
  if :: !attended && stuck -> if :: !guarded -> armed = 1 :: guarded fi :: else fi;
  tmu = 0; over++ }

proctype Far() { do :: made < MOST -> atomic { made++; room++ } :: made == MOST -> break od; over++ }

inline INHERIT() {
  sees = stuck;
  if :: sees && !attended -> LOCK(); if :: stuck && !attended -> armed = 1 :: else fi; tmu = 0 :: else fi }

active proctype Guard() { bool sees;
end: do
  :: listed -> /* a tick */
     if
     :: atomic { used -> used = 0 };
#ifndef NO_INHERIT
        INHERIT()
#endif
     :: !used ->
#ifdef LOOK_EARLY
        INHERIT();
        atomic { listed = 0; guarded = 0 }
#else
        atomic { listed = 0; guarded = 0 };
#ifndef NO_INHERIT
        INHERIT()
#endif
#endif
     fi
  od }

active proctype Background() {
end: do
  :: atomic { armed && room -> armed = 0 };          /* the event, one-shot */
     if
     :: stuck && !attended -> LOCK(); stuck = 0; PUMP(); if :: stuck && !attended -> armed = 1 :: else fi; tmu = 0
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
