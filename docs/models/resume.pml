/* resume.pml - a link between nodes that is resumed after its connection broke, as internal/link has it: the importer
 * (conn_reconnect.go, send_retransmit.go) dials, the exporter (conn_reconnect.go, recv_reply.go) answers what it has applied, and each sends again what the
 * other does not have.
 * Models: an importer I and an exporter E with messages 1 to 4: data of two frames, an atomic, a get, data of one frame; the
 * result of the atomic, and the reply to the get of two frames. At most one of the two may be unanswered, and E keeps as
 * many. Connection k has a queue each way; a cut drops what is written after it, and what was written before may still be
 * read, all of it or the beginning. E may take the hellos of all connections that were ever dialled, in any order.
 * CUTS cuts and SPUR connections that I gives up for no reason. A process at E stores data and then a flag, which the get
 * reads. BAD frames behind the hello and its answer are lost, come twice or change places with the next one. Each frame has its
 * number in its direction of its connection (wire.Header.Put); a side that reads another one gives the connection up, and so
 * does I, which hears nothing, after a loss: all that is modelled is waited for. A notice that an import is no more, or that one is
 * closed, is missed when the next frame goes its way, or the next message to that import.
 * Checked: each message is applied once, in order, without gaps; the atomic is done once, and its result arrives; the reply
 * is that of one get, in order, and has the data if it has the flag; nothing is asked for that was dropped; each fault costs
 * at most one connection more, so all ends.
 * Flags that break it:
 *   -DNO_CLOSE      E goes on reading the connection before, after it has answered
 *   -DREAD_ON       I goes on reading the connection before, after its hello
 *   -DSAME_ATTEMPT  an attempt has the number of the last one that was answered, plus one, and E takes only greater ones
 *   -DTAKE_SAME     the same, and E takes equal ones too
 *   -DGET_MIDDLE    a reply goes on in its middle, with a last word that was read again
 *   -DASK_MORE      I asks a get while the atomic is not answered, and E keeps one
 *   -DOVERTAKE      a later message does not wait for a get that reads the same place
 *   -DNO_NUMBER     with -DBAD=1: frames are read whatever their numbers are
 * Run: spin -a [flags] resume.pml; gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; ./pan -m1000000
 */
