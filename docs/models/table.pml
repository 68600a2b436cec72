/* table.pml - a look-up in a table of package table beside its owner, as table/table.go and table/reader.go have it.
 * Models a bucket: two slots, two heads and the committed word. The owner W puts values 1 to N in place of 0: an entry into
 * the free slot, the older head, the committed word; the words of an entry and of a head in any order. The reader R gets the
 * committed word and then all others in any order. W may stop at any step.
 * Checked: what R finds is whole, and was the value at some time during its call; R tries again only if W has made a change
 * meanwhile, so a W that is stopped holds it up nowhere.
 * Flags that break it:
 *   -DNO_SUM     R takes an entry, and a head, whose first and last word have the same version
 *   -DNO_NEWER   R takes an entry that is newer than the head
 *   -DNO_VERSION R takes a head of another version than the committed word's
 *   -DONE_HEAD   there is one head
 *   -DIN_PLACE   there is one copy of an entry
 *   -DEARLY      W changes the committed word before the head
 *   -DANY_ORDER  R gets the committed word at any time
 * With -DCHAIN: a home with up to three buckets of two entries each, of which a get sees one state. The owner makes M changes:
 * it deletes keys, and fills the hole from the last bucket; puts keys, and takes a further bucket for that; another home takes
 * and drops unused buckets. The reader looks one of the keys up.
 * Checked: the key is found only if it was there at some time during the call, and not found only if it was not there.
 * Flags that break it:
 *   -DNO_MOVED   R does not look at moved
 *   -DNO_INHERIT a bucket does not take over moved of the one behind it that is dropped
 *   -DNO_HOME    R does not look at a bucket's home
 *   -DNO_SET     a home that takes a bucket does not set its moved
 *   -DDROP_FIRST an entry leaves the last bucket before it is in the other one
 *   -DFILL_FIRST a bucket that a home takes has the entry before the home has the bucket
 * Run: spin -a [flags] table.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 3
#endif
#ifndef M
#define M 4
#endif

#ifndef CHAIN

#ifdef ONE_HEAD
#define HEAD(n) 0
#else
#define HEAD(n) ((n)&1)
#endif
#ifdef IN_PLACE
#define SLOT(n) 0
#else
#define SLOT(n) ((n)&1)
#endif
#ifdef NO_SUM
#define WHOLE(s) (s[0] == s[2])
#define VALID(h) (h[0] == h[2])
#else
#define WHOLE(s) (s[0] == s[2] && s[1] == s[2])
#define VALID(h) (h[0] == h[2] && h[1] == h[2])
#endif

/* A version, a value that is the same number, and a checksum that is that number if both are. A head's middle word names
 * the slot that is valid. */
byte slot[6];
byte head[6];
byte committed;

#ifdef NO_VERSION
#define IS(h) VALID(h)
#else
#define IS(h) (VALID(h) && h[0] == c)
#endif

#define W3(a, at) \
  left = 7; \
  do \
  :: left & 1 -> a[at] = n; left = left-1 \
  :: left & 2 -> a[at+1] = n; left = left-2 \
  :: left & 4 -> a[at+2] = n; left = left-4 \
  :: left == 0 -> break \
  od

active proctype W() { byte n = 1, left;
end:
  do
  :: n <= N ->
     W3(slot, 3*SLOT(n));
#ifdef EARLY
     committed = n;
     W3(head, 3*HEAD(n));
#else
     W3(head, 3*HEAD(n));
     committed = n;
#endif
     n++
  :: n > N -> break
  od
}

active proctype R() { byte c, from, s[3], h[3], at; short left;
  from = committed;
again:
  c = committed;
  /* Of the slots only the one is got that the head names, which is known afterwards: so it is guessed. */
  if :: at = 0 :: at = 1 fi;
  left = 63;
#ifdef ANY_ORDER
  left = 127;
  if :: c = 0 :: c = 1 fi; /* which head is looked at: guessed, too */
  byte odd = c;
#endif
  do
  :: left & 1 -> s[0] = slot[3*at]; left = left-1
  :: left & 2 -> s[1] = slot[3*at+1]; left = left-2
  :: left & 4 -> s[2] = slot[3*at+2]; left = left-4
  :: left & 8 -> h[0] = head[3*HEAD(c)]; left = left-8
  :: left & 16 -> h[1] = head[3*HEAD(c)+1]; left = left-16
  :: left & 32 -> h[2] = head[3*HEAD(c)+2]; left = left-32
#ifdef ANY_ORDER
  :: left & 64 -> 
     if
     :: (committed & 1) == odd -> c = committed; left = left-64
     :: else -> goto over
     fi
#endif
  :: left == 0 -> break
  od;
  if
  :: !IS(h) ->
     assert(committed != c);
     goto again
  :: IS(h) && SLOT(h[1]) != at -> goto over
  :: IS(h) && SLOT(h[1]) == at ->
     if
#ifdef NO_NEWER
     :: !WHOLE(s) ->
#else
     :: !WHOLE(s) || s[0] > h[0] ->
#endif
        assert(committed != c);
        goto again
     :: else -> 
        assert(s[0] == s[1]);
        assert(s[0] >= from && s[0] <= committed)
     fi
  fi;
over:
  skip
}

#else

