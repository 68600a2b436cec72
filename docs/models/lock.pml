/* lock.pml - a mutex in the memory of one process, the host, whose holders may die (lock/host.go, lock/mutex.go).
 * Models: N clients that lock up to LOCKS times each, and one that is false. A client has a word in the host's memory, which no
 * other client can write: 0, or a lease that is idle or held. With a lease it locks and unlocks by one compare-and-swap each.
 * Without one it requests the lock from the host, and awaits the answer or gives up and withdraws: a grant may cross that. While
 * others wait the host recalls the lease: it swaps the word for 0. A holder that finds 0, or was told so by its grant, gives the
 * lock back by a release. What a client does to the host (compare-and-swaps, data, notifications) arrives in its order, later.
 * Its data for a third process arrives at any time. Clients may be killed at any step; PeerGone comes after what they have sent.
 * The false client stores 0, an idle or a held lease in its own word, sends notifications of a request of its own, and dies.
 * Checked: one client has the lock at a time, and no data arrives while another one than its sender has it (but for data of a dead
 * one to a third process: tokens are for that). If a holder was killed the next ones know, until one has repaired what the lock
 * protects. Without a death there is no such mark. When nothing more happens, no client that lives waits.
 * Left out: the host's end, Close, tokens (a word of the false client with a wrong one is as nonsense here), and that notifications
 * run later than they arrive (a client sends one and waits). The letterbox, which any client can write, is no part of the protocol
 * of those that have the lock open.
 * Flags that break it:
 *   -DGONE_EARLY   PeerGone overtakes what the dead client has sent
 *   -DNO_FENCE     a holder unlocks while its data for another process is in flight
 *   -DNO_RECALL    a request waits for a lease, and the host does not recall it
 *   -DPLAIN_RECALL the host recalls by a load and a store
 *   -DKEEP_GRANT   the host ignores the withdrawal of a request that it has granted
 *   -DDROP_DIED    a grant that comes back by a withdrawal loses its mark
 *   -DDROP_IDLE    a lease that is recalled while it is idle loses its mark
 *   -DTAKE_GRANT   a client takes the grant of a request that it has withdrawn
 *   -DANY_RELEASE  the host believes a release of a client that does not have the lock
 *   -DONE_WORD     all clients have one word, which the false client can write
 * Run: spin -a [flags] lock.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 2
#endif
#ifndef LOCKS
#define LOCKS 2
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef LIES
#define LIES 0
#endif
#if LIES
#define M (N + 1)	/* with the false client, the last one */
#else
#define M N
#endif
#define NOBODY 15
#define DIED 1
#define IDLE 2
#define HELD 4

mtype = { CAS, DATA, REQUEST, WITHDRAW, RELEASE }
chan out[M] = [4] of { mtype, byte, byte };	/* to the host: CAS old, new; REQUEST seq; WITHDRAW seq; RELEASE seq, mark */
chan in[M] = [2] of { byte, byte, bool };	/* answers: seq, mark, whether the lease was recalled already */
byte prev[M];			/* what a compare-and-swap has found; 255: not yet */
bool other[M];			/* data for a third process in flight */
bool alive[M], gone[M];
byte inside = NOBODY;		/* the client that has the lock and uses it */
bool dirty, died_once;		/* a holder was killed, and what it left was not repaired; a client has died */
byte locks[M], give_ups, kills, lies = LIES;

/* the host's */
byte word[M];
byte owner = NOBODY, owner_seq, granted_mark, mark;
bool recalled, recalling;	/* recalling: between the load and the store of PLAIN_RECALL */
byte seen;
chan waiting = [M + LIES] of { byte, byte };
byte queued[M];			/* requests of a client in waiting */

#ifdef ONE_WORD
#define WORD(i) word[0]
#else
#define WORD(i) word[i]
#endif

