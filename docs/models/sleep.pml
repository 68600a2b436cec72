/* sleep.pml - which words waiters sleep for, as internal/wait/board.go has it: a sleeper puts its word on the board, raises
 * the count, looks, and sleeps; a sender stores a word, loads the count and, if it is not 0, the entries one by one, and
 * rings if one of them may be its word.
 * Models: NS sleepers, each waiting R times for a word of its own (word i is i+1 on the board); SLOTS entries, beyond
 * which a sleeper counts as waiting for anything; a sender for each word, and one that stores a word without a waiter.
 * A bell makes all sleepers look again.
 * Checked: no waiter sleeps for ever; a word without a waiter rings only while a waiter counts as waiting for anything.
 * Flags that break it:
 *   -DENTRY_LATE  the entry is made after the look
 *   -DCOUNT_LATE  the count is raised after the look
 *   -DLOAD_EARLY  a sender loads the count before it stores
 *   -DSHARED      an entry is taken from a waiter that still sleeps on it
 * Run: spin -a [flags] sleep.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef NS
#define NS 2
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef R
#define R 2
#endif
byte word[NS], slot[SLOTS], many, count, idle;
bool bell[NS], asleep[NS];

inline ENTER() { atomic { at = 0;
  do
#ifdef SHARED
  :: at == SLOTS-1 -> slot[at] = me+1; break
#else
  :: at < SLOTS && slot[at] == 0 -> slot[at] = me+1; break
#endif
  :: at < SLOTS && slot[at] != 0 -> at++
  :: at == SLOTS -> many++; break
  od } }
proctype Sleeper(byte me) { byte at, r;
  do
  :: r == R -> break
  :: else ->
#ifndef ENTRY_LATE
     ENTER();
#endif
#ifndef COUNT_LATE
     count++;
#endif
     do
     :: word[me] > r -> break
     :: else ->
#ifdef ENTRY_LATE
        ENTER();
#endif
#ifdef COUNT_LATE
        count++;
#endif
        asleep[me] = 1; atomic { bell[me] -> bell[me] = 0; asleep[me] = 0 }
#ifdef ENTRY_LATE
        atomic { if :: at < SLOTS -> slot[at] = 0 :: else -> many-- fi }
#endif
#ifdef COUNT_LATE
        count--
#endif
     od;
     bell[me] = 0; /* the bed is emptied */
#ifndef COUNT_LATE
     count--;
#endif
#ifndef ENTRY_LATE
     atomic { if :: at < SLOTS -> slot[at] = 0 :: else -> many-- fi };
#endif
     r++
  od;
  idle++
}
inline RING() { d_step { i = 0; do :: i < NS -> bell[i] = 1; i++ :: else -> break od; i = 0 } }
/* what: 1 to NS, or NS+1 for a word without a waiter */
inline SEND(what) {
#ifdef LOAD_EARLY
  n = count;
#endif
  if :: what <= NS -> word[what-1]++ :: else fi;
#ifndef LOAD_EARLY
  n = count;
#endif
  if
  :: n == 0
  :: else ->
     hit = 0; n = many; if :: n > 0 -> hit = 1; wide = 1 :: else fi;
     i = 0;
     do
     :: i < SLOTS && !hit -> n = slot[i]; if :: n == what -> hit = 1 :: else fi; i++
     :: else -> break
     od;
     i = 0;
     if :: hit -> assert(what <= NS || wide); RING() :: else fi
  fi; n = 0; hit = 0; wide = 0 }
proctype Sender(byte what) { byte i, n, k; bool hit, wide;
  do :: k < R -> SEND(what); k++ :: else -> break od }
init { byte j;
  atomic { j = 0;
    do :: j < NS -> run Sleeper(j); run Sender(j+1); j++ :: else -> break od;
    run Sender(NS+1); j = 0 };
  timeout -> assert(idle == NS)
}
