/* names.pml - one name of the cluster, its three directory nodes, and two nodes with a process each that claims it (internal/daemon/
 * names, and names/directory/claim.go, serve.go).
 * Models: a node claims the name in its own table, and then at two of the three directory nodes, asked in their order. A call may be
 * given up, and its message arrives later. With two it has the name, and tells the third in the background; else it ends
 * the claim and withdraws. It may unpublish the name and publish the same export again. Whatever a node says has an order, which it
 * takes with the lock of its own table; withdrawals are told in the background and overtake other messages. A directory node
 * registers one owner. Before it registers another one it asks the owner's node, and keeps what that does not deny. It may be
 * started anew with nothing: then it registers no claim until each node has listed what its process has, and nothing was in the
 * way of that: while what a node has listed is refused, it is asked again. A node's daemon may be
 * started anew: a claim ends untold, a name that is held stays.
 * Checked: never do two processes have the name. When nothing more happens, the name that a process has is registered with two
 * directory nodes at least.
 * Left out: sets, look-ups, other lists of nodes, and the journal (a directory node that reads it is one that was not started anew).
 * Few states: only a directory node's own process reads and writes what is registered with it, so what it does with one message is one
 * step, in which it asks one other node. A message is sent in the step that it follows from, because it may be taken at any later one,
 * and a channel is sorted, because messages of two nodes or of two kinds are in no order.
 * Flags that break it:
 *   -DONE          one of the three is enough
 *   -DLATE_ORDER   a withdrawal takes its order when it is sent
 *   -DNO_ORDER     a withdrawal ends a registration of any order
 *   -DNO_HEAR      a directory node that was started anew answers claims at once
 *   -DNO_CLAIMING  a node denies a claim that is under way
 *   -DDOWN_DENIES  a node that does not answer counts as one that denies
 *   -DLIST_HELD    a node lists what its process has, and not what it claims
 *   -DFIRST_LISTED a directory node has heard from a node, also if a claim that another one has listed was in the way
 *   -DTAKEN_HEARD  a directory node has heard from a node, also if one that has the name was in the way of its claim
 * Run: spin -a [flags] names.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef CLAIMS
#define CLAIMS 1	/* of the first node; the second one claims once */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 0
#endif
#ifndef STARTS
#define STARTS 1	/* of directory nodes, with nothing */
#endif
#ifndef KILLS
#define KILLS 0		/* of a node's daemon */
#endif
#define N 2
#define D 3
#define NOBODY 7
#ifdef ONE
#define QUORUM 1
#else
#define QUORUM 2
#endif

mtype = { CLAIM, REGISTER, WITHDRAW, YES, NO, NOTHING, CLAIMING, HELD }
chan to[D] = [10] of { mtype, byte, byte };	/* to a directory node: from a node, the order */
chan answer[N] = [4] of { mtype, byte };	/* to a node: the order of the claim */
#ifdef LATE_ORDER
chan ended[N] = [4] of { bool };		/* withdrawals to be told */
#endif
mtype has[N] = NOTHING;		/* a node's own table */
byte order[N];			/* the last that a node has given */
bool down[N];			/* a node's daemon does not answer */
byte owner[D] = NOBODY, at[D];	/* what is registered, with its order */
bool heard[D * N] = true;
byte give_ups = GIVE_UPS, starts = STARTS, kills = KILLS;

#ifdef DOWN_DENIES
#define denies_down true
#else
#define denies_down false
#endif
#ifdef NO_CLAIMING
#define denies_claim true
#else
#define denies_claim false
#endif

/* denies has a node say whether its process does not have the name. */
#define denies(n) ((down[n] && denies_down) || (!down[n] && has[n] == NOTHING) || (!down[n] && has[n] == CLAIMING && denies_claim))

#ifdef NO_ORDER
#define newer(d, o) false
#else
#define newer(d, o) (at[d] > o)
#endif

/* refused_unclear says whether a listed claim that is refused leaves a directory node unsure: it may have consented to that claim
 * before it forgot. Its node is then heard again. */
#ifdef TAKEN_HEARD
#define refused_unclear(d) (down[owner[d]] || has[owner[d]] != HELD)
#else
#define refused_unclear(d) true
#endif

/* withdraw ends the registration of node n, unless it is newer than order o. */
inline withdraw(d, n, o) {
	if
	:: owner[d] == n && !newer(d, o) -> owner[d] = NOBODY; at[d] = 0
	:: else
	fi
}

/* register has a directory node register node n by order o; ok reports whether it did, and unclear whether what is in the way leaves
 * open which of the two is to be registered. Within an atomic step. */
inline register(d, n, o) {
	if
	:: owner[d] != NOBODY && owner[d] != n && denies(owner[d]) -> owner[d] = NOBODY; at[d] = 0
	:: else
	fi;
	if
	:: owner[d] == NOBODY || owner[d] == n ->
		if
		:: owner[d] == NOBODY || at[d] < o -> at[d] = o
		:: else
		fi;
		owner[d] = n; ok = true; unclear = false
	:: else -> ok = false; unclear = refused_unclear(d)
	fi
}

