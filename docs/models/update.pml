/*
 * Automatic update: one writer stores to words by plain stores, a scanner carries them
 * over (internal/update). Two pages of one word each, and a flag in a page of its own.
 *
 * A page is protected or not; a store to a protected page takes the protection off,
 * which is how the kernel knows of it, in one step with the store or before it (the
 * fault comes first, the store is repeated after it). A scan sees the pages that are
 * not protected, with PROTECT it protects them in the same step. A page may be hot.
 * Comparing loads a word and takes over what it has loaded.
 *
 * Checked: when a full pass is over, the far side has, of each word, what was stored
 * before the pass began or something newer (nothing is lost, a flush is a fence); and
 * a reader that finds flag n finds data of round n or newer.
 *
 * A full pass may be given up in its middle (a flush whose context ends): it is over then,
 * without the flag, and what it has protected it has compared.
 *
 * A full pass over much memory may ask for all pages at once which are not protected
 * (prescan.go), and look at those alone.
 *
 * Variants that break:
 *   ASK_EARLY   it asks before the flags are loaded
 *   DIFF_FIRST  compare, then protect
 *   COOL_FIRST  a hot page is compared, then protected when it cools
 *   FLAG_LATE   flags are loaded after the data was compared
 *   FLAG_THIN   a flag that changed does not make the pass a full one
 *   NO_HOT      hot pages are left out of a flush
 *   CUT_FLAG    a pass that was given up sends the flag all the same
 */
#ifndef ROUNDS
#define ROUNDS 3
#endif
#define P 2

byte near[P], twin[P], far[P];
bool prot[P] = true, hot[P];
byte flag, ftwin, ffar;
byte begun[P];     /* ghost: what was stored when the pass began */

inline compare(p) {
	byte v;
	v = near[p];
	if
	:: v != twin[p] -> twin[p] = v; far[p] = v
	:: else
	fi;
	v = 0
}

/* a store: a fault if the page is protected, then the store, unless it was protected
   again between the two, which is another fault */
inline store(p, v) {
	do
	:: atomic { !prot[p] -> near[p] = v; break }
	:: atomic { prot[p] -> prot[p] = false }
	od
}

active proctype writer() {
	byte r = 1;
	do
	:: r <= ROUNDS ->
		if
		:: store(0, r); store(1, r)
		:: store(1, r); store(0, r)
		fi;
		flag = r;
		r++
	:: else -> break
	od
}

inline cold(p) {
	/* hot pages are compared elsewhere */
	if
	:: hot[p]
	:: else ->
		if
		:: atomic { prot[p] }    /* nothing was stored */
		:: atomic { !prot[p] -> skip };
			if
			:: hot[p] = true; compare(p)           /* room: it stays writable */
			:: compare(p)                          /* a sweep that does not protect */
			:: 
#ifdef DIFF_FIRST
				compare(p); prot[p] = true
#else
				prot[p] = true; compare(p)
#endif
			fi
		fi
	fi
}

inline cool(p) {
	if
	:: hot[p] ->
#ifdef COOL_FIRST
		compare(p); prot[p] = true; hot[p] = false
#else
		prot[p] = true; hot[p] = false; compare(p)
#endif
	:: else
	fi
}

inline warm(p) {
	if
	:: hot[p] -> compare(p)
	:: else
	fi
}

/* the pages are asked about one after another, by several threads in any order */
inline ask() {
	if
	:: ahead = false
	:: ahead = true;
		if
		:: asked[0] = !prot[0]; asked[1] = !prot[1]
		:: asked[1] = !prot[1]; asked[0] = !prot[0]
		fi
	fi
}

inline found(p) {
	if
	:: ahead && !asked[p]
	:: else -> cold(p)
	fi
}

active proctype scanner() {
	byte f;
	bool whole, flush, cut, ahead, asked[P];
	byte passes = 0;
end:	do
	:: passes < ROUNDS + 2 ->
		passes++;
		if
		:: flush = true
		:: flush = false
		fi;
		atomic { begun[0] = near[0]; begun[1] = near[1] };
		whole = flush;
#ifdef ASK_EARLY
		ask();
#endif
#ifndef FLAG_LATE
		f = flag;
#ifndef FLAG_THIN
		whole = whole || f != ftwin;
#endif
#endif
#ifdef NO_HOT
		if
		:: !flush -> warm(0); warm(1)
		:: else
		fi;
#else
		warm(0); warm(1);
#endif
#ifndef ASK_EARLY
		ask();
#endif
		if
		:: whole -> found(0); found(1); cut = false
		:: whole -> found(0); cut = true
		:: whole -> cut = true
		:: !whole -> cold(0); cut = false
		:: !whole -> cold(1); cut = false
		fi;
		atomic { ahead = false; asked[0] = false; asked[1] = false };
#ifdef FLAG_LATE
		f = flag;
#endif
		if
#ifdef CUT_FLAG
		:: f != ftwin -> ftwin = f; ffar = f; assert(far[0] >= ffar && far[1] >= ffar)
#else
		:: f != ftwin && !cut -> ftwin = f; ffar = f; assert(far[0] >= ffar && far[1] >= ffar)
#endif
		:: else
		fi;
		if
		:: whole && !cut -> assert(far[0] >= begun[0] && far[1] >= begun[1])
		:: else
		fi;
		if
		:: true -> cool(0)
		:: true -> cool(1)
		:: true -> skip
		fi
	:: else -> break
	od
}
