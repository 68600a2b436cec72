/* handoff.pml - reader hand-off and sleeping, with unarmed links as internal/link/poll_watchdog.go has them:
 * a waiter disarms the link it polls, and one that found its word leaves it unarmed if no goroutine sleeps; the background
 * may leave a link unarmed that it has served, too (internal/link/poll_bulk.go). A goroutine that leaves one checks for sleepers
 * after that, and one that goes to sleep arms all when it is known as a sleeper. The re-arm watchdog arms them later: a waiter
 * that passes by, if no wait has taken the link since the last one did, or else the watchdog's timer, which is set as long as
 * the list is not empty. -DARM_ALWAYS: arm at every release. -DNO_WATCHDOG: unarmed links and no watchdog: no sleeper loses a
 * wake-up then either.
 * Models: one stream link (token, EPOLLONESHOT descriptor in a private epoll that is itself
 * edge-triggered in the Go netpoller), two waiters, one background goroutine, a resume that
 * replaces the descriptor, a stream sender (one message for each waiter), a same-node sender that
 * stores one word for each waiter and rings a doorbell if a waiter sleeps.
 * W0 waits for its stream word, then its mapped word; W1 the other way round.
 * Assumptions: SC for atomics; epoll_wait disarms on delivery and re-polls; EPOLL_CTL_MOD re-polls;
 * park/unpark is a sticky binary semaphore; unread bytes are sent again on the new descriptor.
 * Default = corrected protocol. Flags put the text of the design (or one omission) back:
 *   -DAS_WRITTEN    = all of: ARM_AFTER ONLY_BG_WAKES NO_ARM_ON_DONE NO_MISSED
 *   -DARM_AFTER     release, then arm            -DNO_MISSED  failed try leaves no mark
 *   -DONLY_BG_WAKES waiter that delivers wakes no sleeper
 *   -DNO_ARM_ON_DONE waiter whose word came releases without arming
 *   -DBOOL_SLEEP    one boolean instead of a count   -DWAKE_FIRST  wake, then drain doorbell
 *   -DPLAIN         sender's last word a plain store (TSO: its load of the count passes it)
 *   -DPLAIN_SLEEP   the waiter's count is a plain store (TSO: its last load of the word passes it)
 *   -DRELEASE_BLIND    a goroutine that leaves a link unarmed does not check for sleepers after that
 *   -DARM_EARLY   a waiter arms unarmed links before it is known as a sleeper
 *   -DCOUNT_AS_ARMED  what the background leaves counts as armed
 *   -DTHIEF_LAZY    waiter that takes an event off the epoll does not serve it
 *   -DNOREPL leave the replacer out; -DSTREAM_ONLY both waiters wait only for stream words;
 *   -DMAPPED_ONLY both wait only for mapped words;
 *   -DONE_EACH W0 waits for its stream word only, W1 for its mapped word only
 * Run: spin -a [flags] handoff.pml; gcc -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c; ./pan -m200000
 *   (invalid end state = lost wake-up; assertion = two readers / stale descriptor)
 * Liveness: spin -a -DLIVE handoff.pml; gcc -O2 -DCOLLAPSE -DNFAIR=8; ./pan -a -f -m500000
 */
#ifdef AS_WRITTEN
#define ARM_AFTER
#define ONLY_BG_WAKES
#define NO_ARM_ON_DONE
#define NO_MISSED
#endif
#ifdef NO_ARM_ON_DONE
#define ARMDONE false
#else
#define ARMDONE true
#endif
bool used, onlist, list, timer;  /* the watchdog's: see poll_watchdog.go */
bool knownarmed = 1;          /* armed, as the token's holder knows */
byte tok;                    /* 0 free, 1 held, 2 held and an event was missed */
byte gen; bool open[2]; byte nread;
byte sock;                   /* unread messages, bit i = for waiter i */
bool armed = 1, ev, edge, db, dbarmed = 1, dbev;
bool word[2], mword[2];
bool slp[2], sem[2]; byte nsl; byte ndone;
#define COND(i,ph) ((ph && mword[i]) || (!(ph) && word[i]))

