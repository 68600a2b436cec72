/* silence.pml - a link between nodes on which nothing comes: how that is noticed, and how the link goes on or ends
 * (internal/link/conn_probe.go, conn_reconnect.go, conn_stream.go, recv_reply.go; linkTerms in link_handshake.go; GiveUpAfter in
 * internal/unix). resume.pml says what is sent again, departed.pml how the daemons tell of an end.
 * Models: an importer I, an exporter E, their kernels, and a network that is cut without a word and may heal. Each process may
 * be stopped and go on, or die, alone (its kernel ends the connection, and its node tells those that ask) or with its machine. I has
 * one operation of U segments, of which at least one a tick passes. Time goes in ticks; S is the silence, L the limit, H the
 * time of a hello, which an attempt may hang. What can be done at once is done in the tick.
 *   The kernel of each side gives up what was not acknowledged for S; what I sends when the network is gone begins that anew.
 *   I's silence detector gives up when I is owed something and nothing came for S, nor went out; only ticks in which I runs count.
 *   I dials, for L from its loss or from the one before after which nothing came; an attempt after that time is the last. E waits L+H+S,
 *   for I may see the loss up to S later than E.
 * Checked: the silence detector takes no peer for silent that answers; a link ends by a limit, or by the other side's,
 * only if network and processes were not well for H before; an operation waits at most 2S+L+H+U after the last change while E
 * does not run or is not reached; E is rid of an importer that is dead; LinkDown is followed by LinkResumed or the end in L+H,
 * of E in L+H+S.
 * Left out: encryption, several operations, silences that differ or have no end, a part of a message as progress other than by
 * segments, Sever, WithResume(0).
 * Flags that break it:
 *   -DNO_DETECTOR    the kernel alone detects silence
 *   -DDETECTOR_SELF  time in which I was stopped counts
 *   -DNO_UNSENT  what goes out is not checked
 *   -DNO_KERNEL  the detector alone detects silence
 *   -DNO_MARGIN  E waits no longer than I
 *   -DHELLO_ONLY E waits L+H: it may end the link before I's limit
 *   -DSAY_LATE   I says LinkResumed when it has let go of its locks: another LinkDown, or the end, may be told before it
 *   -DGET -DNO_PROBE  a get (-DGET) that is acknowledged and not answered is not probed any more
 * Run: spin -a [flags] silence.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#define S 2
#ifndef L
#define L 3
#endif
#ifndef H
#define H 1
#endif
#ifndef U
#define U 3
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef STOPS
#define STOPS 1
#endif
#define MOST (2*S+L+H+U)
#ifdef NO_MARGIN
#define EL L
#elif defined(HELLO_ONLY)
#define EL (L+H)
#else
#define EL (L+H+S)
#endif
mtype = {RUN, STOP, DEAD};
mtype i = RUN, e = RUN;
bool net = true, dark;                  /* dark: a machine has died */
byte cuts = CUTS, stops = STOPS, kills = 1, ops = 1;
byte ic = 2, ec = 2;                    /* 2 a connection, 1 the kernel has ended it, 0 none */
bool iend, eend, istopped, estopped;    /* of the links; ghosts: since the loss */
bool op, acked, chg, moved, late, fresh = true;  /* I: one is owed; acknowledged; heard, or less unsent, in this tick */
byte fly, kern, has, ans;               /* segments on their way, in E's kernel, taken by E; answers on their way */
byte silentfor, ki, ke, il, el;
byte unsaid, down;                      /* I: LinkResumed to be told; LinkDowns without one */
bool edown;
byte good, peer, bad, iwait, ewait, gone;        /* ghosts: for how many ticks */

#define WELL (net && e == RUN && i == RUN)
#define PASSES (net && ic == 2 && ec == 2)
#ifdef NO_PROBE
#define PROBED (op && !acked)
#else
#define PROBED op
#endif
#define TO(x, most) x = (x < most -> x+1 : most)

inline inotice() { ic = 0; fly = 0; kern = 0; ans = 0; silentfor = 0;
  assert(down == 0); down++; if :: fresh || !op -> il = L; fresh = false; late = false :: else -> if :: il == 0 -> il = H; late = true :: else fi fi }
inline iover() { iend = true; op = false; late = false; if :: ic == 2 -> ic = 0; if :: ec == 2 && net -> ec = 0; eend = true :: else fi :: else ic = 0 fi }
inline heal() { good = 0; peer = 0; bad = 0 }

active proctype World() {
end: do
  :: atomic { cuts && net -> cuts--; net = false; heal() }
  :: atomic { !net && !dark -> net = true; heal() }
  :: atomic { stops && e == RUN -> stops--; e = STOP; estopped = true; heal() }
  :: atomic { stops && i == RUN && silentfor < S -> stops--; i = STOP; istopped = true; good = 0; bad = 0 }
  :: atomic { e == STOP -> e = RUN; heal() }
  :: atomic { i == STOP -> i = RUN; good = 0; bad = 0 }
  :: atomic { kills && e != DEAD -> kills = 0; e = DEAD; ec = 0; kern = 0; heal(); if :: dark = true; net = false :: skip fi }
  :: atomic { kills && i != DEAD -> kills = 0; i = DEAD; ic = 0; fly = 0; op = false; heal(); if :: dark = true; net = false :: skip fi }
  od }

