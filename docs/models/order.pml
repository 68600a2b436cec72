/* order.pml - one order over both ways of a link, as internal/link has it: the stream's queue and its numbers (send_async.go,
 * send_message.go), what was put off (async_ops.go), mapped sends, which wait until all of the stream is acknowledged
 * (mapped.go), and at the exporter the serials of notifications, whichever way these came (notify_deliver.go).
 * Models: a goroutine of the importer makes NM messages, each by a way of its choice: on the stream, synchronous (two
 * chunks) or not; mapped, synchronous or not, short (copied at once if free) or long (always put off). An asynchronous
 * one on the stream may find a get that it overlaps, and is put off then. Each carries a notification. Beside it run
 * the worker that works off what was put off, the writer of the queue, the exporter, which acknowledges when it likes, and its
 * handlers.
 * -DOTHER: a second goroutine makes messages of its own. -DCREDITS: one credit, which each message takes before all else.
 * Checked: the messages of a goroutine are applied, and their notifications run, in the order in which they were made;
 * chunks of two messages do not mix; in the end nothing is undone.
 * Flags that break it:
 *   -DNO_CATCH       a synchronous send does not wait for what was put off
 *   -DNO_BUSY        a short mapped one is copied at once though something was put off
 *   -DNO_BUSY_STREAM an asynchronous one on the stream is queued though something was put off
 *   -DNO_WAIT        mapped sends do not wait for the stream
 *   -DOVER_EARLY     what was put off counts as over before it is done
 *   -DNUMBER_LATE    a message counts as begun when it is written, not when it is queued
 *   -DSYNC_JUMPS     a synchronous message does not wait until the queue is written
 *   -DNO_MID         (OTHER) the queue is written between a synchronous message's chunks
 *   -DNO_SERIAL      a handler takes a note from either way, whatever its serial
 *   -DCREDIT_LATE    (CREDITS) a mapped message takes its credit when it is copied: one that was put off may wait for
 *                    the credit of a later one, which waits for what was put off
 * Run: spin -a [flags] order.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef NM
#define NM 3
#endif
#ifdef OTHER
#define NG 2
#else
#define NG 1
#endif
#define ALL (NM*NG)
#define G(x) ((x)/NM)          /* a message x: whose */
#define I(x) ((x)%NM)          /* and the how-manieth */
chan queue = [ALL] of { byte };           /* Requester.queue */
chan sock = [2] of { byte, bool };        /* a chunk, is it the last */
chan ops = [ALL] of { byte, bool };       /* the backlog; does it go to the stream */
chan came = [ALL] of { byte, byte };      /* Responder.notifications: serial, message */
chan ring = [ALL] of { byte, byte };      /* the importer's page: the same */
byte seq, acked, applied, begun, over;
bool sem, mid;
byte serial, ran, ser[ALL];
byte next[NG], told[NG], done;
bool arriving; byte which;
byte taken, returned;

#ifdef CREDITS
#define TAKE() atomic { taken - returned < 1 -> taken++ }
#else
#define TAKE() skip
#endif
#ifdef CREDIT_LATE
#define TAKE1() skip
#define TAKE2() TAKE()
#else
#define TAKE1() TAKE()
#define TAKE2() skip
#endif
#ifdef NO_CATCH
#define CATCH() skip
#else
#define CATCH() upto = begun; atomic { over >= upto -> upto = 0 }
#endif
#ifdef NO_BUSY
#define FREE (seq == acked)
#else
#define FREE (over == begun && seq == acked)
#endif
#ifdef NO_BUSY_STREAM
#define BUSY false
#else
#define BUSY (over != begun)
#endif
#ifdef SYNC_JUMPS
#define CLEAR true
#else
#define CLEAR empty(queue)
#endif
#ifdef NO_MID
#define NOTMID true
#else
#define NOTMID (!mid)
#endif
inline APPLY(x) { d_step { assert(I(x) == next[G(x)]); next[G(x)]++ } }
inline NUMBER(x) { serial++; ser[x] = serial }
/* a mapped message: order, copy, and its note under nmu */
inline COPY(x) {
#ifndef NO_WAIT
  upto = seq; atomic { acked >= upto -> upto = 0 };
#endif
  TAKE2();
  APPLY(x);
  atomic { serial++; ring!serial,x }
}
inline ADMIT(x) { atomic { NUMBER(x);
#ifndef NUMBER_LATE
  seq++;
#endif
  queue!x } }
inline POSTPONE(x,s) { atomic { begun++; ops!x,s } }

proctype User(byte g) {
  byte i, x, upto;
  do
  :: i == NM -> break
  :: else ->
     x = g*NM + i;
     if
     :: TAKE1(); CATCH(); COPY(x)                                            /* Mapped.SendNotify */
     :: TAKE1(); if :: FREE -> COPY(x) :: !FREE -> POSTPONE(x,0) fi           /* Mapped.SendAsync, short */
     :: TAKE1(); POSTPONE(x,0)                                               /* long */
     :: TAKE(); if :: !BUSY -> if :: ADMIT(x) :: POSTPONE(x,1) fi :: BUSY -> POSTPONE(x,1) fi  /* Out.SendAsync */
     :: TAKE(); CATCH();                                                     /* Out.Send */
        atomic { !sem -> sem = 1 };
        atomic { CLEAR && nfull(sock) -> NUMBER(x); seq++; mid = 1; sock!x,0 };
        atomic { nfull(sock) -> sock!x,1; mid = 0 };
        sem = 0
     fi;
     atomic { i++; x = 0; upto = 0 }
  od
}
proctype Work() { byte x, upto; bool s;
end_w:
  do
  :: atomic { nempty(ops) -> ops?<x,s> };
#ifdef OVER_EARLY
     over++;
#endif
     if :: s -> ADMIT(x) :: !s -> COPY(x) fi;
#ifdef OVER_EARLY
     ops?x,s
#else
     atomic { over++; ops?x,s }
#endif
  od
}
/* pump: a queued message is one chunk here */
proctype Pump() { byte x;
end_p:
  do
  :: atomic { nempty(queue) && NOTMID && nfull(sock) -> queue?x;
#ifdef NUMBER_LATE
       seq++;
#endif
       sock!x,1; x = 0 }
  od
}
proctype Eng() { byte x; bool last;
end_e:
  do
  :: atomic { sock?x,last ->
       assert(!arriving || which == x);
       arriving = !last; which = (last -> 0 : x);
       if :: last -> applied++; APPLY(x); came!ser[x],x :: else fi; x = 0; last = 0 }
  :: atomic { acked < applied -> acked = applied }
  od
}
proctype Hand() { byte n, x;
end_h:
  do
  ::
     if
#ifdef NO_SERIAL
     :: came?n,x
     :: ring?n,x
#else
     :: atomic { came?[eval(ran+1),x] -> came?n,x }
     :: atomic { ring?[eval(ran+1),x] -> ring?n,x }
#endif
     fi;
     d_step { ran++; assert(I(x) == told[G(x)]); told[G(x)]++; done++; n = 0; x = 0; returned++ }
  od
}
init {
  atomic { run User(0); run Work(); run Pump(); run Eng(); run Hand();
#ifdef OTHER
    run User(1)
#endif
  };
  timeout -> assert(done == ALL && acked == seq && over == begun)
}
