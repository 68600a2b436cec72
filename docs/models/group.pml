/* group.pml - the barriers of a group of which a member dies or ends (group/barrier.go, group/partner.go).
 * Models: N members, 3 or 4, that call S barriers each. Each has two rounds and all others as partners. A member may be killed
 * at any step, and each may end in order after its last call, without Leave. What a member has sent arrives later, in any
 * order, also when it has ended. A partner sees its end when all of it has arrived. It knows from the words of the rounds in
 * which it hears of that member which barrier that has not entered. It sends this number to its partners one by one, and
 * they to theirs; only lower numbers replace others. A barrier that fails returns when it has sent the number to all.
 * Checked: no barrier returns before all members have entered it; one fails only if a member that has ended lacks words of it;
 * when nothing more happens, no member that lives waits.
 * Left out: links (all are made), values, Leave, Gone, messages that are lost with their sender, partners that take nothing.
 * Flags:
 *   -DDIRECT    words arrive at once, as on one node
 * Flags that break it:
 *   -DNO_FLOOD  failures are not sent to partners
 *   -DNO_SEQ    a failure has no number: it fails each barrier
 *   -DEARLY     an end is seen before the last words have arrived
 * With 4 members the search ends only where it finds an error: 33 million states, in 4 GB, had none.
 * Run: spin -a [flags] group.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 3
#endif
#ifndef S
#define S 2
#endif
#define R 2
#define IN(i, r) ((i + N - (1 << (r))) % N)	/* the member whose word i awaits in round r */

typedef member {
	byte sent[R];		/* its words, by round */
	byte slot[R];		/* those that have arrived here */
	byte entered, over;	/* barriers */
	byte failed;		/* the least barrier that is known to fail; 0: none */
	byte said[4], heard[4];	/* failures: sent to a partner, and arrived from it */
	bool seen[4];		/* ends of partners */
	bool returned;		/* an error */
	bool ends, dead		/* ends: it ends in order */
}
member m[4];
bool kill;			/* what may still happen */

#ifdef DIRECT
#define SLOT(i, r) m[IN(i, r)].sent[r]
#else
#define SLOT(i, r) m[i].slot[r]
#endif
#define ARRIVED(i, j, r) (IN(i, r) != j || SLOT(i, r) == m[j].sent[r])
#ifdef EARLY
#define ALL_ARRIVED(i, j) true
#else
#define ALL_ARRIVED(i, j) (ARRIVED(i, j, 0) && ARRIVED(i, j, 1) && m[i].heard[j] == m[j].said[i])
#endif
#ifdef NO_FLOOD
#define SENT_TO(j) true
#else
#define SENT_TO(j) (j >= N || j == i || m[i].said[j] == m[i].failed)
#endif
#ifdef NO_SEQ
#define NEXT(s) 1
#else
#define NEXT(s) ((s) + 1)
#endif
#define LACKS(j) (j < N && m[j].dead && m[j].sent[R - 1] < m[i].entered)
#define WAITS (!m[i].dead && !m[i].returned && m[i].entered > m[i].over)

inline note(q) {
	if
	:: m[i].failed == 0 || q < m[i].failed -> m[i].failed = q
	:: else
	fi }

proctype Member(byte i) {
	byte r, k;
end: do
	:: atomic { !m[i].dead && !m[i].returned && m[i].entered == m[i].over && m[i].over < S -> m[i].entered++; r = 0 }
	:: atomic { WAITS && m[i].sent[r] < m[i].entered -> m[i].sent[r] = m[i].entered }
	:: atomic { WAITS && m[i].sent[r] == m[i].entered && SLOT(i, r) >= m[i].entered ->
		r++;
		if
		:: r == R -> r = 0; m[i].over = m[i].entered;
			k = 0;
			do
			:: k < N -> assert(m[k].entered >= m[i].over); k++
			:: else -> break
			od;
			k = 0
		:: else
		fi }
	:: atomic { WAITS && m[i].failed && m[i].failed <= m[i].entered && SENT_TO(0) && SENT_TO(1) && SENT_TO(2) && SENT_TO(3) ->
		assert(LACKS(0) || LACKS(1) || LACKS(2) || LACKS(3));
		m[i].returned = true }
	:: atomic { m[i].ends && !m[i].dead && (m[i].returned || m[i].over == S) -> m[i].dead = true }
	:: atomic { kill && !m[i].dead -> kill = false; m[i].dead = true }
	od }

/* Link is what member i does for partner j. */
proctype Link(byte i; byte j) {
	byte r;
end: do
#ifndef NO_FLOOD
	:: atomic { !m[i].dead && m[i].said[j] != m[i].failed -> m[i].said[j] = m[i].failed }
#endif
	:: atomic { !m[i].dead && m[i].heard[j] != m[j].said[i] -> m[i].heard[j] = m[j].said[i]; note(m[i].heard[j]) }
#ifndef DIRECT
	:: atomic { !m[i].dead && !ARRIVED(i, j, 0) -> m[i].slot[0] = m[j].sent[0] }
	:: atomic { !m[i].dead && !ARRIVED(i, j, 1) -> m[i].slot[1] = m[j].sent[1] }
#endif
	:: atomic { !m[i].dead && m[j].dead && !m[i].seen[j] && ALL_ARRIVED(i, j) -> m[i].seen[j] = true;
		r = 0;
		do
		:: r < R && IN(i, r) == j -> note(NEXT(SLOT(i, r))); r++
		:: r < R && IN(i, r) != j -> r++
		:: r == R -> break
		od;
		r = 0 }
	od }

init {
	byte a, b;
	atomic {
		if :: kill = true :: skip fi;
		do
		:: a < N ->
			if :: m[a].ends = true :: skip fi;
			run Member(a);
			b = 0;
			do
			:: b < N && b != a -> run Link(a, b); b++
			:: b < N && b == a -> b++
			:: b == N -> break
			od;
			a++
		:: a == N -> break
		od;
		a = 0; b = 0 }
	timeout -> atomic {
		do
		:: a < N -> assert(m[a].dead || m[a].returned || m[a].over == S); a++
		:: a == N -> break
		od } }
