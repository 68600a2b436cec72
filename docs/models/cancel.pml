/* cancel.pml - messages whose senders give up, on a link that is resumed (resume.pml), with credits, as internal/link has
 * it: Requester.abortMessage ends a message in its middle, Requester.reclaimMemory takes back the memory of one that is wholly in frames, and what
 * is sent again of either is an abort (send_retransmit.go).
 * Models: messages 1 (one frame), 2 (three frames), 3 and 4 (one frame). All but 3 carry a notification, and there is one
 * credit, which comes back when the handler has run. The sender of message 2 may give up at any time, also while there is
 * no connection; its memory is its own again at once. CUTS cuts and SPUR connections that the importer gives up for no reason.
 * Checked: messages 1, 3 and 4 are stored once, in order; message 2 is stored once if its sender was told so, not at all if
 * it gave up before the last frame was written, and at most once else; its memory is not read after that; no more
 * notifications wait than there are credits, no more credits come back than were taken, and all ends.
 * Flags that break it:
 *   -DABORT_ONCE   an abort is written once and not kept until it is acknowledged
 *   -DABORT_LATE   an abort is written though the last frame was written on this connection
 *   -DCREDIT_DELTA an acknowledgement has the credits since the one before, not their total
 *   -DKEEP_CREDIT  an aborted message's credit does not come back
 * Run: spin -a [flags] cancel.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
byte taken, returned, ret, queue, retsent, hi;
#define CR 1
#define NOTIF(m) (m != 3)

#ifndef CUTS
#define CUTS 2
#endif
#ifndef SPUR
#define SPUR 1
#endif
#define NC (1+CUTS+SPUR)
#define N 4
mtype = {HELLO, ANS, DATA, ABORT, ACK};
chan up[NC+1] = [2] of {mtype, byte, byte, byte};
chan dn[NC+1] = [2] of {mtype, byte, byte, byte};
bool cut[NC+1], icl[NC+1], ecl[NC+1];
byte cuts = CUTS, spur = SPUR, k = 0, ecur = 0;
byte acked, applied, aunits;
bool aborted, told, lastsent;      /* sender: decided to abort; caller was told "unknown"; last chunk ever written */
bool ok2;                /* caller of 2 was told success */
byte stored[N+1];        /* how often the last word of m was stored */
#define LEN(m) (m==2 -> 3 : 1)
#define UPDEAD(c) (cut[c]||ecl[c])
#define DNDEAD(c) (cut[c]||icl[c])
#ifdef CREDIT_DELTA
#define putret (ret-retsent)
inline getret(v) { returned = returned + v; assert(returned <= taken) }
#else
#define putret ret
inline getret(v) { if :: v > returned -> returned = v :: else fi; assert(returned <= taken) }
#endif
inline upw(a,b,c,d) { if :: UPDEAD(k) -> skip :: else -> up[k]!a,b,c,d fi }
inline dnw(a,b,c,d) { if :: DNDEAD(ecur) -> skip :: else -> dn[ecur]!a,b,c,d fi }
inline idrain() { do :: nempty(dn[k]) -> dn[k]?_,_,_,_ :: empty(dn[k]) -> break od }
inline edrain(q) { do :: nempty(up[q]) -> up[q]?_,_,_,_ :: empty(up[q]) -> break od }
active proctype I() {
  bool upab; byte st = 0, snd = 1, su = 0, a, b, c;
  do
  :: atomic { st == 0 && acked < N -> assert(k < NC); k++; upw(HELLO, k, 0, 0); st = 1 }
  :: atomic { st > 0 && spur > 0 -> spur--; icl[k] = true; idrain(); st = 0 }
  :: atomic { st > 0 && UPDEAD(k) -> icl[k] = true; idrain(); st = 0 }
  :: atomic { st > 0 && nempty(dn[k]) ->
       if
       :: dn[k]?ANS(a,b,c) -> getret(a); assert(b >= acked); acked = b; snd = b+1; su = c; st = 2
       :: dn[k]?ACK(a,b,c) -> getret(b); if :: a > acked -> acked = a :: else fi
       fi; 
       if :: acked >= 2 && !aborted -> ok2 = true :: else fi; a=0;b=0;c=0 }
  :: atomic { st == 2 && snd <= N && nfull(up[k]) && (!NOTIF(snd) || snd <= hi || taken - returned < CR || (snd == 2 && aborted)) ->
       if :: NOTIF(snd) && snd > hi && !(snd == 2 && aborted) -> taken++; hi = snd :: else fi; if :: snd == 2 && hi == 2 -> upab = true :: else fi;
       assert(snd > acked);
       if :: snd == 2 && aborted ->
#ifdef ABORT_ONCE
              if :: !told -> upw(ABORT, snd, 0, 0); told = true; :: else fi;
#else
              upw(ABORT, snd, upab, 0); told = true;
#endif
              snd++; su = 0
          :: else ->
              assert(!(snd == 2 && aborted));
              upw(DATA, snd, su, 0);
              if :: su+1 == LEN(snd) -> if :: snd == 2 -> lastsent = true :: else fi; su = 0; snd++ :: else -> su++ fi
       fi }
  :: atomic { !aborted && acked < 2 && snd <= 2 -> aborted = true }  /* between frames; also without a connection */
  :: atomic { !aborted && acked < 2 && snd > 2 -> aborted = true;    /* all is in frames: only a resume sends the abort */
#ifdef ABORT_LATE
       if :: st == 2 && snd == 3 && su == 0 -> snd = 2 :: else fi
#endif
     }
  :: atomic { acked == N -> break }
  od;
  assert(stored[1] == 1 && stored[3] == 1 && stored[4] == 1);
  assert(ok2 || aborted);
  if :: ok2 && !aborted -> assert(stored[2] == 1) :: else fi;
  if :: aborted && !lastsent -> assert(stored[2] == 0) :: else -> assert(stored[2] <= 1) fi
}
active proctype E() {
  byte ep = 0, asent = 0, a, b, c, j;
end: do
  :: atomic { (up[1]?[HELLO] && !ecl[1]) -> j = 1; goto take }
#if NC > 1
  :: atomic { (up[2]?[HELLO] && !ecl[2]) -> j = 2; goto take }
#endif
#if NC > 2
  :: atomic { (up[3]?[HELLO] && !ecl[3]) -> j = 3; goto take }
#endif
#if NC > 3
  :: atomic { (up[4]?[HELLO] && !ecl[4]) -> j = 4; goto take }
#endif
#if NC > 4
  :: atomic { (up[5]?[HELLO] && !ecl[5]) -> j = 5; goto take }
#endif
  :: atomic { 0 ->
take:  up[j]?HELLO(a,b,c);
       if :: a <= ep -> ecl[j] = true
          :: else -> if :: ecur -> ecl[ecur] = true; edrain(ecur) :: else fi;
             ecur = j; ep = a; asent = applied; dnw(ANS, putret, applied, aunits); retsent = ret
       fi; a=0;b=0;c=0;j=0 }
  :: atomic { ecur && !(up[ecur]?[HELLO]) && nempty(up[ecur]) ->
       if
       :: up[ecur]?DATA(a,b,c) -> assert(a == applied+1 && b == aunits);
            if :: b+1 == LEN(a) -> stored[a]++; assert(stored[a] == 1); applied++; if :: NOTIF(a) -> queue++; assert(queue <= CR) :: else fi; aunits = 0 :: else -> aunits++ fi
       :: up[ecur]?ABORT(a,b,c) -> assert(a == applied+1); assert(stored[a] == 0); applied++; aunits = 0;
#ifndef KEEP_CREDIT
  if :: b -> ret++ :: else fi
#endif

       fi; a=0;b=0;c=0 }
  :: atomic { ecur && DNDEAD(ecur) -> ecl[ecur] = true; edrain(ecur); ecur = 0 }
  :: atomic { ecur && (applied > asent || ret != retsent) && nfull(dn[ecur]) -> dnw(ACK, applied, putret, 0); retsent = ret; asent = applied }
  od
}
active proctype H() {
end: do :: atomic { queue > 0 -> queue--; ret++ } od }
active proctype NET() {
end: do :: atomic { cuts > 0 && k > 0 && !cut[k] -> cut[k] = true; cuts-- }
        :: atomic { cuts > 0 && k > 1 && !cut[k-1] -> cut[k-1] = true; cuts-- }
     od }
