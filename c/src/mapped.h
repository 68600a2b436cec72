/*
 * The mapped path: stores and loads in an exporter's pages. It does what Mapped.TrySend,
 * Mapped.Send and Mapped.Get of internal/link do, in their order; the golden traces of
 * internal/link/testdata/traces hold for both. It is in a header so that a send of some bytes is
 * one function with the look-up of its address: calls between them were a third of its
 * instructions.
 *
 * Loads of the words of others are sequentially consistent, as Go's are. The exchange of the last
 * word orders it before the loads that follow it.
 */
#ifndef VMMC_MAPPED_H
#define VMMC_MAPPED_H

#include <stdatomic.h>
#include <string.h>

#include "boundary.h"

/* What vmmc_mapped_send and vmmc_mapped_get return. */
enum {
    VMMC_MAPPED_DONE,
    VMMC_MAPPED_SLOW,  /* nothing was stored: Go must take it */
    VMMC_MAPPED_FINISH /* some or all is stored: Go ends the send. A get: repeat it */
};

/* Reports whether a sleeper of the exporter may wait for one of n bytes at off. There is one. */
int vmmc_concerns(const struct vmmcb_path *p, uint64_t off, uint64_t n);

#define VMMC_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The compiler would make a function of it, whose call costs a fifth of a short send. */
#define VMMC_INLINE __attribute__((always_inline)) static inline

#define VMMC_WORD 4u
#define VMMC_PIECE (256u * 1024) /* copied between two looks at the link and the export */

#define VMMC_LOAD(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)

/* Reports whether the link, the import and the export live. */
static inline int vmmc_healthy(const struct vmmcb_path *p) {
    return !VMMC_LOAD(p->link_ended) && !VMMC_LOAD(p->closed) && VMMC_LOAD(p->state) == p->alive;
}

/* Reports whether nothing must come before: no deferred operation, no message of the stream. */
static inline int vmmc_nothing_before(const struct vmmcb_path *p) {
    if (VMMC_LOAD(p->pending) != 0) {
        return 0;
    }
    uint64_t seq = VMMC_LOAD(p->last_seq);
    return seq == VMMC_LOAD(p->acked_seq);
}

/* Adds as Go does: an addition of another thread on this lane at the same instant may be lost. */
static inline void vmmc_count(const struct vmmcb_path *p, unsigned lane, int c, uint64_t n) {
    uint64_t *at = &p->lanes[lane % VMMCB_LANES][c];
    __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* The caller has checked the range. n is a positive number of whole words. */
VMMC_INLINE int vmmc_mapped_send(const struct vmmcb_path *p, uint64_t off, const void *src,
                                 uint64_t n, unsigned lane) {
    if (!(p->rights & VMMCB_EXPORT_WRITE) || !vmmc_nothing_before(p) ||
        VMMC_LOAD(p->import_ended) || !vmmc_healthy(p)) {
        return VMMC_MAPPED_SLOW;
    }
    unsigned char *dst = p->mem + off;
    const unsigned char *from = src;
    uint64_t rest = n;
    while (VMMC_UNLIKELY(rest > VMMC_PIECE)) {
        memcpy(dst, from, VMMC_PIECE);
        dst += VMMC_PIECE;
        from += VMMC_PIECE;
        rest -= VMMC_PIECE;
        if (!vmmc_healthy(p)) {
            return VMMC_MAPPED_FINISH;
        }
    }
    uint32_t last;
    memcpy(&last, from + rest - VMMC_WORD, VMMC_WORD); /* before a store, maybe to where it is */
    if (rest == 2 * VMMC_WORD) {
        uint32_t first;
        memcpy(&first, from, VMMC_WORD);
        __atomic_store_n((uint32_t *)(void *)dst, first, __ATOMIC_RELAXED);
    } else if (rest > VMMC_WORD) {
        memcpy(dst, from, rest - VMMC_WORD);
    }
    __atomic_exchange_n((uint32_t *)(void *)(dst + rest - VMMC_WORD), last, __ATOMIC_SEQ_CST);
    int sleepers = VMMC_LOAD(p->sleepers) != 0;
    if (VMMC_UNLIKELY(!vmmc_healthy(p) || (sleepers && vmmc_concerns(p, off, n)))) {
        return VMMC_MAPPED_FINISH;
    }
    vmmc_count(p, lane, VMMCB_MESSAGES, 1);
    vmmc_count(p, lane, VMMCB_BYTES, n);
    return VMMC_MAPPED_DONE;
}

/*
 * The last word first: a reader that finds a flag there finds what was stored before it. The caller
 * has checked the range.
 */
VMMC_INLINE int vmmc_mapped_get(const struct vmmcb_path *p, uint64_t off, void *dst, uint64_t n,
                                unsigned lane) {
    if (!(p->rights & VMMCB_EXPORT_READ) || !vmmc_nothing_before(p) || VMMC_LOAD(p->import_ended) ||
        !vmmc_healthy(p)) {
        return VMMC_MAPPED_SLOW;
    }
    const unsigned char *from = p->mem + off;
    unsigned char *to = dst;
    uint64_t rest = n - VMMC_WORD;
    uint32_t last = VMMC_LOAD((const uint32_t *)(const void *)(from + rest));
    vmmc_count(p, lane, VMMCB_GETS, 1); /* also one that fails, as Go does */
    vmmc_count(p, lane, VMMCB_GET_BYTES, n);
    while (VMMC_UNLIKELY(rest > VMMC_PIECE)) {
        memcpy(to, from, VMMC_PIECE);
        to += VMMC_PIECE;
        from += VMMC_PIECE;
        rest -= VMMC_PIECE;
        if (!vmmc_healthy(p)) {
            return VMMC_MAPPED_FINISH;
        }
    }
    if (rest == VMMC_WORD) { /* a call of memcpy costs more than the whole rest of a short get */
        memcpy(to, from, VMMC_WORD);
    } else if (rest > 0) {
        memcpy(to, from, rest);
    }
    memcpy(to + rest, &last, VMMC_WORD);
#if defined(__x86_64__) || defined(__SANITIZE_THREAD__) /* which knows no fences */
    atomic_signal_fence(memory_order_acquire); /* the processor keeps loads in order */
#else
    atomic_thread_fence(memory_order_seq_cst); /* an atomic load may pass plain ones before it */
#endif
    if (!vmmc_healthy(p)) {
        return VMMC_MAPPED_FINISH;
    }
    return VMMC_MAPPED_DONE;
}

#endif
