/* redir.pml - the redirection of an export whose importer has it mapped, as internal/link/redirect/claims.go (the
 * importer, which stores the data) and internal/link/redirect/exporter.go (the exporter, which posts and ends) have it.
 * Models: an export of N words; messages of a Claims from word 0 or 1 to the end, in pieces of P words, word by
 * word; an exporter that posts and ends POSTS times, any range of at least two words; giving up between pieces.
 * Options: -DTWO       two imports share a Claims, which sends one message at a time
 *   -DLOSS    the link is lost at any time, and the importer, which lives, sees it at any time after: End
 *             gives up waiting when it likes (the grace); what it promises then is in the asserts of Exp
 *   -DLOSS -DANEW   another process imports after the loss, and gets pages of its own
 *   -DREOPEN  the importer's end breaks first, the process imports again before the exporter knows, and its new
 *             Claims gets the old one's pages: the old link is wholly given up by then (retired)
 *   -DLOOK    a goroutine asks for the end of data all the while
 *   -DSTREAM  any post may be to memory that the importer has not mapped. Its message then goes by the stream from the
 *             piece on that meets the post, and the exporter's receiver (Exporter.Place) claims the post and
 *             stores the words. The importer releases the semaphore when the message is acknowledged, or when it gives
 *             up waiting; a message begins only when all before it on the stream are acknowledged.
 * All words that are shared are sequentially consistent; a lock of the exporter's (mu) is a lock here too.
 * Default: as built. Flags that break it:
 *   -DNO_RECHECK   State is not looked at again after the claim      -DPLAIN_CLAIM  ... but before it
 *   -DPLAIN_END    Claimed is loaded before Ending is stored         -DNO_UNCLAIM   a claim too late is not taken back
 *   -DNO_FIN       giving up without Finished (End waits for ever)   -DUSE_TWICE    a post is claimed twice
 *   -DTORN         the range is read when the claim is made          -DNO_SEM      (TWO) no semaphore
 *   -DCOUNT_LATE   (LOSS) Done does not count the last word before it is stored: a reader that has seen it is told fewer
 *   -DSEE_ENDING   stop on Ending of this post only (LOSS: the next post hides it)
 *   -DUNSTOP       the last piece forgets that the post has ended: the note says a wrong place
 *   -DREPUBLISH    (ANEW) what one importer has begun is posted to the next
 *   -DLEAVE_POSTED (ANEW) the pages of the lost one stay posted
 *   -DEND_BLIND    (ANEW) a post that is just being ended is given to the next importer
 *   -DREOPEN_EARLY the old link may still store                      -DREOPEN_FRESH the new Claims has used nothing
 *   -DONE_SLOT, -DCOUNT_FIRST  (LOOK) one slot for the end; the count before the end
 *   -DNO_ORDER     (STREAM) a message does not wait for those before it on the stream
 *   -DACK_EARLY    (STREAM) a message is acknowledged before its last word is stored
 *   -DLEAVE_POST   (STREAM) the receiver claims a post that stays posted in the page: the importer claims it, too
 *   -DPLACE_ENDING (STREAM) the receiver claims a post whose End waits for the importer
 *   -DSWITCH_TWICE (STREAM) a message that claimed one post goes by the stream for the next one
 *   -DEND_NO_LOCK  (STREAM) End closes what the receiver has claimed without the receiving lock
 *   -DKEEP_COUNT   (STREAM) the end of data is the page's although a message of the stream came later
 * Run: spin -a [flags] redir.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 *   (invalid end state = End waits for ever)
 */
