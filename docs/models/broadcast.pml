/* broadcast.pml - a log of package broadcast with one reader, as broadcast/writer.go and broadcast/reader.go have it.
 * Models: a ring of S entries of two words each. The writer W appends N entries, and then closes the log. The positions first
 * and tail have two halves; W stores both of one at once, and the reader R gets them one after the other. The low half carries
 * over on the way. W moves first, writes the entry, stores tail, and rings R if that has requested it, with the entry or
 * without. If the link is busy the goroutine L rings later. R gets tail, copies up to two entries, and then gets first. If there
 * is nothing, it requests to be rung, looks again, and sleeps.
 * Checked: each entry that R takes is whole, and the one of its position; R skips only what was overwritten; R does not sleep
 * for ever, and finds the end only when it has taken all that was not overwritten.
 * Left out: processes that die, entries of several sizes, and the order in which processors see stores.
 * Flags that break it:
 *   -DNO_FIRST      R does not get first behind a copy
 *   -DFIRST_LATE    W moves first when it has overwritten an entry
 *   -DTAIL_EARLY    W stores tail before the entry
 *   -DLOW_FIRST     R gets the low half of tail first
 *   -DHIGH_FIRST    R gets the high half of first first
 *   -DNO_EXACT      R does not get a first again that is beyond what it has copied
 *   -DKEEP_ALL      R keeps all of a copy after an overrun
 *   -DEND_ONCE      R does not get the tail of a closed log again
 *   -DNO_LOOK       R does not look again when it has made its request
 *   -DRING_EARLY    W looks for a request before it stores tail
 *   -DNO_LATER_LOOK L does not look for a newer request
 *   -DPUSH_BLIND    R does not compare the position of an entry that was pushed
 * Run: spin -a [flags] broadcast.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 4
#endif
#define S 2
#define BASE 4
#define START 2		/* so that first and tail carry over */
#define END (START + N)
#define NONE 255

byte first = START, tail = START;
bool closed;			/* with the low half of tail */
byte a[S], b[S];		/* the words of the entries: their positions */
byte armed, answered;		/* in W's memory: R's last request, and the last one that was answered */
byte bell, push = NONE;		/* in R's memory: the request that it was rung for, and the entry with that */
bool busy, later;

/* ring rings R if that waits. e is the entry. */
inline ring(e) {
#ifndef RING_EARLY
	waits = armed != answered;
#endif
	if
	:: atomic { waits && !busy -> busy = true };
		request = armed;
		if
		:: request == answered -> busy = false
		:: else -> answered = request;
			if
			:: atomic { true -> push = e; bell = request }; busy = false
			:: later = true		/* the link is busy */
			fi
		fi
	:: else
	fi }

inline move() {
	if
	:: tail + 1 - first > S -> first++
	:: else
	fi }

inline look_early() {
#ifdef RING_EARLY
	waits = armed != answered
#else
	skip
#endif
}

proctype W() {
	byte request; bool waits;
	do
	:: tail < END ->
#ifndef FIRST_LATE
		move();
#endif
#ifdef TAIL_EARLY
		tail++;
		a[(tail - 1) % S] = tail - 1;
		b[(tail - 1) % S] = tail - 1;
#else
		a[tail % S] = tail;
		b[tail % S] = tail;
#ifdef FIRST_LATE
		move();
#endif
		look_early();
		tail++;
#endif
		ring(tail - 1)
	:: tail == END -> break
	od;
	look_early();
	closed = true;
	ring(NONE) }

proctype L() {
	byte request;
end:	do
	:: later -> later = false;
again:		atomic { push = NONE; bell = answered };
		busy = false;
#ifndef NO_LATER_LOOK
		if
		:: atomic { armed != answered && !busy -> busy = true };
			request = armed;
			if
			:: request == answered -> busy = false
			:: else -> answered = request; goto again
			fi
		:: else
		fi
#endif
	od }

/* get_tail gets tail into t, and whether the log is closed into over. */
inline get_tail() {
#ifdef LOW_FIRST
	atomic { t = tail % BASE; over = closed };
	t = t + tail / BASE * BASE
#else
	t = tail / BASE * BASE;
	atomic { t = t + tail % BASE; over = closed }
#endif
}

inline get_first() {
#ifdef HIGH_FIRST
	f = first / BASE * BASE;
	f = f + first % BASE
#else
	f = first % BASE;
	f = f + first / BASE * BASE
#endif
}

proctype R() {
	byte pos = START, t, f, h, k, n, seen, ca[2], cb[2];
	bool over;
next:	seen = bell;
	if
#ifdef PUSH_BLIND
	:: seen == armed && push != NONE ->
#else
	:: seen == armed && push == pos ->
#endif
		assert(push == pos);
		pos++;
		goto next
	:: else
	fi;
look:	get_tail();
	if
	:: t <= pos && !over ->
		if
		:: seen == armed -> armed++;
#ifdef NO_LOOK
			goto sleep
#else
			goto next
#endif
		:: else -> goto sleep
		fi
	:: t <= pos && over ->
#ifdef END_ONCE
		goto ended
#else
		get_tail();	/* it does not change any more */
		if
		:: t <= pos -> goto ended
		:: else
		fi
#endif
	:: t > pos
	fi;
	n = (t - pos > 1 -> 2 : 1);
	k = 0;
	do
	:: k < n -> ca[k] = a[(pos + k) % S]; cb[k] = b[(pos + k) % S]; k++
	:: else -> break
	od;
	k = 0;
#ifndef NO_FIRST
	get_first();
#ifndef NO_EXACT
	if
	:: f > pos ->
		do
		:: h = first / BASE; f = first % BASE;
			if
			:: h == first / BASE -> f = f + h * BASE; break
			:: else
			fi
		od
	:: else
	fi;
#endif
	if
	:: f > pos ->
		assert(f <= first);
#ifndef KEEP_ALL
		k = f - pos;
#endif
		pos = f
	:: else
	fi;
#endif
	do
	:: k < n -> assert(ca[k] == pos && cb[k] == pos); pos++; k++
	:: else -> break
	od;
	t = 0; f = 0; h = 0; k = 0; n = 0; ca[0] = 0; ca[1] = 0; cb[0] = 0; cb[1] = 0;
	goto next;
sleep:	t = 0;
	bell != seen;
	goto next;
ended:	assert(pos == END) }

init { atomic { run W(); run L(); run R() } }
