/* queue.pml - one lane of package queue, as queue/queue.go has it: a producer P puts values into a ring of slots in the
 * consumer's memory, the consumer C takes them and acknowledges them by the number of the next one.
 * Models: N values, S slots, messages of 1 or 2 values. A message's words arrive in any order, but for its last word, which
 * is the number of its first value. Up to D messages are in doubt: they arrive not at all, in part, or whole, and P repeats
 * them before it sends others. C acknowledges after Q values, and when it finds the lane empty; if the link is busy, a
 * goroutine (Later) sends the newest count. With LATE, which is how it is on a socket, C sets a timer when it finds the
 * lane empty, and the timer's goroutine (Timer) acknowledges. With COALESCE,
 * which is how it is between nodes, P may leave a value to the link's queue, from a buffer of its own that the link has until
 * it has written it; the link (Link) writes at some time, in the order of the calls. P closes when all is taken. With KILLP or KILLC that process is killed at any
 * step: of P's messages a prefix arrives. With CLOSE C is closed when it has taken all values. With END the queue ends: P
 * sends an end mark behind its values.
 * Checked: C takes values whole and in order; no value overwrites one that is not copied; C leaves nothing that has
 * arrived; a P whose values were all taken learns that, though C is closed at once; neither process waits for ever. With
 * END: C finds an end only when it has taken all, and loses no P that was not killed.
 * Flags that break it:
 *   -DLOOK_AHEAD        C takes a value when it sees the number of the next one
 *   -DUPWARDS           the last word of a message is the number of its last value
 *   -DNO_LAP            a slot's number is the same in each lap
 *   -DQUARTER_ONLY      C acknowledges nothing when it finds the lane empty
 *   -DCOUNT_BEFORE_COPY C acknowledges a value before it has copied it
 *   -DNO_RESEND         P does not repeat a message that is in doubt
 *   -DNO_RELOAD         Later does not look for a newer count
 *   -DTIMER_AFTER       (LATE) Timer lets C set the timer again only after it has loaded the count
 *   -DTIMER_NO_RELOAD   (LATE) Timer does not look for a newer count
 *   -DTIMER_BLIND       (CLOSE, LATE) Timer does not look whether C is closed
 *   -DNO_FROM           a wait does not end with the other process
 *   -DNO_SECOND_LOOK    (KILLP) C drops the lane of a P that is gone without another look
 *   -DNO_FENCE          (CLOSE) C ends the lane while its last count is in flight
 *   -DMARK_EARLY        (END) P sends the mark before it repeats the message that is in doubt
 *   -DMARK_NO_FENCE     (END) P ends while its mark is in flight
 *   -DMARK_BLIND        (END) C counts the end without another look at the lane
 *   -DMARK_FIRST        (END) C looks at the mark before it looks whether P is gone
 *   -DMARK_OVERTAKES    (END, COALESCE) the mark does not wait for the link's queue
 *   -DREUSE_EARLY       (COALESCE) P uses a buffer again that the link has not written
 *   -DNO_FLUSH          (COALESCE) the link writes its queue only when P sends a message that is not queued
 *   -DNO_MARK           (END, KILLP) C takes the end of P's process for the end
 * Run: spin -a [flags] queue.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 7
#endif
#ifndef D
#define D 1
#endif
#define S 4
#define Q 2

#ifdef NO_LAP
#define NUM(i) 1
#else
#define NUM(i) (((i)/S)*2+1)
#endif
#ifdef LOOK_AHEAD
#define SEES(i) (num[(i)%S] == NUM(i) || num[((i)+1)%S] == NUM((i)+1))
#else
#define SEES(i) (num[(i)%S] == NUM(i))
#endif
#ifdef UPWARDS
#define OTHER first
#define LAST (first+many-1)
#else
#define OTHER (first+1)
#define LAST first
#endif
#ifdef NO_FROM
#define PGONE false
#define CGONE false
#else
#define PGONE pgone
#define CGONE cgone
#endif

#ifdef COALESCE
#define ORDERED flush = true; empty(lq); flush = false
#else
#define ORDERED skip
#endif
#ifdef MARK_OVERTAKES
#define MARK_ORDERED skip
#else
#define MARK_ORDERED ORDERED
#endif
#ifdef REUSE_EARLY
#define FREE(k) true
#else
#define FREE(k) !busy[k]
#endif
#ifdef NO_FLUSH
#define WRITES flush
#else
#define WRITES true
#endif

byte num[S], val[S];   /* C's memory: value i has slot i%S, its val is i+1 */
byte copied;           /* values that C has copied out of their slots */
byte taken;            /* P's memory: the last count that has arrived */
byte count;            /* the newest count */
bool sending, later;   /* a goroutine sends counts; Later is to do so */
bool owed;             /* the timer is set, or Timer has not loaded the count */
bool closed, running;  /* C is closed; Timer runs */
bool lastcount;        /* C sends its last count */
bool pdead, pdone, pgone, cdead, cgone;
bool mark;             /* C's memory: P's end mark */
bool clean, lost;      /* what C has told of P */
chan net = [2] of { byte, byte, bool };  /* from P: the first value, how many, and whether all of it arrives */
#ifdef COALESCE
chan lq = [3] of { byte, byte };         /* the link's queue: a value's number, and its buffer */
byte buf[2];                             /* P's buffers: the value's number */
bool busy[2];                            /* the link has the buffer */
bool flush;                              /* P waits until the link's queue is empty */
#endif
chan acks = [1] of { byte };             /* from C */

