/*
 * Epochs: what says that a thread may be using the pages and words of an import, which Go then does
 * not give back. See struct vmmcb_epoch.
 *
 * The whole state is one word, so that a signal handler of the program finds it consistent wherever
 * it interrupts. It has the address of the frame that the word was made odd for: a call from a frame
 * below that one is a handler's, and is protected by the interrupted call's odd word. A call from
 * any other frame finds that the one before was left by siglongjmp.
 */
#define _GNU_SOURCE
#include "core.h"

#define FRAME_MASK (((uint64_t)1 << VMMCB_FRAME_BITS) - 1)

static int take_epoch(struct thread *t) {
    struct vmmcb_shared *s = vmmc_shared;
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    for (uint32_t i = 0; !t->epoch && i < VMMCB_EPOCHS; i++) {
        struct vmmcb_epoch *e = &s->epochs[i];
        uint32_t none = 0;
        if (__atomic_load_n(&e->taken, __ATOMIC_RELAXED) == 0 &&
            __atomic_compare_exchange_n(&e->taken, &none, 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            uint32_t used = __atomic_load_n(&s->epochs_used, __ATOMIC_SEQ_CST);
            while (used <= i && !__atomic_compare_exchange_n(&s->epochs_used, &used, i + 1, 0,
                                                             __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            }
            t->epoch = e;
        }
    }
    vmmc_restore_signals(old);
    return t->epoch != NULL;
}

/*
 * Returns 1 for a caller that must leave the epoch, 0 for one that interrupts a call which does,
 * and -1 where there is none left.
 */
int vmmc_enter_epoch(struct thread *t, uintptr_t frame) {
    if (UNLIKELY(!t->epoch) && !take_epoch(t)) {
        return -1;
    }
    uint64_t now = __atomic_load_n(&t->epoch->now, __ATOMIC_RELAXED);
    if (UNLIKELY(now & 1) &&
        ((frame & FRAME_MASK) < (now & FRAME_MASK & ~(uint64_t)1) || vmmc_on_alternate_stack())) {
        return 0;
    }
    now = ++t->epochs << VMMCB_FRAME_BITS | (frame & FRAME_MASK) | 1;
    if (LIKELY(!__atomic_load_n(&vmmc_shared->barriers, __ATOMIC_RELAXED))) {
        __atomic_store_n(&t->epoch->now, now, __ATOMIC_RELAXED);
        atomic_signal_fence(memory_order_seq_cst); /* Go's membarrier does the rest */
    } else {
        __atomic_exchange_n(&t->epoch->now, now, __ATOMIC_SEQ_CST);
    }
    return 1;
}

void vmmc_leave_epoch(struct thread *t) {
    __atomic_store_n(&t->epoch->now, t->epochs << VMMCB_FRAME_BITS, __ATOMIC_RELEASE);
}

/* The thread ends, perhaps by pthread_exit in a handler that interrupts a call. */
void vmmc_drop_epoch(struct thread *t) {
    if (t->epoch) {
        vmmc_leave_epoch(t);
        __atomic_store_n(&t->epoch->taken, 0, __ATOMIC_RELEASE);
        t->epoch = NULL;
    }
}

/* The lane of a link's counters that the thread adds to. */
unsigned vmmc_lane(struct thread *t) {
    return (unsigned)(t->epoch - vmmc_shared->epochs) % VMMCB_LANES;
}