/* taken handles what a recall has found in the owner's word. */
inline taken(v) {
	if
	:: (v & IDLE) && !(v & HELD) ->
#ifdef DROP_IDLE
		mark = 0;
#else
		mark = v & DIED;
#endif
		owner = NOBODY
	:: (v & HELD) && !(v & IDLE) -> recalled = true
	:: else -> mark = DIED; owner = NOBODY	/* nonsense: its lane is closed */
	fi }

/* pump recalls the lease if a request waits, and grants the lock if it can. */
inline pump() {
	if
	:: len(waiting) && owner != NOBODY && !recalled ->
#ifdef NO_RECALL
		skip
#elif defined(PLAIN_RECALL)
		seen = WORD(owner); recalling = true
#else
		seen = WORD(owner); WORD(owner) = 0; taken(seen)
#endif
	:: else
	fi;
	if
	:: len(waiting) && owner == NOBODY ->
		waiting?owner, owner_seq;
		queued[owner]--;
		granted_mark = mark;
		recalled = len(waiting) > 0;
		if
		:: recalled -> WORD(owner) = 0
		:: else -> WORD(owner) = HELD | mark
		fi;
		if
		:: owner == N -> dirty = false	/* it may say that it has repaired */
		:: alive[owner] && owner < N -> in[owner]!owner_seq, mark, recalled
		:: else
		fi
	:: else
	fi;
	if
	:: !recalling -> seen = 0
	:: else
	fi }

/* Link is what arrives from client i. */
proctype Link(byte i) {
	byte a, b;
end: do
	:: atomic { nempty(out[i]) && !gone[i] && (!recalling || out[i]?[CAS, a, b] || out[i]?[DATA, a, b]) ->
		if
		:: out[i]?CAS, a, b -> prev[i] = WORD(i);
			if
			:: WORD(i) == a -> WORD(i) = b
			:: else
			fi
		:: out[i]?DATA, a, b -> assert(inside == NOBODY || inside == i)
		:: out[i]?REQUEST, a, b ->
			if
			:: !queued[i] -> waiting!i, a; queued[i]++; pump()
			:: else	/* a false client's */
			fi
		:: out[i]?WITHDRAW, a, b ->
			if
			:: waiting??[eval(i), eval(a)] -> waiting??eval(i), eval(a); queued[i]--
#ifndef KEEP_GRANT
			:: !waiting??[eval(i), eval(a)] && owner == i && owner_seq == a ->
				WORD(i) = 0; owner = NOBODY;
#ifdef DROP_DIED
				mark = 0;
#else
				mark = granted_mark;
#endif
				pump()
#endif
			:: else
			fi
		:: out[i]?RELEASE, a, b ->
			if
#ifdef ANY_RELEASE
			:: owner != NOBODY -> WORD(owner) = 0; owner = NOBODY; mark = b; pump()
#else
			:: owner == i && owner_seq == a -> WORD(i) = 0; owner = NOBODY; mark = b; pump()
#endif
			:: else
			fi
		fi;
		a = 0; b = 0 }
#ifdef GONE_EARLY
	:: atomic { !recalling && !alive[i] && !gone[i] ->
#else
	:: atomic { !recalling && !alive[i] && !gone[i] && empty(out[i]) ->
#endif
		gone[i] = true;
		do
		:: waiting??[eval(i), _] -> waiting??eval(i), _; queued[i]--
		:: else -> break
		od;
		if
		:: owner == i ->
			if
			:: !recalled -> a = WORD(i); WORD(i) = 0; taken(a)
			:: else
			fi;
			if
			:: owner == i -> owner = NOBODY; mark = DIED
			:: else
			fi;
			pump()
		:: else
		fi;
		a = 0 }
#ifdef GONE_EARLY
	:: atomic { gone[i] && out[i]?[DATA] -> out[i]?DATA, a, b; assert(inside == NOBODY || inside == i) }
#endif
	:: atomic { other[i] -> other[i] = false; assert(!alive[i] || inside == NOBODY || inside == i) }
#ifdef PLAIN_RECALL
	:: atomic { recalling -> recalling = false; WORD(owner) = 0; a = seen; taken(a); a = 0; pump() }
#endif
	od }

#define STEP atomic { alive[i] &&

proctype Client(byte i) {
	byte lease, held, seq, got;	/* lease: idle, as this client knows it, or 0 */
	bool rec;
{	skip;
endnext: if
	:: STEP locks[i] < LOCKS && lease -> prev[i] = 255; held = HELD | lease & DIED; out[i]!CAS, lease, held }
		STEP prev[i] != 255 ->
			if
			:: prev[i] == lease -> rec = false; lease = 0; goto have
			:: else -> lease = 0; held = 0; goto endnext
			fi }
	:: STEP locks[i] < LOCKS && !lease -> seq++; out[i]!REQUEST, seq, 0 }
	fi;
