/* agree.pml - the agreement of the ranks of a communicator of which some die (mpi/fault_agree.go).
 * Models: N ranks, each of which gives a bit. The leader is the first rank that another one does not know to have ended. The others
 * tell it what they give or have adopted, and follow no earlier leader from then on. It proposes the latest adopted proposal, or
 * else the combination of all; they adopt it and say so; then it is decided. A rank that knows the decision tells it to all
 * others, one by one, and returns. Up to K ranks die, each at any step, also between two of the messages of one step. What a
 * rank has sent arrives in order. When its end is seen, what has not arrived may be lost, or arrive later.
 * Checked: all ranks that return, also those that die later, have the same value, of which each of them has a part; when nothing
 * more happens, each rank that lives has returned.
 * Left out: the sets of ranks that are gone, which are combined as bits are; later agreements; ranks that others cannot reach,
 * though they live.
 * Flags that break it:
 *   -DNO_PASS   a rank that hears the decision returns without telling others
 *   -DFRESH     a leader proposes the combination of what ranks give, whatever was adopted
 *   -DNO_WAIT   the leader decides before all have adopted
 *   -DOLD       a rank adopts proposals of leaders that it follows no more
 * With two that die the search ends only where it finds an error.
 * Run: spin -a [flags] agree.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 3
#endif
#ifndef K
#define K 1
#endif
#define NONE 7
#define OPEN 255

mtype = { tells, proposes, adopts, decides }
chan ch[N * N] = [5] of { mtype, byte, byte };	/* from i to j: kind, leader whose value it is, value */
#define CH(i, j) ch[(i) * N + (j)]

bool dead[N];
byte kills = K;
byte returned[N] = OPEN;
byte decided = OPEN;		/* the first value that was returned */

/* A rank may die instead of any of its steps. */
#define STEP if :: !doomed :: kills > 0 -> kills--; doomed = true fi
#define SEND(j, k, l, v) \
	if \
	:: doomed -> skip \
	:: !doomed && (knows & (1 << (j))) -> skip \
	:: !doomed && !(knows & (1 << (j))) && nfull(CH(me, j)) -> CH(me, j)!k, l, v; if :: true :: kills > 0 -> kills--; doomed = true fi \
	:: !doomed && !(knows & (1 << (j))) && full(CH(me, j)) && dead[j] -> skip \
	fi

inline toAll(k, l, v, but) {
	j = 0;
	do
	:: j < N ->
		if
		:: j != me && j != but -> SEND(j, k, l, v)
		:: else
		fi;
		j++
	:: else -> break
	od
}

#define HAS(set, i) ((set) & (1 << (i)))
#define ALL ((1 << N) - 1)
#define GIVES (ALL & ~(1 << me))	/* all bits but its own */

proctype rank(byte me) {
	byte mine = GIVES;
	byte knows = 0, leader = 0, j, l, v, from;
	byte adopted = NONE, follows = NONE;	/* NONE: of no leader */
	byte lost = 0, told = 0, agreed = 0, best = NONE, bestValue, sum = ALL;
	bool proposed = false, doomed = false, over = false;

	do
	:: over || doomed -> break
	:: else ->
		atomic { leader = 0; do :: HAS(knows, leader) -> leader++ :: else -> break od }
		if
		:: leader != me && (follows == NONE || follows < leader) ->
			follows = leader;
#ifdef FRESH
			SEND(leader, tells, NONE, GIVES)
#else
			SEND(leader, tells, adopted, mine)
#endif
		:: leader == me && !proposed && ((told | knows | (1 << me)) == ALL) ->
			atomic {
				follows = me; proposed = true;
#ifndef FRESH
				if
				:: adopted != NONE && (best == NONE || adopted > best) -> skip
				:: adopted == NONE && best == NONE -> mine = mine & sum
				:: else -> mine = bestValue
				fi;
#else
				mine = GIVES & sum;
#endif
				adopted = me
			}
			toAll(proposes, me, mine, me)
#ifdef NO_WAIT
		:: leader == me && proposed ->
#else
		:: leader == me && proposed && ((agreed | knows | (1 << me)) == ALL) ->
#endif
			STEP;
			toAll(decides, me, mine, me);
			over = true
		:: else ->
			if
			:: leader == me -> follows = me
			:: else
			fi;
			/* Wait for a statement, or for an end. */
			if
			:: atomic { CH(0, me)?[_, _, _] && me != 0 && !HAS(lost, 0) -> from = 0 }
			:: atomic { CH(1, me)?[_, _, _] && me != 1 && !HAS(lost, 1) -> from = 1 }
#if N > 2
			:: atomic { CH(2, me)?[_, _, _] && me != 2 && !HAS(lost, 2) -> from = 2 }
#endif
#if N > 3
			:: atomic { CH(3, me)?[_, _, _] && me != 3 && !HAS(lost, 3) -> from = 3 }
#endif
			:: atomic { me != 0 && dead[0] && !HAS(knows, 0) -> knows = knows | 1; from = NONE; if :: true :: lost = lost | 1 fi }
			:: atomic { me != 1 && dead[1] && !HAS(knows, 1) -> knows = knows | 2; from = NONE; if :: true :: lost = lost | 2 fi }
#if N > 2
			:: atomic { me != 2 && dead[2] && !HAS(knows, 2) -> knows = knows | 4; from = NONE; if :: true :: lost = lost | 4 fi }
#endif
#if N > 3
			:: atomic { me != 3 && dead[3] && !HAS(knows, 3) -> knows = knows | 8; from = NONE; if :: true :: lost = lost | 8 fi }
#endif
			:: kills > 0 -> kills--; doomed = true; from = NONE
			fi;
			if
			:: from == NONE -> skip
			:: else ->
				if
				:: CH(from, me)?tells, l, v ->
					atomic {
						if
						:: l != NONE && (best == NONE || l > best) -> best = l; bestValue = v
						:: else
						fi;
						sum = sum & v;
						told = told | (1 << from)
					}
				:: CH(from, me)?proposes, l, v ->
#ifndef OLD
					if
					:: follows != NONE && from < follows -> skip
					:: else ->
#endif
						atomic { mine = v; adopted = from; follows = from }
						STEP;
						SEND(from, adopts, from, v)
#ifndef OLD
					fi
#endif
				:: CH(from, me)?adopts, l, v -> agreed = agreed | (1 << from)
				:: CH(from, me)?decides, l, v ->
					mine = v;
					STEP;
#ifndef NO_PASS
					toAll(decides, l, v, from);
#endif
					over = !doomed
				fi
			fi
		fi
	od;
	atomic {
		if
		:: over && !doomed ->
			assert(decided == OPEN || decided == mine);
			assert(!HAS(mine, me));
			decided = mine; returned[me] = mine
		:: else -> dead[me] = true
		fi;
	}
	/* A rank that has returned may die too. Its end is seen as any other. */
	if
	:: dead[me] -> skip
	:: !dead[me] && kills > 0 -> atomic { kills--; dead[me] = true }
	:: !dead[me] -> skip
	fi
}

init {
	atomic {
		byte i = 0;
		do
		:: i < N -> run rank(i); i++
		:: else -> break
		od
	}
	kills = 0	/* at any time: no more die */
}