inline ARM() { atomic { assert(open[fd]); armed = 1; if :: sock && !ev -> ev = 1; edge = 1 :: else fi } }
inline TRY() { atomic { if :: tok == 0 -> tok = 1; got = 1; fd = gen; nread++; assert(nread == 1) :: else -> got = 0 fi } }
/* read one message if there is one; m = 2: EAGAIN */
inline READ1() {
  atomic { assert(open[fd] && nread == 1);
    if :: sock & 1 -> sock = sock & 2; m = 0 :: sock & 2 -> sock = sock & 1; m = 1 :: !sock -> m = 2 fi }
  if :: m < 2 -> word[m] = 1;
        if :: w && slp[m] -> sem[m] = 1 :: else fi
     :: else fi;
  m = 2
}
inline RELEASE(arm) {
#ifdef ARM_AFTER
  atomic { nread--; tok = 0 };
  if :: arm -> ARM() :: else fi
#else
  if :: !(arm) -> atomic { nread--; tok = 0 }
     :: else ->
  do
  :: knownarmed = 1; ARM();
     atomic { if :: tok == 1 -> tok = 0; nread--; break :: else -> tok = 1 fi };
     READ1()
  od
  fi
#endif
}
/* arm an unarmed link */
inline ARM_UNARMED() {
  if
  :: !knownarmed ->
     TRY();
     if :: got -> READ1(); RELEASE(true) :: else fi; got = 0
  :: else
  fi }
inline DISARM() { atomic { armed = 0; ev = 0 } }  /* the kernel drops a queued event that is not armed */
inline RELEASE_UNARMED() {
  used = 1;
  atomic { if :: tok == 1 -> tok = 0; nread--; got = 0 :: else -> tok = 1; got = 1 fi };
  if :: got -> READ1(); RELEASE(true)
     :: else ->
        atomic { got = !onlist; onlist = 1 };
        if :: got -> atomic { if :: !list -> timer = 1 :: else fi; list = 1 } :: else fi;
#ifndef RELEASE_BLIND
        if :: nsl -> ARM_UNARMED() :: else fi
#endif
  fi; got = 0
}
/* what is off the list already: the watchdog's lock is not held any more */
inline ARMIT() {
  onlist = 0;
  ARM_UNARMED()
}
/* a waiter that goes to sleep arms what others have left unarmed */
inline ARM_ALL() {
  atomic { if :: list -> list = 0; timer = 0; got = 1 :: else -> got = 0 fi };
  if :: got -> ARMIT() :: else fi; got = 0 }
/* a waiter that has left links unarmed passes by, or not: not where another one does, or did just now */
inline PASS() {
  if
  :: atomic { list -> if :: used -> used = 0; timer = 1; got = 0 :: else -> list = 0; got = 1 fi };
     if :: got -> ARMIT() :: else fi; got = 0
  :: skip
  fi }
inline WAKEALL() { if :: slp[0] -> sem[0] = 1 :: else fi; if :: slp[1] -> sem[1] = 1 :: else fi }
/* take one event off the epoll: e = 0 none, 1 link, 2 doorbell */
inline TAKE() {
  atomic {
    if :: ev && !sock -> ev = 0 :: else fi;      /* no longer ready: dropped, stays armed */
    if :: ev -> ev = 0; armed = 0; e = 1
       :: !ev && dbev -> dbev = 0; dbarmed = 0; e = 2
       :: !ev && !dbev -> e = 0 fi } }
