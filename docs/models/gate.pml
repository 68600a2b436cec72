/* gate.pml - how C blocks the handlers of Go's dispatcher without a call, as internal/link/notify_gate.go, c/src/handlers.c
 * and Go's reader of the event descriptor have it. A Block adds a level, loads `running`, and sleeps until it is idle; an
 * Unblock takes a level away, loads `pending` if it was the last, and rings. The dispatcher stores `running`, loads
 * `levels`, and runs a handler or leaves; before it sleeps it stores `pending` and loads `levels`. The reader of the ring
 * clears `pending` under the dispatcher's mutex, where it finds no level, and wakes it.
 * Models: one dispatcher with M notifications, which are all there from the start; NB threads that block and unblock R
 * times each; the first handler leaves a level if LEVEL is defined, which one more thread takes away. With LEAVE a
 * thread may leave its Block while it sleeps, and gives its level back then. Each statement is one access to a shared word.
 * Checked: no handler runs while a thread has a level and is not in Block; nobody sleeps for ever; all handlers run.
 * Flags that break it:
 *   -DLEVELS_FIRST    the dispatcher loads `levels` before it stores `running`
 *   -DRUNNING_FIRST   a Block loads `running` before it adds its level
 *   -DPENDING_LATE    the dispatcher stores `pending` after it has loaded `levels`
 *   -DPENDING_FIRST   an Unblock loads `pending` before it takes the level away
 *   -DCLEAR_OUTSIDE   the reader clears `pending`, and wakes the dispatcher in a second step, without the mutex
 *   -DWAKE_ONE        the end of a handler wakes one Block
 *   -DPLAIN_LEAVE     the end of a handler stores `running` and wakes only if it was awaited when it was loaded before
 *   -DKEEP_LEVEL      with LEAVE: a Block that is left keeps its level
 * Run: spin -a [flags] gate.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef NB
#define NB 2
#endif
#ifndef R
#define R 2
#endif
#ifndef M
#define M 2
#endif
#define IDLE 0
#define RUNNING 1
#define AWAITED 2
byte levels, running, handled, has; /* has: threads that have a level and have returned from Block */
bool pending, ring, mutex, dispatcher_sleeps, in_handler;
bool futex[NB]; /* a thread sleeps on `running` */

inline LOCK() { atomic { !mutex -> mutex = 1 } }
inline UNLOCK() { mutex = 0 }

inline WAKE() { atomic { k = 0;
  do
  :: k < NB && futex[k] -> futex[k] = 0; k++
#ifdef WAKE_ONE
     ; break
#endif
  :: k < NB && !futex[k] -> k++
  :: k == NB -> break
  od } }

inline LEAVE_GATE() {
#ifdef PLAIN_LEAVE
  old = running; running = IDLE;
#else
  atomic { old = running; running = IDLE }
#endif
  if :: old == AWAITED -> WAKE() :: else fi }

proctype Dispatcher() { byte k, old; byte seen;
  LOCK();
  do
  :: handled == M -> UNLOCK(); break
  :: handled < M ->
#ifdef LEVELS_FIRST
     seen = levels; running = RUNNING;
#else
     running = RUNNING; seen = levels;
#endif
     if
     :: seen == 0 -> UNLOCK();
        in_handler = 1; assert(has == 0); in_handler = 0;
#ifdef LEVEL
        if :: handled == 0 -> levels++ :: else fi; /* its thread, before the answer */
#endif
        LOCK(); handled++; LEAVE_GATE()
     :: else -> LEAVE_GATE();
#ifdef PENDING_LATE
        seen = levels; pending = 1;
#else
        pending = 1; seen = levels;
#endif
        if
        :: seen == 0
        :: else -> atomic { mutex = 0; dispatcher_sleeps = 1 };
           atomic { !dispatcher_sleeps && !mutex -> mutex = 1 }
        fi
     fi
  od }

proctype Reader() { byte seen;
end:
  do
  :: atomic { ring -> ring = 0 };
     if
     :: pending -> seen = levels;
        if
        :: seen == 0 ->
#ifdef CLEAR_OUTSIDE
           dispatcher_sleeps = 0; pending = 0
#else
           LOCK(); atomic { if :: pending -> pending = 0; dispatcher_sleeps = 0 :: else fi }; UNLOCK()
#endif
        :: else fi
     :: else fi
  od }

inline UNBLOCK() {
#ifdef PENDING_FIRST
  p = pending;
#endif
  atomic { last = (levels == 1); levels-- };
  if
  :: last ->
#ifndef PENDING_FIRST
     p = pending;
#endif
     if :: p -> ring = 1 :: else fi
  :: else fi }

proctype Blocker(byte me) { byte r, v; bool p, last;
  do
  :: r == R -> break
  :: r < R ->
#ifdef RUNNING_FIRST
     v = running; levels++;
#else
     levels++; v = running;
#endif
     do
     :: v == IDLE -> has++; assert(!in_handler); break
     :: v == RUNNING -> atomic { if :: running == RUNNING -> running = AWAITED; v = AWAITED :: else -> v = running fi }
     :: v == AWAITED ->
        atomic { if :: running == AWAITED -> futex[me] = 1 :: else fi };
        if
        :: !futex[me] -> v = running
#ifdef LEAVE
        :: futex[me] = 0; goto left
#endif
        fi
     od;
     assert(!in_handler); has--;
left:
#ifdef KEEP_LEVEL
     if :: v == AWAITED -> goto next :: else fi;
#endif
     UNBLOCK();
next: r++; v = 0
  od }

#ifdef LEVEL
proctype Taker() { bool p, last; handled > 0 && running == IDLE; UNBLOCK() }
#endif

init { byte i;
  atomic {
    run Reader(); run Dispatcher();
#ifdef LEVEL
    run Taker();
#endif
    do :: i < NB -> run Blocker(i); i++ :: i == NB -> break od
  } ;
  /* the reader is all that stays: a deadlock of others is an invalid end state */
  (_nr_pr == 2); assert(handled == M && levels == 0 && running == IDLE)
}