#ifndef N
#define N 3
#endif
#ifndef P
#define P 1
#endif
#ifndef POSTS
#define POSTS 2
#endif
#ifndef M
#define M 2
#endif
#define POSTED(g) (2*(g))
#define ENDING(g) (2*(g)+1)
#define NONE 2
/* the two pages, of up to two importers */
byte State[2], Lo[2], Hi[2];
byte Claimed[2], Finished[2], First[2], Done[2];
byte Msgs, End[2];
bool given[2];                 /* back: the exporter reads zeros there */
/* Claims: 0 the first one, 1 another one's or the one of the second opening */
byte used[2]; bool sem[2], broken[2], retired[2];
bool lost[2];                  /* Shared.Gone */
/* Exporter */
mtype = { unposted, posted, parted, claimed, finished };
mtype st = unposted; byte gen, cur, left = NONE; bool ending, mu;
/* what happened: of each post its range, what was stored, whose, and whether End has returned */
byte glo[POSTS+1], ghi[POSTS+1], cnt[POSTS+1], fst[POSTS+1], own[POSTS+1], late[POSTS+1];
bool over[POSTS+1], went[POSTS+1], seen[POSTS+1];
byte post_of[M+4];                 /* the post that took part of a message */
#ifdef STREAM
bool bys[POSTS+1];             /* the post is to memory that the importer has not mapped */
bool ByStream[2];              /* and what the page says of that */
chan str[2] = [1] of { byte, byte };
byte seq[2], ack[2], flying[2]; bool deaf[2];
bool rmu; byte claimant, sn, sfirst;
byte recent, cleared, EndOf;     /* end of data: of the stream, messages of the page seen by it, of the page */
#define BYS(x) bys[x]
#else
#define BYS(x) false
#endif

#define LOCK atomic { !mu -> mu = 1 }
#define UNLOCK mu = 0
#define SEEN(o,k) (retired[o] -> 0 : State[k])      /* a retired mapping shows zeros */
#define THEIRS(s,w) (given[s] -> 0 : w[s])
#define DATAEND (Msgs != cleared -> EndOf : recent)
#define ISOVER(s,g) (THEIRS(s,Claimed) != g || THEIRS(s,Finished) == g)
inline ST(word,val) { if :: atomic { !retired[o] -> word = val } :: atomic { retired[o] -> skip } fi }

/* one word of the message into the posted memory */
inline STORE() { d_step {
  if :: !retired[o] ->
     assert(!over[g]);                                /* not after End has returned */
     assert(w >= glo[g] && w < ghi[g]);               /* in the range that was posted */
     if :: cnt[g] == 0 -> fst[g] = w - glo[g]; own[g] = m
        :: else -> assert(w - glo[g] == fst[g] + cnt[g]); assert(own[g] == m) fi;  /* one run, of one message */
     assert(post_of[m] == 0 || post_of[m] == g); post_of[m] = g;  /* a message is redirected once */
     cnt[g]++; if :: w + 1 == N -> seen[g] = 1 :: else fi;
     if :: went[g] -> late[g]++; assert(late[g] <= P) :: else fi    /* a lost importer: the rest of a piece at most */
  :: else fi;
  there = 1 } }

#ifdef USE_TWICE
#define FRESH true
#else
#define FRESH (s/2 != used[o])
#endif
inline TAKE() {
  s = SEEN(o,k); 
  if
  :: s && s == POSTED(s/2) && FRESH ->
#ifndef TORN
     lo = Lo[k]; hi = Hi[k];
#else
     lo = 0; hi = N;
#endif
     if
#ifdef STREAM
     :: lo < pe && hi > w && ByStream[k] -> bystr = 1
     :: lo < pe && hi > w && !ByStream[k] ->
#else
     :: lo < pe && hi > w ->
#endif
        s2 = (w > lo -> w - lo : 0);
        ST(First[k], s2);
        ST(Done[k], 0);
#ifdef PLAIN_CLAIM
        s2 = SEEN(o,k);
#endif
        ST(Claimed[k], s/2);
#ifdef NO_RECHECK
        s2 = s;
#else
#ifndef PLAIN_CLAIM
        s2 = SEEN(o,k);
#endif
#endif
#ifdef TORN
        lo = Lo[k]; hi = Hi[k];
#endif
        if :: s2 == s -> atomic { g = s/2; used[o] = g; n = 0 }
           :: else ->
#ifndef NO_UNCLAIM
              ST(Claimed[k], 0)
#else
              skip
#endif
        fi
     :: else fi
  :: else fi; s = 0; s2 = 0
}
#define HAS(x) (g && !stop && x >= lo && x < hi)