inline SERVE() {
  if
  :: e == 1 ->
     do
     :: TRY();
        if :: got -> READ1();
              if
              :: RELEASE(true)
#ifndef ARM_ALWAYS
              :: nsl == 0 ->               /* leaves it to a waiter */
#ifndef COUNT_AS_ARMED
                 knownarmed = 0;
#endif
                 RELEASE_UNARMED()
#endif
              fi; break
           :: else ->
#ifdef NO_MISSED
              break
#else
              atomic { if :: tok == 1 -> tok = 2; break :: tok == 2 -> break :: tok == 0 -> skip fi }
#endif
        fi
     od
  :: e == 2 ->
#ifdef WAKE_FIRST
     WAKEALL();
#endif
     db = 0;
     atomic { dbarmed = 1; if :: db && !dbev -> dbev = 1; edge = 1 :: else fi };
#ifndef WAKE_FIRST
     WAKEALL()
#endif
  :: else
  fi; e = 0
}
proctype Waiter(byte i) {
#ifdef MAPPED_ONLY
  byte ph = 1, k = 1,
#elif defined(STREAM_ONLY)
  byte ph = 0, k = 1,
#else
#ifdef ONE_EACH
  byte ph = i, k = 1,
#else
  byte ph = i, k = 0,
#endif
#endif
  m = 2, e = 0, fd = 0; bool got, w, c;
#ifdef ONLY_BG_WAKES
  w = 0;
#else
  w = 1;
#endif
again:
  if :: COND(i,ph) -> goto fin :: else fi;
  TRY();
  if
  :: got ->
     if :: knownarmed -> knownarmed = 0; DISARM() :: else fi;
     do
     :: READ1(); c = COND(i,ph);
        if
        :: c -> c = 0;
#ifdef ARM_ALWAYS
           RELEASE(ARMDONE);
#else
           if :: nsl == 0 -> RELEASE_UNARMED(); PASS() :: else -> RELEASE(ARMDONE) fi;
#endif
           got = 0; goto fin
        :: else -> skip
        fi
     :: RELEASE(true); got = 0; break       /* budget spent */
     od
  :: else ->
     if
     :: skip                             /* may ask the epoll, timeout 0 */
     :: TAKE();
#ifdef THIEF_LAZY
        e = 0
#else
        SERVE()
#endif
     fi; got = 0
  fi;
#ifdef PLAIN_SLEEP
  c = COND(i,ph);
  atomic { slp[i] = 1; nsl++ };
#else
  slp[i] = 1;
#ifdef BOOL_SLEEP
  nsl = 1;
#else
#ifdef ARM_EARLY
  ARM_ALL();
#endif
  nsl++;
#endif
#ifndef ARM_EARLY
  ARM_ALL();
#endif
  c = COND(i,ph);
#endif
  if :: c -> skip :: else -> sem[i]; sem[i] = 0 fi;
#ifdef BOOL_SLEEP
  nsl = 0;
#else
  nsl--;
#endif
  slp[i] = 0; c = 0;
  goto again;
fin:
  k++;
  if :: k < 2 -> ph = 1 - ph; goto again :: else fi;
  ndone++
}
proctype Bg() {
  byte m = 2, e = 0, fd = 0; bool got, w = 1;
end_bg:
  do
  :: atomic { edge -> edge = 0 };
     do :: TAKE(); if :: e -> SERVE(); got = 0 :: else -> break fi od
  od
}
proctype Watchdog() {
  byte m = 2, fd = 0; bool got, w = 1;
end_watchdog:
  do
  :: atomic { timer -> timer = 0; got = list; list = 0 };  /* its event is served */
     if :: got -> ARMIT() :: else fi; got = 0
  od
}
proctype Repl() {
  byte m = 2, fd = 0; bool w = 1;
  atomic { tok == 0 -> tok = 1; fd = gen; nread++; assert(nread == 1) };
  atomic { open[fd] = 0; armed = 0; ev = 0 };
  atomic { gen = 1; open[1] = 1; fd = 1 };
  RELEASE(true)
}
inline SND(b) { atomic { sock = sock | b; if :: armed && !ev -> ev = 1; edge = 1 :: else fi } }
proctype Stream() { if :: SND(1); SND(2) :: SND(2); SND(1) fi }
inline RING() { atomic { db = 1; if :: dbarmed && !dbev -> dbev = 1; edge = 1 :: else fi } }
proctype Mapped() {
  byte n, j, k;
#ifdef ONE_EACH
  j = 1; k = 1;
#else
  if :: j = 0 :: j = 1 fi;
#endif
  do :: k < 2 ->
#ifdef PLAIN
    n = nsl; mword[j] = 1;
#else
    mword[j] = 1; n = nsl;
#endif
    if :: n -> RING() :: else fi;
    n = 0; j = 1 - j; k++
  :: else -> break od
}
init { atomic { open[0] = 1; run Waiter(0); run Waiter(1); run Bg();
#ifndef NO_WATCHDOG
  run Watchdog();
#endif
#ifndef MAPPED_ONLY
  run Stream();
#endif
  
#ifndef STREAM_ONLY
  run Mapped();
#endif
#ifndef NOREPL
  run Repl()
#endif
} }
#ifdef LIVE
ltl live { <> (ndone == 2) }
#endif
