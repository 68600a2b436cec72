/* notes.pml - the ring entry (note) of a mapped notification and the waking of its exporter, as internal/shmlayout/link.go, internal/link/
 * notify_poll.go, notify_dispatcher.go and mapped.go have it: an importer puts a note, loads Awake, and rings, rouses or does nothing; an
 * exporter's goroutine polls, sleeps on the ring (and on what is posted to it), or leaves the ring to its bell.
 * Models: NI importer threads with one ring, each puts M notes (the lock that they share makes putting and loading Awake
 * one after another's; what they do then is outside of it); the goroutine of the handlers, which chooses freely whether to
 * go on polling, to sleep in the kernel or to leave the ring; the goroutine that serves the bell and posts the link; -DOTHER:
 * a goroutine that posts something else once; -DCOLLECT: the frame that closes another import has the goroutine which reads
 * it take all notes out of the ring, once. The kernel compares the words with what the sleeper has seen, and puts it to
 * sleep, in one step.
 * Checked: in the end every note has been handled, and so has what was posted.
 * Flags that break it:
 *   -DLEAVE_LATE   Awake becomes Rings after the ring was looked at
 *   -DHEAD_LATE    Head is stored after Awake became Rings, and after the look
 *   -DLOAD_EARLY   an importer loads Awake before it puts its note
 *   -DNO_COMPARE   the kernel does not compare the ring's word (a plain wait for a wake-up)
 *   -DPOLL_EARLY   Awake says Polls while the exporter sleeps
 *   -DNO_POSTED    (OTHER) the sleeper does not sleep on what is posted
 *   -DCOLLECT_MUTE (COLLECT) what was taken out of the ring is not queued
 * Run: spin -a [flags] notes.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef NI
#define NI 2
#endif
#ifndef M
#define M 2
#endif
#define ALL (NI*M)
#define RINGS 0
#define POLLS 1
#define SLEEPS 2
byte tail, awake = RINGS, head; /* head: as the exporter has stored it for importers */
byte taken;                     /* as the exporter itself knows it */
byte held;                      /* of those: taken for a closed import, not handled yet */
bool mu;                        /* of the exporter's own numbers */
bool lock, posted, queued, closed, bell, asleep, woken;
byte on;                        /* the stamp that is slept on */
byte other, did;

inline POST() { d_step { posted = 1; if :: asleep -> woken = 1 :: else fi } }

proctype Importer() { byte i, t, a;
  do
  :: i == M -> break
  :: else ->
     atomic { !lock -> lock = 1 };
#ifdef LOAD_EARLY
     a = awake;
#endif
     t = tail; tail = t+1; /* the stamp of entry t */
#ifndef LOAD_EARLY
     a = awake;
#endif
     lock = 0;
     if
     :: a == POLLS
     :: a == SLEEPS -> d_step { if :: asleep && on == t -> woken = 1 :: else fi }
     :: a == RINGS -> if :: head == t -> bell = 1 :: else fi
     fi;
     i++
  od
}
/* the goroutine that serves the socket: the link is queued */
proctype Server() {
end: do :: atomic { bell -> bell = 0 }; if :: queued :: else -> queued = 1; POST() fi od
}
#ifdef OTHER
proctype Other() { other = 1; POST() }
#endif
#ifdef COLLECT
#define LOCK() atomic { !mu -> mu = 1 }
#define UNLOCK() mu = 0
proctype Collector() { byte n;
  LOCK();
  n = tail - taken; held = held + n; taken = taken + n; head = taken;
#ifndef COLLECT_MUTE
  if :: n && !queued -> queued = 1; POST() :: else fi;
#endif
  UNLOCK()
}
#else
#define LOCK() skip
#define UNLOCK() skip
#endif
inline LEAVE() {
  LOCK();
#ifdef LEAVE_LATE
  n = tail;
  head = taken; awake = RINGS;
#else
#ifdef HEAD_LATE
  awake = RINGS; n = tail; head = taken;
#else
  head = taken; awake = RINGS; n = tail;
#endif
#endif
  if :: n != taken || held -> queued = 1 :: else fi;
  UNLOCK();
  watching = 0 }

proctype Handlers() { bool watching; byte n;
end: do
  :: queued -> queued = 0;                      /* a job: one note, the head for importers */
     LOCK();
     if
     :: held -> held--; UNLOCK(); watching = 1; awake = POLLS; if :: held -> queued = 1 :: else fi
     :: !held && tail != taken -> taken++; head = taken; UNLOCK(); watching = 1; awake = POLLS
     :: else -> UNLOCK()
     fi
  :: other != did -> did = other
  :: watching && !queued && other == did ->
     posted = 0;
     if :: queued || other != did -> posted = 1 :: else fi; /* with the queue's lock */
     if
     :: posted
     :: else ->
        if
        :: tail != taken && !held ->            /* polled: head is stored when it matters */
           LOCK(); if :: tail != taken && !held -> taken++ :: else fi; UNLOCK()
        :: LEAVE()
        :: skip;                                /* it sleeps */
#ifdef POLL_EARLY
           n = tail;
#else
           awake = SLEEPS; n = tail;            /* the look only spares a call: the kernel's is after Awake too */
#endif
           if
           :: n != taken
           :: else ->
              atomic {
                if
#ifndef NO_COMPARE
                :: tail != taken                /* the stamp is not what was seen */
#endif
#ifndef NO_POSTED
                :: posted
#endif
                :: else -> asleep = 1; on = taken
                fi };
              if :: asleep ->
end1:            atomic { woken -> woken = 0; asleep = 0 }
                 :: else fi
           fi;
           awake = POLLS
        fi
     fi
  od
}
init { byte j;
  atomic {
    do :: j < NI -> run Importer(); j++ :: else -> break od;
    run Server(); run Handlers();
#ifdef OTHER
    run Other();
#endif
#ifdef COLLECT
    run Collector()
#endif
  };
  timeout -> assert(taken == ALL && !held && did == other)
}