/* messages [m, to] of Claims o on pages k */
proctype Snd(byte o, k, m, to) {
  byte w, pe, s, s2, g, lo, hi, n, sent; bool stop, err, there, bystr;
#ifdef LOOK
  sent = Msgs;
#endif
#ifdef STREAM
  sent = Msgs;
#endif
next:  do
  :: m > to -> break
  :: else ->
#ifndef NO_SEM
     atomic { !sem[o] -> sem[o] = 1 };
#endif
     if :: broken[o] -> sem[o] = 0; break :: else fi;
#ifdef STREAM
#ifndef NO_ORDER
     if :: atomic { ack[o] >= seq[o] -> skip } :: atomic { ack[o] < seq[o] -> err = 1 } fi;   /* it waits, or gives up */
     if :: err -> atomic { err = 0; sem[o] = 0; m++ }; goto next :: else fi;
#endif
     bystr = 0;
#endif
     atomic { if :: w = 0 :: w = 1 fi; g = 0; n = 0; stop = 0; err = 0; there = 0; lo = 0; hi = 0 };
     do
     :: pe = (w + P < N -> w + P : N);
        if :: g == 0 -> TAKE()
           :: else ->
#ifdef SWITCH_TWICE
              s = SEEN(o,k); if :: stop && s && s == POSTED(s/2) && ByStream[k] -> bystr = 1 :: else fi; s = 0
#endif
        fi;
#ifdef STREAM
        if
        :: bystr ->
           atomic { seq[o] = m; flying[o]++; str[o]!m,w };
           if :: atomic { ack[o] >= m -> skip } :: atomic { broken[o] -> err = 1 } :: err = 1 fi;
           break
        :: else -> assert(retired[o] || !flying[o])     /* one order: what is stored here comes after all of the stream */
        fi;
#endif
        do
        :: w < pe ->
           if :: HAS(w) -> n++ :: else fi;
#ifndef COUNT_LATE
           if :: w + 1 == N && g && !stop -> ST(Done[k], n) :: else fi;     /* the last word is counted before it is there */
#endif
           if :: HAS(w) -> STORE() :: else -> there = 0 fi; w++
        :: else -> break
        od;
#ifdef COUNT_LATE
        if :: g -> ST(Done[k], n) :: else fi;
#else
        if :: g && !stop && w < N -> ST(Done[k], n) :: else fi;
#endif
        s = SEEN(o,k);
        if
#ifdef SEE_ENDING
        :: g && s == ENDING(g) ->
#else
        :: g && s != POSTED(g) ->
#endif
#ifdef UNSTOP
           stop = w < N;
#else
           if :: !stop && w < N -> stop = 1; ST(Finished[k], g)     /* nothing more is stored there */
              :: else fi;
#endif
        :: else fi; s = 0;
        if :: w == N -> break :: else fi;
        if :: broken[o] -> err = 1; break :: skip :: err = 1; break fi
     od;
     if
     :: !err && !bystr ->
        assert(retired[o] || there == HAS(N-1));     /* what a note says of the last word's place */
#ifdef STREAM
        d_step { sent++; if :: !retired[o] && o == cur -> EndOf = m; Msgs = sent; assert(DATAEND == m) :: else fi };
#endif
#ifdef LOOK
        sent++;
#ifdef COUNT_FIRST
        Msgs = sent;
#endif
#ifdef ONE_SLOT
        End[0] = sent;
#else
        End[sent%2] = sent;
#endif
        Msgs = sent
#endif
     :: else fi;
#ifdef NO_FIN
     if :: g && !err -> ST(Finished[k], g) :: else fi;
#else
     if :: g -> ST(Finished[k], g) :: else fi;
#endif
     atomic { sem[o] = 0; m++; g = 0; w = 0; pe = 0; lo = 0; hi = 0; n = 0; stop = 0; err = 0; there = 0 }
  od
}

#ifdef STREAM
inline PUBLISH(k) { Lo[k] = glo[gen]; Hi[k] = ghi[gen]; ByStream[k] = bys[gen]; State[k] = POSTED(gen) }
#else
inline PUBLISH(k) { Lo[k] = glo[gen]; Hi[k] = ghi[gen]; State[k] = POSTED(gen) }
#endif
inline FORGET() { d_step { st = unposted; ending = 0; if :: left != NONE -> given[left] = 1; left = NONE :: else fi } }

