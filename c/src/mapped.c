/*
 * The mapped path. It does what Mapped.TrySend, Mapped.Send and Mapped.Get of internal/link do, in
 * their order; the golden traces of internal/link/testdata/traces hold for both.
 *
 * Loads of the words of others are sequentially consistent, as Go's are. The exchange of the last
 * word orders it before the loads that follow it.
 */
#include <stdatomic.h>
#include <string.h>

#include "mapped.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define WORD 4u
#define PIECE (256u * 1024) /* copied between two looks at the link and the export */

#define LOAD(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)

/* Reports whether the link, the import and the export live. */
static int healthy(const struct vmmcb_path *p) {
    return !LOAD(p->link_ended) && !LOAD(p->closed) && LOAD(p->state) == p->alive;
}

/* Reports whether nothing must come before: no deferred operation, no message of the stream. */
static int nothing_before(const struct vmmcb_path *p) {
    if (LOAD(p->pending) != 0) {
        return 0;
    }
    uint64_t seq = LOAD(p->last_seq);
    return seq == LOAD(p->acked_seq);
}

/* Adds as Go does: an addition of another thread on this lane at the same instant may be lost. */
static void count(const struct vmmcb_path *p, unsigned lane, int c, uint64_t n) {
    uint64_t *at = &p->lanes[lane % VMMCB_LANES][c];
    __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* Reports whether a sleeper of the exporter may wait for one of n bytes at off. There is one. */
static int concerns(const struct vmmcb_path *p, uint64_t off, uint64_t n) {
    if (p->address == 0 || LOAD(p->sleepers_any) != 0) {
        return 1;
    }
    uint64_t at = p->address + off;
    for (int i = 0; i < VMMCB_BOARD_WORDS; i++) {
        uint64_t w = LOAD(&p->sleepers_at[i]);
        if (w != 0 && (w - at < n || at - w < WORD)) {
            return 1;
        }
    }
    return 0;
}

/* The caller has checked the range. n is a positive number of whole words. */
int vmmc_mapped_send(const struct vmmcb_path *p, uint64_t off, const void *src, uint64_t n,
                     unsigned lane) {
    if (!(p->rights & VMMCB_EXPORT_WRITE) || !nothing_before(p) || LOAD(p->import_ended) ||
        !healthy(p)) {
        return VMMC_MAPPED_SLOW;
    }
    unsigned char *dst = p->mem + off;
    const unsigned char *from = src;
    uint64_t rest = n;
    while (UNLIKELY(rest > PIECE)) {
        memcpy(dst, from, PIECE);
        dst += PIECE;
        from += PIECE;
        rest -= PIECE;
        if (!healthy(p)) {
            return VMMC_MAPPED_FINISH;
        }
    }
    uint32_t last;
    memcpy(&last, from + rest - WORD, WORD); /* before a store, maybe to where it is */
    if (rest == 2 * WORD) {
        uint32_t first;
        memcpy(&first, from, WORD);
        __atomic_store_n((uint32_t *)(void *)dst, first, __ATOMIC_RELAXED);
    } else if (rest > WORD) {
        memcpy(dst, from, rest - WORD);
    }
    __atomic_exchange_n((uint32_t *)(void *)(dst + rest - WORD), last, __ATOMIC_SEQ_CST);
    int sleepers = LOAD(p->sleepers) != 0;
    if (UNLIKELY(!healthy(p) || (sleepers && concerns(p, off, n)))) {
        return VMMC_MAPPED_FINISH;
    }
    count(p, lane, VMMCB_MESSAGES, 1);
    count(p, lane, VMMCB_BYTES, n);
    return VMMC_MAPPED_DONE;
}

/*
 * The last word first: a reader that finds a flag there finds what was stored before it. The caller
 * has checked the range.
 */
int vmmc_mapped_get(const struct vmmcb_path *p, uint64_t off, void *dst, uint64_t n, unsigned lane) {
    if (!(p->rights & VMMCB_EXPORT_READ) || !nothing_before(p) || LOAD(p->import_ended) ||
        !healthy(p)) {
        return VMMC_MAPPED_SLOW;
    }
    const unsigned char *from = p->mem + off;
    unsigned char *to = dst;
    uint64_t rest = n - WORD;
    uint32_t last = LOAD((const uint32_t *)(const void *)(from + rest));
    count(p, lane, VMMCB_GETS, 1); /* also one that fails, as Go does */
    count(p, lane, VMMCB_GET_BYTES, n);
    while (UNLIKELY(rest > PIECE)) {
        memcpy(to, from, PIECE);
        to += PIECE;
        from += PIECE;
        rest -= PIECE;
        if (!healthy(p)) {
            return VMMC_MAPPED_FINISH;
        }
    }
    memcpy(to, from, rest);
    memcpy(to + rest, &last, WORD);
#if defined(__x86_64__) || defined(__SANITIZE_THREAD__) /* which knows no fences */
    atomic_signal_fence(memory_order_acquire); /* the processor keeps loads in order */
#else
    atomic_thread_fence(memory_order_seq_cst); /* an atomic load may pass plain ones before it */
#endif
    if (!healthy(p)) {
        return VMMC_MAPPED_FINISH;
    }
    return VMMC_MAPPED_DONE;
}