#define B 3
#define NONE 9
#define OTHER 8

byte a[B], b[B];          /* keys 1 to 5, 0 for none */
byte home[B], next[B], moved[B];
byte moves;               /* of the home, bucket 0 */
byte key;                 /* which R looks up */
bool there, wasThere, wasAbsent;

inline SET(is) { there = is; if :: is -> wasThere = true :: !is -> wasAbsent = true fi }

#define IN(i, k) (a[i] == k || b[i] == k)
#define COUNT(i) ((a[i] != 0) + (b[i] != 0))

inline FIND(k) {
  at = 0; before = 0;
  do
  :: IN(at, k) || next[at] == 0 -> break
  :: else -> before = at; at = next[at]
  od }

inline LAST() {
  last = at; lbefore = before;
  do
  :: next[last] == 0 -> break
  :: else -> lbefore = last; last = next[last]
  od }

inline REPLACE(in, old, new) { if :: a[in] == old -> a[in] = new :: else -> b[in] = new fi }

/* DROP commits the last bucket, which has an entry less. mv is its moved, 0 if that does not change. */
inline DROP(gone, mv) {
  if
  :: last == 0 || COUNT(last) > 1 ->
     atomic { REPLACE(last, gone, 0); if :: last != 0 && mv != 0 -> moved[last] = mv :: else fi; if :: gone == key && !IN(at, key) -> SET(false) :: else fi }
  :: else ->
     atomic {
       next[lbefore] = 0;
#ifndef NO_INHERIT
       if :: lbefore != 0 && mv > moved[lbefore] -> moved[lbefore] = mv
          :: lbefore != 0 && mv == 0 && moved[last] > moved[lbefore] -> moved[lbefore] = moved[last]
          :: else
       fi;
#endif
       if :: gone == key && !IN(at, key) -> SET(false) :: gone == key && at == last -> SET(false) :: else fi };
     atomic { a[last] = 0; b[last] = 0; home[last] = NONE; if :: mv != 0 -> moved[last] = mv :: else fi }
  fi }

inline REMOVE(key0) {
  if
  :: at == last -> DROP(k, 0)
  :: else ->
     if :: a[last] != 0 -> e = a[last] :: else -> e = b[last] fi;
#ifdef DROP_FIRST
     atomic { REPLACE(last, e, 0) };
#endif
     atomic { REPLACE(at, key0, e); if :: at == 0 -> moves++ :: else fi; if :: key0 == key -> SET(false) :: else fi };
     if :: at != 0 -> moves++ :: else fi;
#ifdef DROP_FIRST
     if :: COUNT(last) == 0 -> atomic { a[last] = e } :: else -> skip fi;
#endif
     if :: IN(last, e) -> DROP(e, moves) :: else -> moved[last] = moves fi
  fi }

active proctype W() { byte m, k, at, before, last, lbefore, e, i;
  atomic {
    a[0] = 1; b[0] = 2; next[0] = 1; a[1] = 3; b[1] = 4; next[1] = 2; a[2] = 5;
    if :: key = 1 :: key = 3 :: key = 4 :: key = 5 fi;
    there = true }
end:
  do
  :: m == M -> break
  :: m < M -> 
     m++;
     if
     :: k = 1 :: k = 2 :: k = 3 :: k = 4 :: k = 5 :: k = 0
     fi;
     if
     :: k == 0 -> /* another home takes an unused bucket, or drops it */
        if :: i = 1 :: i = 2 fi;
        if
        :: home[i] == NONE -> atomic { home[i] = OTHER; moved[i] = 0; next[i] = 0 }
        :: home[i] == OTHER -> home[i] = NONE
        :: else
        fi
     :: k != 0 ->
        FIND(k); LAST();
        if
        :: IN(at, k) -> REMOVE(k)
        :: !IN(at, k) && COUNT(last) < 2 ->
           atomic { REPLACE(last, 0, k); if :: k == key -> SET(true) :: else fi }
        :: else ->
           i = 1;
           do
           :: i == B || home[i] == NONE -> break
           :: else -> i++
           od;
           if
           :: i == B
           :: i < B ->
              atomic {
                home[i] = 0; next[i] = 0; a[i] = 0; b[i] = 0;
#ifdef FILL_FIRST
                a[i] = k;
#endif
#ifndef NO_SET
                moved[i] = moves
#endif
              };
              next[last] = i;
              atomic { a[i] = k; if :: k == key -> SET(true) :: else fi }
           fi
        fi;
        i = 0; k = 0; at = 0; before = 0; last = 0; lbefore = 0; e = 0
     fi
  od
}

active proctype R() { byte at, n, m; bool has;
  key != 0;
  atomic { wasThere = there; wasAbsent = !there };
again:
  atomic { at = 0; has = IN(0, key); n = next[0]; m = moves };
  do
  :: has -> assert(wasThere); break
  :: !has && n == 0 -> assert(wasAbsent); break
  :: !has && n != 0 ->
     at = n;
     atomic {
       has = IN(at, key); n = next[at];
#ifndef NO_HOME
       if :: home[at] != 0 -> goto again :: else fi;
#endif
#ifndef NO_MOVED
       if :: !has && moved[at] > m -> goto again :: else fi;
#endif
       skip }
  od
}

#endif
