/* call.pml - one slot of package call, as call/client.go, call/server.go and call/worker.go have it: a client C makes N
 * calls in it, one after the other, two workers of the server run them.
 * Models: a message's words arrive in any order, but for its last word, the call's number. C gives calls up: when their
 * request has left, or while it is sent. Up to D requests are in doubt then: they arrive not at all, in part, or whole, and
 * C sends a void request of the same number. C uses the slot again when its answer has come. A worker whose answer is in
 * doubt, up to D times, sends it again, and only then frees the slot.
 * Checked: each request runs at most once, whole, and exactly once if its call succeeds; no call gets the answer of another
 * one; no call waits for ever, also after others were given up.
 * Flags that break it:
 *   -DREUSE        C uses the slot again when it has given its call up
 *   -DNO_VOID      C sends nothing in place of a request that is in doubt
 *   -DNO_TAKEN     the server does not compare the number with the last one
 *   -DFREE_EARLY   a worker frees the slot before it sends its answer again
 *   -DNUMBER_FIRST a request's number is not its last word
 * Run: spin -a [flags] call.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef N
#define N 3
#endif
#ifndef D
#define D 2
#endif
#define RUNS 1
#define VOID 2

byte num, val, kind;    /* the slot at the server: number, value and kind of the last request */
byte anum, aval, astat; /* at the client: of the last answer */
byte taken; bool busy;  /* the server's */
byte ran[N+1];          /* how often each call has run */
byte adoubts;
chan net = [2] of { byte, byte, bool };  /* requests: number, kind, and whether all of it arrives */
chan back = [2] of { byte, byte };       /* answers: number and kind of the request */

active proctype C() { byte n, last, doubts; bool doubt;
  do
  :: n >= N -> break
  :: else ->
     n++; last = anum; doubt = false;
     if
     :: net!n,RUNS,true
     :: doubts < D ->
        doubts++; doubt = true;
        if
        :: net!n,RUNS,true
        :: net!n,RUNS,false
        :: skip
        fi
     fi;
     if
     :: doubt ->
#ifndef NO_VOID
        net!n,VOID,true
#else
        skip
#endif
     :: !doubt ->
        if
        :: anum != last ->
           assert(anum == n && aval == n && astat == RUNS && ran[n] == 1);
           goto next
        :: skip /* it is given up */
        fi
     fi;
#ifndef REUSE
     anum == n;
#endif
next: skip
  od
}

active proctype Net() { byte n, k, left; bool whole;
end:
  do
  :: net?n,k,whole ->
#ifdef NUMBER_FIRST
     num = n;
#endif
     left = 3;
     do
     :: left & 1 -> left = left-1; if :: k == RUNS -> val = n :: else fi
     :: left & 2 -> left = left-2; kind = k
     :: left == 0 -> break
     :: left != 0 && !whole -> break
     od;
     if
     :: whole -> num = n
     :: else
     fi
  od
}

active [2] proctype Worker() { byte n, k; bool twice;
end:
  do
#ifdef NO_TAKEN
  :: atomic { num != 0 && !busy && anum != num -> busy = true; n = num }
#else
  :: atomic { num != taken && !busy -> busy = true; n = num }
#endif
     k = kind; taken = n;
     if
     :: k == RUNS -> assert(val == n); ran[n]++; assert(ran[n] == 1)
     :: else
     fi;
     twice = false;
     if
     :: back!n,k
     :: adoubts < D -> adoubts++;
        twice = true;
        if
        :: back!n,k
        :: skip
        fi
     fi;
#ifdef FREE_EARLY
     busy = false;
#endif
     if
     :: twice -> back!n,k
     :: else
     fi;
#ifndef FREE_EARLY
     busy = false
#endif
  od
}

active proctype Back() { byte n, k;
end:
  do
  :: back?n,k ->
     if
     :: aval = n; astat = k
     :: astat = k; aval = n
     fi;
     anum = n
  od
}
