/* rejoin.pml - a daemon dies and another one takes its place: a process P comes back to it with its exports and links
 * (internal/nodeconn, node.go; memberState in internal/daemon/members/journal.go, internal/daemon/registry_rejoin.go), while an importer R on another node
 * resumes a link that has broken, and P ends an export and makes another one of the same id.
 * The member journal is a file that lists the processes that have joined; it outlives the daemon. A starting D takes those in
 * it that the kernel says live as expected, and the others as ended. P dials, names itself, announces what it has in two steps
 * (export, link), and says that this was all; then it uses the connection for its requests (publish). R dials D: a link that is
 * known goes to P; another one is refused for good if no process is expected, else R is to come again. X has another kernel
 * identity and claims to be P.
 * RST restarts at any time, also in the middle of a return.
 * Checked: R is not told that P is gone while P lives; at the end R is connected, or knows that P has died; X is never taken
 * for P; at the end D has the export that P has, and not the one that has ended.
 * Flags that break it:
 *   -DNO_EXPECT   a link that is not known is refused for good, although P is expected
 *   -DEARLY       P is expected no more when it has named itself
 *   -DGRACE       a process that has not rejoined after a while is taken for dead
 *   -DNO_PROOF    D does not check a process that claims to be P
 *   -DNO_RECHECK  P does not check, after it has published, what has ended since it was offered
 *   -DBY_ID       an export's end names its id, and not which one it is
 * Run: spin -a [flags] rejoin.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef RST
#define RST 2
#endif
bool alive = true, dup = true;
byte gen;                       /* of D; a connection belongs to one */
byte rst = RST;
bool expected, ended;           /* D of P */
bool here = true;               /* D has a connection of P, which has named itself on it */
bool dlink = true;              /* D knows the link */
byte dexp = 1;                  /* the export that D has under the id: its serial, 0 none */
byte pexp = 1;                  /* that P has; 0 none */
byte conn = 1;                  /* P: 1 + the generation that its published connection is of; 0 none */
bool rconn, rgone;              /* R */

#define UP(g) (dup && gen == (g))

/* P's loop that comes back */
active proctype P() { byte g, snap;
end: do
  :: atomic { alive && conn > 0 && !UP(conn-1) -> conn = 0 }
  :: atomic { alive && conn == 0 && dup && !here -> g = gen; here = true;
#ifdef EARLY
       expected = false;
#endif
     };
     atomic { if :: alive && UP(g) -> snap = pexp; if :: snap -> dexp = snap :: else fi :: else -> goto lost fi };
     atomic { if :: alive && UP(g) -> dlink = true :: else -> goto lost fi };
     atomic { if :: alive && UP(g) -> expected = false :: else -> goto lost fi };
     atomic { if :: alive -> conn = g+1 :: else -> goto lost fi };
#ifndef NO_RECHECK
     atomic { if :: alive && UP(g) && snap && snap != pexp -> if
#ifdef BY_ID
                 :: dexp != 0 -> dexp = 0
#else
                 :: dexp == snap -> dexp = 0
#endif
                 :: else fi :: else -> skip fi };
#endif
lost: g = 0; snap = 0
  od }

/* P's program: ends export 1, and may make export 2. An end while D is away is not told, for P does not offer it any
 * more; an export that D has not answered is offered when P comes back, and told again. */
active proctype Program() { byte c;
  atomic { pexp = 0; c = conn };
  atomic { if :: c > 0 && alive && UP(c-1) && dexp == 1 -> dexp = 0 :: else fi };
  if :: goto over :: pexp = 2 fi;
  do
  :: atomic { alive && conn > 0 -> c = conn };
     atomic { if :: alive && UP(c-1) -> dexp = 2; break :: else fi }
  :: !alive -> break
  od;
over: skip }

active proctype Death() { if :: alive = false :: skip fi }

active proctype D() {
end: do
  :: atomic { dup && rst -> rst--; dup = false; here = false; dlink = false; dexp = 0; expected = false; ended = false }
  :: atomic { !dup -> dup = true; gen++; if :: alive -> expected = true :: else -> ended = true fi }
  :: atomic { dup && expected && !alive -> expected = false; ended = true }             /* the kernel says so */
  :: atomic { dup && here && !alive -> here = false; ended = true; dlink = false; dexp = 0 }
#ifdef GRACE
  :: atomic { dup && expected && !here -> expected = false; ended = true; assert(!alive) }
#endif
#ifdef NO_PROOF
  :: atomic { dup && expected && !here -> expected = false }                            /* X has come, and that was all */
#endif
  od }

active proctype R() {                                   /* its link has broken */
end: do
  :: atomic { dup && !rconn && !rgone && dlink && here && alive -> rconn = true }
  :: atomic { rconn && !alive -> rconn = false }
  :: atomic { dup && !rconn && !rgone && !dlink &&
#ifdef NO_EXPECT
       true
#else
       !expected
#endif
       -> rgone = true; assert(!alive) }
  :: rgone -> break
  od }

init { timeout ->
  atomic { assert(alive || rgone); assert(!alive || rconn); assert(!alive || dexp == pexp) } }