#ifndef CUTS
#define CUTS 2
#endif
#ifndef SPUR
#define SPUR 1
#endif
#ifndef BAD
#define BAD 0
#endif
#define NC (1+CUTS+SPUR+BAD)
#define N 4
mtype = {HELLO, ANS, DATA, ATOM, GET, ACK, RES, GREP};
chan up[NC+1] = [2] of {mtype, byte, byte, byte, byte};
chan dn[NC+1] = [2] of {mtype, byte, byte, byte, byte};
bool cut[NC+1], icl[NC+1], ecl[NC+1];
byte cuts = CUTS, spur = SPUR, bad = BAD, k = 0, ecur = 0;
byte us, ur, ds, dr;            /* numbers of the next frames on I's and E's connections: up and down, sent and read */
bool quiet[NC+1];               /* something was lost, and I may wait in vain */
byte ma, mb, mf, x, exec, res;  /* E: its memory, the result that it keeps */
byte applied, aunits;           /* E: messages applied, frames of the next one */
byte rapplied, runits;          /* I: replies, frames of the next one */
byte acked;                     /* I: what it has dropped */
#ifdef OVERTAKE
#define MAY4 true
#else
#define MAY4 (snd < 4 || rapplied == 2)
#endif
#ifdef ASK_MORE
#define MAY3 true
#else
#define MAY3 (snd != 3 || rapplied >= 1)
#endif
#define LEN(m) (m==1 -> 2 : 1)
#define UPDEAD(c) (cut[c]||ecl[c])
#define DNDEAD(c) (cut[c]||icl[c])
inline upw(a,b,c,d) { if :: UPDEAD(k) -> skip :: else -> up[k]!a,b,c,d,us; us++ fi }
inline dnw(a,b,c,d) { if :: DNDEAD(ecur) -> skip :: else -> dn[ecur]!a,b,c,d,ds; ds++ fi }
#ifdef NO_NUMBER
#define UPNEXT(q) true
#define DNNEXT(q) true
#else
#define UPNEXT(q) (up[q]?[_,_,_,_,eval(ur)])
#define DNNEXT(q) (dn[q]?[_,_,_,_,eval(dr)])
#endif
#ifdef READ_ON
inline idrain() { skip }
#else
inline idrain() { do :: nempty(dn[k]) -> dn[k]?_,_,_,_,_ :: empty(dn[k]) -> break od }
#endif
inline edrain(q) { do :: nempty(up[q]) -> up[q]?_,_,_,_,_ :: empty(up[q]) -> break od }
inline iread(q) {
  if
  :: dn[q]?ANS(a,b,c,_) ->
       assert(b >= acked);            /* nothing freed is asked for */
       acked = b; snd = b+1; su = c; st = 2; conf = a
  :: dn[q]?ACK(a,b,c,_) -> if :: a > acked -> acked = a :: else fi
  :: dn[q]?RES(a,b,c,_) -> assert(a == rapplied+1); assert(b == 7 && exec == 1); rapplied++;
  :: dn[q]?GREP(a,b,c,_) -> assert(a == rapplied+1 && (b/4) == runits);
       if :: (b/4) == 0 -> ga = (b&1); runits = 1
          :: else -> runits = 0; rapplied++;
               assert(!(c==1 && (ga == 0 || (b&1) == 0)));   /* flag set => data fresh */
               assert(!(b&2));                  /* nothing of a later message */
       fi
  fi; dr++; a=0;b=0;c=0 }

active proctype I() {
  byte st = 0, snd = 1, su = 0, ga = 0, conf = 0, a, b, c;
  do
  :: atomic { st == 0 && !(acked == N && rapplied == 2) ->
       assert(k < NC); k++; us = 0; dr = 0;
#ifndef GET_MIDDLE
       runits = 0;               /* a partial get reply is thrown away */
#endif
#if defined(SAME_ATTEMPT) || defined(TAKE_SAME)
       upw(HELLO, conf+1, rapplied, runits);
#else
       upw(HELLO, k, rapplied, runits);
#endif
       st = 1 }
  :: atomic { st > 0 && spur > 0 -> spur--; icl[k] = true; idrain(); st = 0 }
  :: atomic { st > 0 && UPDEAD(k) -> icl[k] = true; idrain(); st = 0 }
  :: atomic { st > 0 && quiet[k] -> icl[k] = true; idrain(); st = 0 }
  :: atomic { st > 0 && nempty(dn[k]) && !DNNEXT(k) -> icl[k] = true; idrain(); st = 0 }
  :: atomic { st > 0 && nempty(dn[k]) && DNNEXT(k) -> iread(k) }
#ifdef READ_ON
  :: atomic { st > 0 && k > 1 && dn[k-1]?[ANS] -> dn[k-1]?ANS(_,_,_,_) }
  :: atomic { st > 0 && k > 1 && nempty(dn[k-1]) && !(dn[k-1]?[ANS]) -> iread((k-1)) }
#endif
  :: atomic { st == 2 && snd <= N && nfull(up[k]) && MAY3 && MAY4 ->
       assert(snd > acked);
       if :: snd == 2 -> upw(ATOM, snd, 0, 0)
          :: snd == 3 -> upw(GET, snd, 0, 0)
          :: else -> upw(DATA, snd, su, 0) fi;
       if :: su+1 == LEN(snd) -> su = 0; snd++ :: else -> su++ fi }
  :: atomic { acked == N && rapplied == 2 -> break }
  od
}