#ifdef STREAM
#define COVERS(x) (x >= glo[gen] && x < ghi[gen])
/* the exporter's receiver: Exporter.Place, Exporter.MessageStored, Responder.linkClosed */
proctype Rcv(byte o) {
  byte m, w; bool red, in;
end_rcv:
  do
  :: atomic { str[o]?m,w -> red = 0 };
#ifdef ACK_EARLY
     ack[o] = m;
#endif
     do
     :: w == N -> break
     :: w < N ->
        atomic { !rmu -> rmu = 1 };
        if :: lost[o] -> rmu = 0; goto cut :: else fi;
        LOCK;
        if
#ifdef PLACE_ENDING
        :: st == posted && !red && COVERS(w) ->
#else
        :: st == posted && !ending && !red && COVERS(w) ->
#endif
#ifndef LEAVE_POST
           State[o] = ENDING(gen);
#endif
           if :: !BYS(gen) && Claimed[o] == gen -> skip
              :: else -> d_step { st = claimed; claimant = o; red = 1; sfirst = w - glo[gen]; sn = 0 } fi
        :: else fi;
        in = (st == claimed && claimant == o && red && COVERS(w));
        UNLOCK;
        d_step {
          if :: in ->
             assert(!over[gen]);
             if :: cnt[gen] == 0 -> fst[gen] = w - glo[gen]; own[gen] = m
                :: else -> assert(w - glo[gen] == fst[gen] + cnt[gen]); assert(own[gen] == m) fi;
             assert(post_of[m] == 0 || post_of[m] == gen); post_of[m] = gen;
             cnt[gen]++; sn++
          :: else fi;
          w++ };
        rmu = 0
     od;
     LOCK;
     if :: st == claimed && claimant == o && red -> st = finished :: else fi;
     recent = m;
#ifndef KEEP_COUNT
     cleared = Msgs;
#endif
     assert(lost[o] || DATAEND == m);
     UNLOCK;
     atomic { flying[o]--; ack[o] = m; m = 0; w = 0; red = 0; in = 0 }
  :: atomic { lost[o] -> break }
  od;
cut:
  LOCK;
  if :: st == claimed && claimant == o -> st = finished :: else fi;
  UNLOCK;
  atomic { deaf[o] = 1; flying[o] = 0; m = 0; w = 0; red = 0; in = 0 }
}
#endif

