/* names.pml - one name of the cluster, its three directory nodes, and two nodes with a process each that claims it (internal/daemon/
 * names, and names/directory/claim.go, serve.go).
 * Models: a node claims the name in its own table, and then at two of the three directory nodes, asked in their order. A call may be
 * given up, and its message arrives later. With two it has the name, and tells the third in the background; else it ends
 * the claim and withdraws. It may unpublish the name and publish the same export again. Whatever a node says has an order, which it
 * takes with the lock of its own table; withdrawals are told in the background and overtake other messages. A directory node
 * registers one owner. Before it registers another one it asks the owner's node, and keeps what that does not deny. It may be
 * started anew with nothing: then it registers no claim until each node has listed what its process has, and no claim was in the
 * way of that. A node's daemon may be
 * started anew: a claim ends untold, a name that is held stays.
 * Checked: never do two processes have the name. When nothing more happens, the name that a process has is registered with two
 * directory nodes at least.
 * Left out: sets, look-ups, other lists of nodes, and the journal (a directory node that reads it is one that was not started anew).
 * Flags that break it:
 *   -DONE          one of the three is enough
 *   -DLATE_ORDER   a withdrawal takes its order when it is sent
 *   -DNO_ORDER     a withdrawal ends a registration of any order
 *   -DNO_HEAR      a directory node that was started anew answers claims at once
 *   -DNO_CLAIMING  a node denies a claim that is under way
 *   -DDOWN_DENIES  a node that does not answer counts as one that denies
 *   -DLIST_HELD    a node lists what its process has, and not what it claims
 *   -DFIRST_LISTED a directory node has heard from a node, also if a claim that another one has listed was in the way
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
chan to[D] = [8] of { mtype, byte, byte };	/* to a directory node: from a node, the order */
chan answer[N] = [4] of { mtype, byte };	/* to a node: the order of the claim */
chan ended[N] = [4] of { byte };		/* withdrawals to be told */
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

/* withdraw ends the registration of node n, unless it is newer than order o. */
inline withdraw(d, n, o) {
	if
	:: owner[d] == n && !newer(d, o) -> owner[d] = NOBODY; at[d] = 0
	:: else
	fi
}

/* register has a directory node register node n by order o; ok reports whether it did, and unclear whether it did not because of
 * one that does not have the name yet, or does not answer. */
inline register(d, n, o) {
	do
	:: atomic {
		owner[d] == NOBODY || owner[d] == n ->
		if
		:: owner[d] == NOBODY || at[d] < o -> at[d] = o
		:: else
		fi;
		owner[d] = n; ok = true; unclear = false;
		break
	   }
	:: atomic { owner[d] != NOBODY && owner[d] != n -> other = owner[d]; other_at = at[d] };
		if
		:: atomic { !denies(other) -> ok = false; unclear = (down[other] || has[other] != HELD); break }
		:: atomic { denies(other) -> skip };
			atomic { withdraw(d, other, other_at) }
		fi
	od
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

/* hear is the answer of a node, and then its registration. */
inline hear(n) {
	atomic { !heard[d * N + n] && !down[n] -> order[n]++; o = order[n]; ok = lists(n) };
	if
	:: ok -> register(d, n, o)
	:: else
	fi;
	atomic { heard[d * N + n] = !again; o = 0; ok = false; unclear = false; other = 0; other_at = 0 }
}

proctype directory(byte d) {
	byte n, o, other, other_at;
	bool ok, unclear;
end:
	do
	:: to[d] ?? CLAIM, n, o ->
		if
		:: serves(d) -> register(d, n, o)
		:: else -> ok = false
		fi;
		atomic {
			if
			:: ok -> answer[n] ! YES, o
			:: else -> answer[n] ! NO, o
			fi;
			n = 0; o = 0; ok = false; unclear = false; other = 0; other_at = 0
		}
	:: to[d] ?? REGISTER, n, o -> register(d, n, o);
		atomic {
			if
			:: !ok && has[n] == HELD -> to[d] ! REGISTER, n, o	/* told again */
			:: else
			fi;
			n = 0; o = 0; ok = false; unclear = false; other = 0; other_at = 0
		}
	:: atomic { to[d] ?? WITHDRAW, n, o -> withdraw(d, n, o); n = 0; o = 0 }
	:: hear(0)
	:: hear(1)
	:: atomic { starts > 0 -> starts--; owner[d] = NOBODY; at[d] = 0; heard[d * N] = false; heard[d * N + 1] = false }
	od
}

/* teller tells all directory nodes of a node's withdrawals. */
proctype teller(byte n) {
	byte o, i;
end:
	do
	:: ended[n] ? o;
#ifdef LATE_ORDER
		atomic { order[n]++; o = order[n] };
#endif
		to[0] ! WITHDRAW, n, o; to[1] ! WITHDRAW, n, o;
		atomic { to[2] ! WITHDRAW, n, o; o = 0 }
	od
}

inline end_name() {
	atomic { has[n] = NOTHING; order[n]++; ended[n] ! order[n] }
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
		:: d < D && got < QUORUM && !killed ->
			to[d] ! CLAIM, n, o;
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
		:: !killed && got >= QUORUM ->
			atomic { has[n] = HELD; assert(has[1 - n] != HELD) };
			d = 0;
			do
			:: d < D ->
				if
				:: !asked[d] -> to[d] ! REGISTER, n, o
				:: else
				fi;
				d++
			:: else -> break
			od;
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
		run teller(0); run teller(1);
		run node(0); run node(1)
	};
	timeout;
	assert(has[0] != HELD || registered(0) >= QUORUM);
	assert(has[1] != HELD || registered(1) >= QUORUM)
}