active proctype P() { byte put, many, doubt, doubts, k; bool marked;
  {
  do
#ifdef MARK_EARLY
  :: doubt > 0 && put == N && !marked -> net!0,0,true; marked = true
#endif
  :: doubt > 0 && taken != put ->
#ifndef NO_RESEND
     ORDERED; net!put-doubt,doubt,true;
#endif
     doubt = 0
  :: doubt > 0 && taken == put -> doubt = 0
  :: doubt == 0 && put == N -> break
  :: doubt == 0 && put < N && put-taken == S ->
     (put-taken < S || CGONE);
     if
     :: put-taken == S -> goto over
     :: else
     fi
#ifdef COALESCE
  :: doubt == 0 && put < N && put-taken < S && nfull(lq) && FREE(k) ->
     buf[k] = put; busy[k] = true;
     lq!put,k;
     put++; k = 1-k
#endif
  :: doubt == 0 && put < N && put-taken < S ->
     if
     :: many = 1
     :: put+2 <= N && put-taken+2 <= S && put%S+2 <= S -> many = 2
     fi;
     ORDERED;
     if
     :: net!put,many,true
     :: doubts < D ->
        doubts++; doubt = many;
        if
        :: net!put,many,true
        :: net!put,many,false
        :: skip
        fi
     fi;
     put = put+many
  od;
#ifdef END
  if
  :: !marked -> MARK_ORDERED; net!0,0,true
  :: else
  fi;
#endif
  do
  :: taken == put -> break
  :: taken != put && CGONE -> assert(cdead || copied < put); break
  od;
#ifdef END
#ifndef MARK_NO_FENCE
  (mark || CGONE);
#endif
#endif
over:
  pdone = true
  } unless { pdead }
}

#ifdef COALESCE
/* Link writes the values in its queue, each from its buffer. */
active proctype Link() { byte first, k;
  {
end:
  do
  :: atomic { nempty(lq) && nfull(net) && WRITES -> lq?first,k; assert(buf[k] == first); net!first,1,true; busy[k] = false }
  od
  } unless { pdead }
}
#endif

inline STORE(i) { atomic { assert(i < copied+S && val[(i)%S] <= i+1); val[(i)%S] = i+1 } }

/* Net applies P's messages, and then says that P is gone. */
active proctype Net() { byte first, many, left; bool whole;
end:
  do
  :: net?first,many,whole ->
     if
     :: many == 0 -> mark = true; goto end
     :: else
     fi;
     left = (many == 2 -> 7 : 1);
     do
     :: left & 1 -> STORE(first); left = left-1
     :: left & 2 -> STORE(first+1); left = left-2
     :: left & 4 -> num[OTHER%S] = NUM(OTHER); left = left-4
     :: left == 0 || !whole || pdead -> break
     od;
     if
     :: whole && left == 0 -> num[LAST%S] = NUM(LAST)
     :: whole && pdead -> goto gone
     :: !whole
     fi
  :: pdead -> goto gone
  :: pdone -> goto gone
  od;
gone:
  pgone = true
}