proctype Exp() {
  byte s, n, first; bool gone, last;
  do
  :: gen < POSTS ->
     LOCK;
     atomic { gen++; if :: glo[gen] = 0 :: glo[gen] = 1 fi; if :: ghi[gen] = N :: ghi[gen] = N-1 fi; 
#ifdef STREAM
              if :: bys[gen] = 1 :: skip fi;
#endif
              if :: ghi[gen] - glo[gen] < 2 -> ghi[gen] = N :: else fi; st = posted };
     if :: cur != NONE -> PUBLISH(cur) :: else fi;
     UNLOCK;

     LOCK; s = (st == parted -> left : cur);
#ifdef STREAM
     if
     :: st == posted && (cur == NONE || bys[gen]) || st == claimed || st == finished -> 
        if
        :: st == claimed ->
#ifndef END_NO_LOCK
           UNLOCK; atomic { !rmu -> rmu = 1 }; LOCK;
#endif
           if :: st == claimed -> st = finished :: else fi;
#ifndef END_NO_LOCK
           rmu = 0
#endif
        :: st == posted -> if :: cur != NONE -> State[cur] = ENDING(gen) :: else fi
        :: else -> skip
        fi;
        n = 0; first = 0; gone = 0;
        if :: st == finished -> n = sn; first = sfirst :: else fi;
        FORGET(); UNLOCK; goto ended
     :: else fi;
#endif
#ifndef END_BLIND
     ending = 1;
#endif
     UNLOCK; n = 0; first = 0; gone = 0;
     if
     :: s == NONE -> LOCK; FORGET(); UNLOCK
     :: else ->
#ifdef PLAIN_END
        if :: atomic { ISOVER(s,gen) -> gone = 1 } :: atomic { !ISOVER(s,gen) -> skip } fi;
        State[s] = ENDING(gen);
        if :: gone -> gone = 0; goto looked :: else fi;
#else
        if :: !given[s] -> State[s] = ENDING(gen) :: else fi;
#endif
        if
        :: atomic { ISOVER(s,gen) -> skip }
        :: atomic { lost[s] -> skip };
           if :: atomic { ISOVER(s,gen) -> skip } :: atomic { !ISOVER(s,gen) -> gone = 1 } fi
        fi;
looked: LOCK;
        if
        :: atomic { THEIRS(s,Claimed) == gen -> skip };
           atomic { last = seen[gen]; n = THEIRS(s,Done) }; first = THEIRS(s,First)
        :: atomic { THEIRS(s,Claimed) != gen -> gone = 0 }
        fi;
        FORGET(); UNLOCK
     fi;
ended: skip; d_step {
       if :: !gone -> over[gen] = 1; assert(n == cnt[gen]); assert(n == 0 || first == fst[gen])
          :: else -> went[gen] = 1; assert(n <= cnt[gen] + 1 && cnt[gen] <= n + P);
                     assert(cnt[gen] == 0 || first == fst[gen]);
                     assert(!last || n == cnt[gen]) fi;       /* a reader of the last word is told all of them */
       n = 0; first = 0; gone = 0; last = 0; s = 0 }
  :: else -> break
  od
}

#ifdef ANEW
/* another process imports: shareRedirection, Share */
proctype Anew() {
#ifdef STREAM
end_an: atomic { lost[0] && deaf[0] -> skip };
#else
end_an: atomic { lost[0] -> skip };
#endif
  LOCK;
#ifndef LEAVE_POSTED
  State[0] = ENDING(gen);
#endif
#ifdef REPUBLISH
  given[0] = 1;
#else
  if :: st == posted && !BYS(gen) && Claimed[0] == gen -> st = parted; left = 0 :: else -> given[0] = 1 fi;
#endif
#ifdef STREAM
  d_step { if :: Msgs != cleared -> recent = EndOf :: else fi; Msgs = 0; cleared = 0; EndOf = 0 };
#endif
  cur = 1; State[1] = ENDING(gen);
  if :: st == posted && !ending -> PUBLISH(1) :: else fi;
  UNLOCK;
  run Snd(1, 1, M+1, M+1)
}
#endif
#ifdef LOSS
proctype Loss() { if :: lost[0] = 1; if :: broken[0] = 1; retired[0] = 1 :: skip fi :: skip fi }
#endif
#ifdef REOPEN
/* the importer's end breaks; its Claims is given up; the process imports again; the exporter learns of the loss */
proctype Reopen() {
  broken[0] = 1;
#ifndef REOPEN_EARLY
  retired[0] = 1;
#endif
#ifdef REOPEN_FRESH
  used[1] = 0;
#else
  used[1] = Claimed[0];
#endif
  run Snd(1, 0, M+1, M+2);
  lost[0] = 1
}
#endif
#ifdef LOOK
proctype Look() { byte n, v;
end_look:
  do
  :: n = Msgs;
#ifdef ONE_SLOT
     v = End[0];
#else
     v = End[n%2];
#endif
     if :: atomic { Msgs == n -> assert(v == n); v = 0; n = 0 } :: atomic { Msgs != n -> v = 0; n = 0 } fi
  od
}
#endif
init { atomic {
  run Snd(0, 0, 1, M); run Exp();
#ifdef STREAM
  run Rcv(0);
#ifdef ANEW
  run Rcv(1);
#endif
#endif
#ifdef TWO
  run Snd(0, 0, M+1, M+1);
#endif
#ifdef LOSS
  run Loss();
#endif
#ifdef ANEW
  run Anew();
#endif
#ifdef REOPEN
  run Reopen();
#endif
#ifdef LOOK
  run Look();
#endif
} }