active proctype I() {
end: do
  :: atomic { i == RUN && ops && !op && !iend && ic == 2 -> ops--; op = true; acked = false; fly = U; has = 0; fresh = true;
       if :: !net -> ki = 0 :: else fi }
  :: atomic { PASSES && fly > 0 && !moved -> fly--; kern++; moved = true; chg = true }  /* E's kernel has it, and has said so */
  :: atomic { i == RUN && PASSES && ans > 0 -> ans--; chg = true; fresh = true;
#ifdef GET
       if :: !acked -> acked = true :: else -> op = false; has = 0 fi
#else
       op = false; has = 0
#endif
       }
#ifndef NO_KERNEL
  :: atomic { ic == 2 && ki >= S -> ic = 1 }
#endif
  :: atomic { ic == 2 && net && ec != 2 -> ic = 1 }                             /* is reset */
#ifndef NO_DETECTOR
  :: atomic { i == RUN && ic == 2 && PROBED && silentfor >= S -> assert(peer < S); inotice() }
#endif
  :: atomic { i == RUN && ic == 1 -> inotice() }
  :: atomic { i == RUN && unsaid > 0 -> unsaid--;
       assert(down == 1 && ic != 0 && !iend); down-- }
  :: atomic { i == RUN && ic == 0 && !iend && net && e == DEAD -> iover() }     /* its node says so */
  :: atomic { i == RUN && ic == 0 && !iend && net && e == RUN && eend -> assert(istopped || estopped || il == 0); iover() }
  :: atomic { i == RUN && ic == 0 && !iend && net && e == RUN && !eend -> if :: ec -> assert(!edown); edown = true :: else fi;
       assert(edown); edown = false; ec = 2; ke = 0; el = 0; iwait = 0; ewait = 0; ic = 2; ki = 0; silentfor = 0; ans = 0; kern = 0;
#ifdef SAY_LATE
       unsaid++;
#else
       down--;
#endif
       if :: op && has < U -> fly = U-has
          :: op && has == U -> fly = 0; if :: !acked -> fresh = true :: else fi; acked = true;
#ifdef GET
             ans = 0
#else
             op = false; has = 0
#endif
          :: else fi;
       istopped = (i == STOP); estopped = (e == STOP);
       if :: late && op && !fresh -> iover() :: else fi; late = false }
  :: atomic { i == RUN && ic == 0 && !iend && il == 0 -> assert(good < H || late); iover() }
  od }

#ifdef GET
#define ANSWERS (e == RUN && PASSES && op && has == U && fly == 0 && kern == 0 && ans == 0)
#else
#define ANSWERS false
#endif

active proctype E() {
end: do
  :: atomic { e == RUN && kern > 0 && ec == 2 -> kern--; has++; if :: has == U -> ans = 1 :: else fi }
#ifdef GET
  :: atomic { ANSWERS -> ans = 1 }     /* the answer */
#endif
#ifndef NO_KERNEL
  :: atomic { ec == 2 && ke >= S -> ec = 1 }
#endif
  :: atomic { ec == 2 && net && ic != 2 -> ec = 1 }
  :: atomic { e == RUN && ec == 1 -> assert(!edown); edown = true; ec = 0; kern = 0; el = EL }
  :: atomic { e == RUN && ec == 0 && !eend && net && i == DEAD -> eend = true }         /* Departed */
  :: atomic { e == RUN && ec == 0 && !eend && el == 0 -> assert(good < H || iend); eend = true }
  od }

#define BUSY ((ic == 2) != (ec == 2) && net || i == RUN && ic == 1 || e == RUN && ec == 1 || i == RUN && unsaid || \
  PASSES && fly > 0 && !moved || e == RUN && ec == 2 && kern > 0 || i == RUN && PASSES && ans > 0 || \
  ANSWERS || \
  i == RUN && ic == 0 && !iend && (il == 0 || net && e == DEAD || WELL && good+1 >= H) || \
  e == RUN && ec == 0 && !eend && (el == 0 || net && i == DEAD))
#ifdef NO_KERNEL
#define KERNEL false
#else
#define KERNEL (ic == 2 && ki >= S || ec == 2 && ke >= S)
#endif
#ifdef NO_DETECTOR
#define DETECTOR false
#else
#define DETECTOR (i == RUN && ic == 2 && PROBED && silentfor >= S)
#endif
#ifdef NO_UNSENT
#define HEARD (chg && !moved)
#else
#define HEARD chg
#endif
#ifdef DETECTOR_SELF
#define LISTENS (i != DEAD)
#else
#define LISTENS (i == RUN)
#endif

active proctype Time() {
end: do
  :: atomic { !BUSY && !KERNEL && !DETECTOR ->
       if :: ic == 2 && PROBED && !HEARD -> if :: LISTENS -> TO(silentfor, S) :: else fi :: else -> silentfor = 0 fi;
       if :: ic == 2 && !net -> TO(ki, S) :: else -> ki = 0 fi;
       if :: ec == 2 && !net -> TO(ke, S) :: else -> ke = 0 fi;
       if :: il && !iend -> il-- :: else fi;
       if :: el && ec == 0 && !eend -> el-- :: else fi;
       chg = false; moved = false;
       if :: WELL -> TO(good, H) :: else -> good = 0 fi;
       if :: net && e == RUN -> TO(peer, S) :: else -> peer = 0 fi;
       if :: i == RUN && op && !(net && e == RUN) -> bad++ :: i == RUN && !(op && !(net && e == RUN)) -> bad = 0 :: i != RUN fi;
       if :: i == RUN && ic == 0 && !iend -> iwait++ :: i != RUN :: else -> iwait = 0 fi;
       if :: e == RUN && ec == 0 && !eend -> ewait++ :: e != RUN :: else -> ewait = 0 fi;
       if :: i == DEAD && e == RUN && !eend -> gone++ :: else -> gone = 0 fi;
       assert(bad <= MOST); assert(iwait <= L+H); assert(ewait <= EL); assert(gone <= MOST) }
  od }