inline eread(q) {
  if
  :: up[q]?DATA(a,b,c,_) -> assert(a == applied+1 && b == aunits);
       if :: b+1 == LEN(a) -> applied++; aunits = 0; if :: a == 4 -> x = 2 :: else fi
          :: else -> aunits++ fi
  :: up[q]?ATOM(a,b,c,_) -> assert(a == applied+1); applied++; exec++; assert(exec == 1); res = 7; rq = 1
  :: up[q]?GET(a,b,c,_)  -> assert(a == applied+1); applied++; rq = 2; racked = 1   /* keeps one: this */
  fi; ur++; a=0;b=0;c=0 }

active proctype E() {
  byte ep = 0, rq = 0, rs = 1, ru = 0, racked = 0, asent = 0, ef = 0, a, b, c, j;
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
take:  up[j]?HELLO(a,b,c,_);
#ifdef TAKE_SAME
       if :: a < ep
#else
       if :: a <= ep
#endif
             -> ecl[j] = true
          :: else ->
#ifndef NO_CLOSE
             if :: ecur -> ecl[ecur] = true; edrain(ecur) :: else fi;
#endif
             ecur = j; ep = a; ur = 1; ds = 0;
             assert(b >= racked); racked = b; rs = b+1; ru = c; asent = applied; ef = mf;
             dnw(ANS, ep, applied, aunits)
       fi; a=0;b=0;c=0;j=0 }
  :: atomic { ecur && !(up[ecur]?[HELLO]) && nempty(up[ecur]) && UPNEXT(ecur) -> eread(ecur) }
  :: atomic { ecur && !(up[ecur]?[HELLO]) && nempty(up[ecur]) && !UPNEXT(ecur) -> ecl[ecur] = true; edrain(ecur); ecur = 0 }
#ifdef NO_CLOSE
  :: atomic { ecur > 1 && !(up[ecur-1]?[HELLO]) && nempty(up[ecur-1]) -> eread((ecur-1)) }
#endif
  :: atomic { ecur && DNDEAD(ecur) -> ecl[ecur] = true; edrain(ecur); ecur = 0 }
  :: atomic { ecur && applied > asent && nfull(dn[ecur]) -> dnw(ACK, applied, 0, 0); asent = applied }
  :: atomic { ecur && rs <= rq && nfull(dn[ecur]) ->
       assert(rs > racked);                  /* freed result never needed */
       if :: rs == 1 -> dnw(RES, 1, res, 0); rs++
          :: else ->                         /* get reply: last word read first, body later */
             if :: ru == 0 -> ef = mf; dnw(GREP, 2, 0+ma+x, ef); ru = 1
                :: else -> dnw(GREP, 2, 4+mb+x, ef); ru = 0; rs++ fi
       fi }
  od
}
active proctype W() { ma = 1; mb = 1; mf = 1 }      /* at E: data, then the flag */
inline harm(q) { bad--;
  q?m,a,b,c,d;
  if :: quiet[k] = true                                        /* lost */
     :: empty(q) -> q!m,a,b,c,d; q!m,a,b,c,d                   /* twice */
     :: nempty(q) -> q!m,a,b,c,d; quiet[k] = true              /* changed places: two fit */
  fi; m=0;a=0;b=0;c=0;d=0 }
active proctype NET() {
  mtype m; byte a, b, c, d;
end: do :: atomic { cuts > 0 && k > 0 && !cut[k] -> cut[k] = true; cuts-- }
        :: atomic { bad > 0 && k > 0 && !UPDEAD(k) && nempty(up[k]) && !(up[k]?[HELLO]) -> harm(up[k]) }
        :: atomic { bad > 0 && k > 0 && !DNDEAD(k) && nempty(dn[k]) && !(dn[k]?[ANS]) -> harm(dn[k]) }
        :: atomic { cuts > 0 && k > 1 && !cut[k-1] -> cut[k-1] = true; cuts-- }
     od }
