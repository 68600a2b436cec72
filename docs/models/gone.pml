/* gone.pml - the event that tells that another process is gone, with a link each way (link_end.go, link_exporter.go,
 * link_importer.go, link_handshake.go; internal/link/conn_stream.go).
 * Models: process P and process Q. P imports from Q by link A, Q imports from P by link B and sends on it. Q is killed at any
 * time; the network ends A for P alone, while Q lives. Each end of a link is seen at any time after it, that of B behind the messages that are
 * under way on it. After the first end P says Bye on the other link, receives what comes, and at some time waits no longer. Q,
 * while it lives, ends its other link too. B begins in two steps: P answers Q's hello, after which Q may send; then P
 * receives. Q, while it lives, makes another B when its links have ended, which belongs to the next association.
 * N messages Q sends; LINKS how often B is made.
 * Checked: nothing that was sent on a link is delivered after the event of its association; the event is told once for each
 * association; when nothing more happens, an association of which a link has ended was told of, and no link of it is left.
 * Left out: notifications (they run before the event: notes.pml), resuming (resume.pml), links of one importer that replace one another.
 * Flags that break it:
 *   -DFIRST       the first end tells
 *   -DEACH        each end tells
 *   -DNO_FENCE    a link that was answered before the event begins after it
 *   -DANSWER_LAST P looks which association it is when the link begins, not when it answers
 *   -DNO_DRAIN    P waits for the other link's own end
 * Run: spin -a [flags] gone.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 3
#endif
#ifndef LINKS
#define LINKS 2
#endif
mtype = {UP, ENDING};
bool lives = true, kill, cut;           /* what may still happen */
byte cur;                               /* the association that is; those before are over */
mtype state = UP;
byte told[4];
bool aP = true, aQ = true;              /* link A: its ends */
bool bP, bQ;                            /* link B */
bool dialled, answered;                 /* B is being made */
byte own, since;                        /* the association that B belongs to, and that of the answer */
byte way, sent, made;
bool bye;                               /* P has said it on what is left */

#ifdef FIRST
#define TELL_LAST skip
#define TELL_FIRST told[cur]++
#else
#define TELL_LAST told[cur]++
#define TELL_FIRST skip
#endif
inline settle() {
	if
	:: state == ENDING && !aP && !bP -> TELL_LAST; assert(told[cur] == 1); cur++; state = UP
	:: else
	fi }

inline ended() {
#ifdef EACH
	told[cur]++;
#endif
	if :: state == UP -> state = ENDING; TELL_FIRST :: else fi;
	settle() }

active proctype Q() {
end: do
	:: atomic { lives && bQ && sent < N -> sent++; way++ }
	:: atomic { lives && kill -> kill = false; lives = false; aQ = false; bQ = false }
	:: atomic { lives && bye && bQ -> bQ = false; aQ = false }
	:: atomic { lives && bye && aQ -> aQ = false; bQ = false }
	:: atomic { lives && !aQ && bQ && !dialled -> bQ = false }
	:: atomic { lives && !dialled && !bQ && made < LINKS && (made == 0 || !aQ) && !bP && way == 0 -> made++; dialled = true; answered = false }
	od }

active proctype P() {
end: do
	:: atomic { aP && !aQ -> aP = false; ended() }
	:: atomic { aP && cut -> cut = false; aP = false; ended() }
	:: atomic { bP && way -> way--; assert(told[since] == 0) }
	:: atomic { bP && !bQ && way == 0 -> bP = false; ended() }
#ifndef NO_DRAIN
	:: atomic { state == ENDING && (aP || bP) && !bye -> bye = true }
	:: atomic { state == ENDING && bye && aP -> aP = false; aQ = false; settle() }	/* it waits no longer */
	:: atomic { state == ENDING && bye && bP -> bP = false; bQ = false; way = 0; settle() }
#endif
	:: atomic { dialled && !answered && state == UP -> answered = true; own = cur; since = cur; bye = false; if :: lives -> bQ = true :: else fi }
	:: atomic { dialled && answered -> dialled = false;
#ifdef ANSWER_LAST
		own = cur;
#endif
		if
#ifdef NO_FENCE
		:: true -> bP = true
#else
		:: own == cur && state == UP -> bP = true
		:: own != cur || state != UP -> bQ = false; way = 0
#endif
		fi }
	od }

init { if :: kill = true :: skip fi; if :: cut = true :: skip fi; timeout -> atomic {
	assert(state == UP);
	assert(aP || told[0] == 1);
	assert(!bP || bQ && lives) } }