#ifdef NO_HEAR
#define serves(d) true
#else
#define serves(d) (heard[d * N] && heard[d * N + 1])
#endif
#ifdef FIRST_LISTED
#define again false
#else
#define again unclear
#endif
#ifdef LIST_HELD
#define lists(n) (has[n] == HELD)
#else
#define lists(n) (has[n] != NOTHING)
#endif

/* hear is the answer of a node, and in a later step its registration. A node that is asked again and again gives no new order: the
 * last one is as good, because that of the end of the name is greater. */
inline hear(n) {
	atomic { !heard[d * N + n] && !down[n] -> o = order[n]; ok = lists(n) };
	atomic {
		if
		:: ok -> register(d, n, o)
		:: else
		fi;
		heard[d * N + n] = !again; o = 0; ok = false; unclear = false
	}
}

/* take is a directory node's step with each kind of message of node n. */
inline take_claim(n) {
	atomic {
		to[d] ?? CLAIM, eval(n), o ->
		if
		:: serves(d) -> register(d, n, o)
		:: else -> ok = false
		fi;
		if
		:: ok -> answer[n] ! YES, o
		:: else -> answer[n] ! NO, o
		fi;
		o = 0; ok = false; unclear = false
	}
}

inline take_register(n) {
	atomic {
		to[d] ?? REGISTER, eval(n), o -> register(d, n, o);
		if
		:: !ok && has[n] == HELD -> to[d] !! REGISTER, n, o	/* told again */
		:: else
		fi;
		o = 0; ok = false; unclear = false
	}
}

proctype directory(byte d) {
	byte o;
	bool ok, unclear;
end:
	do
	:: take_claim(0)
	:: take_claim(1)
	:: take_register(0)
	:: take_register(1)
	:: atomic { to[d] ?? WITHDRAW, 0, o -> withdraw(d, 0, o); o = 0 }
	:: atomic { to[d] ?? WITHDRAW, 1, o -> withdraw(d, 1, o); o = 0 }
	:: hear(0)
	:: hear(1)
	:: atomic { starts > 0 -> starts--; owner[d] = NOBODY; at[d] = 0; heard[d * N] = false; heard[d * N + 1] = false }
	od
}

/* tell has all directory nodes told of a node's withdrawal. */
inline tell(n) {
	order[n]++; to[0] !! WITHDRAW, n, order[n]; to[1] !! WITHDRAW, n, order[n]; to[2] !! WITHDRAW, n, order[n]
}

#ifdef LATE_ORDER
proctype teller(byte n) {
end:
	do
	:: atomic { ended[n] ? _ -> tell(n) }
	od
}
#endif

inline end_name() {
#ifdef LATE_ORDER
	atomic { has[n] = NOTHING; ended[n] ! true }
#else
	atomic { has[n] = NOTHING; tell(n) }
#endif
}

proctype node(byte n) {
	byte o, d, got, claims, a;
	bool asked[D], killed;
	mtype what;
	do
	:: claims < (n == 0 -> CLAIMS : 1) ->
		atomic {
			claims++; has[n] = CLAIMING; order[n]++; o = order[n];
			got = 0; d = 0; asked[0] = false; asked[1] = false; asked[2] = false; killed = false
		};
		do
		:: atomic { d < D && got < QUORUM && !killed -> to[d] !! CLAIM, n, o };
			do
			:: atomic {
				answer[n] ? what, a ->
				if
				:: a == o -> break	/* else that of a call that was given up */
				:: else
				fi
			   }
			:: atomic { give_ups > 0 -> give_ups--; what = NO; break }
			:: atomic { kills > 0 -> kills--; what = NO; killed = true; has[n] = NOTHING; down[n] = true; break }
			od;
			atomic {
				if
				:: what == YES -> got++; asked[d] = true
				:: else
				fi;
				d++; a = 0; what = NO
			}
		:: else -> break
		od;
		if
		:: killed -> down[n] = false
		:: !killed && got < QUORUM -> end_name()
		:: atomic {
			!killed && got >= QUORUM -> has[n] = HELD; assert(has[1 - n] != HELD);
			d = 0;
			do
			:: d < D ->
				if
				:: !asked[d] -> to[d] !! REGISTER, n, o
				:: else
				fi;
				d++
			:: else -> break
			od
		   };
			if
			:: end_name()		/* unpublish */
			:: break
			:: atomic { kills > 0 -> kills--; down[n] = true }; down[n] = false; break
			fi
		fi
	:: else -> break
	od
}

#define registered(n) ((owner[0] == n) + (owner[1] == n) + (owner[2] == n))

init {
	atomic {
		run directory(0); run directory(1); run directory(2);
#ifdef LATE_ORDER
		run teller(0); run teller(1);
#endif
		run node(0); run node(1)
	};
	timeout;
	assert(has[0] != HELD || registered(0) >= QUORUM);
	assert(has[1] != HELD || registered(1) >= QUORUM)
}
