/* broadcast.pml - a log of package broadcast with one reader, as broadcast/writer.go and broadcast/reader.go have it.
 * Models: a ring of S entries of two words each. The writer W appends N entries, and then closes the log. The positions first
 * and tail have two halves; W stores both of one at once, and the reader R gets them one after the other. The low half carries
 * over on the way. W moves first, writes the entry, stores tail, and rings R with the entry if that has requested it. If the
 * link is busy, LATES times at most, the goroutine L rings later, without the entry. R gets tail, copies up to two entries, and
 * then gets first. If there is nothing, R looks again. With -DWAIT it requests to be rung, looks again, and sleeps; an entry and
 * a copy are one step each then.
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
 *   -DNO_LOOK        (WAIT) R does not look again when it has made its request
 *   -DRING_EARLY     (WAIT) W looks for a request before it stores tail
 *   -DNO_LATER_LOOK  (WAIT) L does not look for a newer request
 *   -DPUSH_BLIND     (WAIT) R does not compare the position of an entry that was pushed
 * Run: spin -a [flags] broadcast.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 4
#endif
#ifndef LATES
#define LATES 1
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
byte lates = LATES;

/* With WAIT what an entry's and a copy's steps are is left out. */
#ifdef WAIT
#define BEGIN atomic {
#define DONE };
#else
#define BEGIN
#define DONE
#endif

/* ring rings R if that waits. e is the entry. */
inline ring(e) {
#if defined(WAIT) && !defined(RING_EARLY)
	waits = armed != answered;
#endif
#ifdef WAIT
	if
	:: atomic { waits && !busy -> busy = true; waits = false };
		atomic { request = armed;
			if
			:: request == answered -> busy = false; request = 0; goto rung
			:: else -> answered = request
			fi };
		if
		:: atomic { true -> push = e; bell = request; request = 0 }; busy = false
		:: atomic { lates -> lates--; later = true; request = 0 }	/* the link is busy */
		fi
	:: atomic { else -> waits = false }
	fi
#else
	waits = false
#endif
}

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

inline append() {
#ifndef FIRST_LATE
	atomic { tail < END -> move() };
#endif
#ifdef TAIL_EARLY
	tail++;
	a[(tail - 1) % S] = tail - 1;
	b[(tail - 1) % S] = tail - 1;
#else
	BEGIN a[tail % S] = tail;
	b[tail % S] = tail; DONE
#ifdef FIRST_LATE
	atomic { tail < END -> move() };
#endif
	look_early();
	tail++
#endif
}

proctype W() {
	byte request; bool waits;
next:	if
	:: tail < END -> append(); ring(tail - 1)
	:: tail == END && !closed -> look_early(); closed = true; ring(NONE)
	fi;
rung:	if
	:: !closed -> goto next
	:: else
	fi }

proctype L() {
	byte request;
end:	do
	:: later -> later = false;
again:		atomic { push = NONE; bell = answered };
		busy = false;
#ifndef NO_LATER_LOOK
		if
		:: atomic { armed != answered && !busy -> busy = true };
			atomic { request = armed;
				if
				:: request == answered -> busy = false; request = 0
				:: else -> answered = request; request = 0; goto again
				fi }
		:: else
		fi
#endif
	od }

proctype R() {
	byte pos = START, t, f, h, k, n, seen, ca[2], cb[2];
	bool over, once;
next:	atomic { seen = bell;
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
		fi };
look:
#ifdef LOW_FIRST
	atomic { t = tail % BASE; over = closed };
	atomic { t = t + tail / BASE * BASE;
#else
	t = tail / BASE * BASE;
	atomic { t = t + tail % BASE; over = closed;
#endif
		if
		:: t > pos -> n = (t - pos > 1 -> 2 : 1); over = false; once = false
#ifdef END_ONCE
		:: t <= pos && over -> goto ended
#else
		:: t <= pos && over && !once -> once = true; over = false; t = 0; goto look	/* it does not change any more */
		:: t <= pos && over && once -> goto ended
#endif
		:: t <= pos && !over -> t = 0;
#ifdef WAIT
			if
			:: seen == armed -> goto arm
			:: else -> goto sleep
			fi
#else
			goto next
#endif
		fi };
	BEGIN ca[0] = a[pos % S];
	cb[0] = b[pos % S];
	if
	:: n == 2 -> ca[1] = a[(pos + 1) % S]; cb[1] = b[(pos + 1) % S]
	:: else
	fi;
#ifndef NO_FIRST
#ifdef HIGH_FIRST
	f = first / BASE * BASE;
	f = f + first % BASE;
#else
	f = first % BASE;
	f = f + first / BASE * BASE;
#endif
#ifndef NO_EXACT
	do
	:: f > pos -> h = first / BASE; f = first % BASE;
		atomic {
			if
			:: h == first / BASE -> f = f + h * BASE; h = 0; break
			:: else -> f = pos + 1; h = 0
			fi }
	:: f <= pos -> break
	od;
#endif
#endif
	DONE atomic {
#ifndef NO_FIRST
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
		t = 0; f = 0; k = 0; n = 0; ca[0] = 0; ca[1] = 0; cb[0] = 0; cb[1] = 0;
		goto next };
arm:	armed++;
#ifdef NO_LOOK
	goto sleep;
#else
	goto next;
#endif
sleep:	atomic { bell != seen; goto next };
ended:	assert(pos == END) }

init { atomic { run W(); run L(); run R() } }