inline SENDCOUNT() {
  sent = next; count = next;
  atomic { if :: sending -> mine = false :: else -> sending = true; mine = true fi };
  if
  :: mine && nfull(acks) -> acks!next; sending = false
  :: mine && full(acks) -> later = true
  :: !mine
  fi }

active proctype C() { byte next, sent; bool mine, mk, gn;
  {
  do
  :: SEES(next) ->
#ifdef COUNT_BEFORE_COPY
     next++;
     if
     :: next-sent >= Q -> SENDCOUNT()
     :: else
     fi;
     assert(val[(next-1)%S] == next); copied = next
#else
     assert(val[next%S] == next+1); /* the copy */
     next++; copied = next;
     if
     :: next-sent >= Q -> SENDCOUNT()
     :: else
     fi
#endif
  :: else ->
#ifndef QUARTER_ONLY
     if
#ifdef LATE
     :: next != sent -> count = next; owed = true
#else
     :: next != sent -> SENDCOUNT()
#endif
     :: else
     fi;
#endif
#ifdef CLOSE
     if
     :: next == N -> goto close
     :: else
     fi;
#endif
#ifdef END
#ifdef MARK_FIRST
     mk = mark; gn = pgone;
#else
     gn = pgone; mk = mark;
#endif
     if
     :: mk || gn ->
#ifndef MARK_BLIND
        if
        :: SEES(next) -> goto again
        :: else
        fi;
#endif
#ifdef NO_MARK
        mk = true;
#endif
        clean = mk; lost = !mk;
        goto ended
     :: else -> (SEES(next) || mark || PGONE)
     fi;
again:
#else
     if
     :: pgone ->
#ifdef NO_SECOND_LOOK
        break
#else
        if
        :: SEES(next)
        :: else -> break
        fi
#endif
     :: !pgone -> (SEES(next) || PGONE)
     fi
#endif
  od;
ended:
  assert(!clean || next == N);
  assert(!lost || pdead);
  assert(!SEES(next));
  goto over;
close:
  closed = true;
  (!running && !sending);
  lastcount = true;
  acks!next;
#ifndef NO_FENCE
  empty(acks);
#endif
  cgone = true;
over:
  skip
  } unless { cdead }
}

/* Later is the goroutine that sends counts when the link was busy. */
active proctype Later() { byte n; bool again;
  {
end:
  do
  :: later ->
     later = false; again = true;
     do
     :: again ->
        n = count; acks!n; sending = false;
#ifdef NO_RELOAD
        again = false
#else
        atomic { if :: count != n && !sending -> sending = true :: else -> again = false fi }
#endif
     :: !again -> break
     od
  od
  } unless { cdead }
}

#ifdef LATE
/* Timer acknowledges what C has put off. */
active proctype Timer() { byte n; bool again;
  {
end:
  do
#ifdef TIMER_BLIND
  :: owed -> skip
#else
  :: atomic { owed && !closed -> running = true }
#endif
#ifndef TIMER_AFTER
     owed = false;
#endif
     again = true;
     do
     :: again ->
        atomic { if :: sending -> again = false :: else -> sending = true fi };
        if
        :: again ->
           n = count;
           assert(!lastcount);
           if
           :: nfull(acks) -> acks!n; sending = false;
#ifdef TIMER_NO_RELOAD
              again = false
#else
              again = count != n
#endif
           :: full(acks) -> later = true; again = false
           fi
        :: else
        fi
     :: !again -> break
     od;
#ifdef TIMER_AFTER
     owed = false;
#endif
     running = false
  od
  } unless { cdead }
}
#endif

/* Back applies C's counts, and says that a C that was killed is gone. */
active proctype Back() { byte a;
end:
  do
  :: atomic { acks?a -> taken = a }
  :: cdead && !cgone -> cgone = true
  od
}

#ifdef KILLP
active proctype Kill() { pdead = true }
#endif
#ifdef KILLC
active proctype Kill() { cdead = true }
#endif