wait:	if
	:: STEP nempty(in[i]) ->
		in[i]?got, held, rec;
		held = HELD | held;
#ifdef TAKE_GRANT
		goto have
#else
		if
		:: got == seq -> got = 0; goto have
		:: else -> got = 0; held = 0; rec = false; goto wait
		fi
#endif
		}
	:: STEP give_ups && nfull(out[i]) -> give_ups--; out[i]!WITHDRAW, seq, 0; goto endnext }
	fi;
have:	STEP true ->
		assert(inside == NOBODY);
		inside = i;
		assert(!dirty || held & DIED);
		assert(died_once || !(held & DIED)) };
	if
	:: STEP held & DIED -> dirty = false; got = 1 }	/* repaired */
	:: STEP true -> got = 0 }
	fi;
	STEP true -> out[i]!DATA, 0, 0; other[i] = true };
#ifdef NO_FENCE
	STEP true -> inside = NOBODY; locks[i]++ };
#else
	STEP empty(out[i]) && !other[i] -> inside = NOBODY; locks[i]++ };
#endif
	if
	:: STEP rec -> goto release }
	:: STEP !rec -> prev[i] = 255; lease = IDLE | (got -> 0 : held & DIED); out[i]!CAS, held, lease }
		STEP prev[i] != 255 ->
			if
			:: prev[i] == held -> held = 0; got = 0; goto endnext
			:: else -> lease = 0; goto release
			fi }
	fi;
release: STEP true -> out[i]!RELEASE, seq, (got -> 0 : held & DIED); held = 0; got = 0; rec = false; lease = 0; goto endnext }
} unless { !alive[i] } }

#if LIES
proctype False() {
end:	do
	:: atomic { lies && nfull(out[N]) -> lies--;
		if
		:: out[N]!REQUEST, 1, 0
		:: out[N]!WITHDRAW, 1, 0
		:: out[N]!RELEASE, 1, 0
		:: !recalling -> WORD(N) = 0
		:: !recalling -> WORD(N) = IDLE
		:: !recalling -> WORD(N) = IDLE | HELD
		fi }
	:: atomic { alive[N] -> died_once = true; alive[N] = false; lies = 0 }
	od }
#endif

init {
	byte k;
	atomic {
		if :: give_ups = GIVE_UPS :: skip fi;
		if :: kills = KILLS :: skip fi;
		do
		:: k < M -> alive[k] = true; run Link(k); k++
		:: k == M -> break
		od;
		k = 0;
		do
		:: k < N -> run Client(k); k++
		:: k == N -> break
		od;
#if LIES
		run False();
#endif
		k = 0 }
end:	do
	:: atomic { kills && k < N && alive[k] -> kills--; alive[k] = false; died_once = true;
		if
		:: inside == k -> inside = NOBODY; dirty = true
		:: else
		fi }
	:: kills && k < N - 1 -> k++
	:: atomic { timeout ->
		k = 0;
		do
		:: k < N -> assert(!alive[k] || locks[k] == LOCKS); k++
		:: k == N -> break
		od;
		break }
	od }
