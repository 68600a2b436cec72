/*
 * Epochs: what says that a thread may be using the pages and words of an import, which Go then does
 * not give back. See struct vmmcb_epoch.
 *
 * The whole state is one word, so that a signal handler of the program finds it consistent wherever
 * it interrupts. It has the address of the frame that the word was made odd for: a call from a
 * frame below that one is a handler's, and is protected by the interrupted call's odd word. A call
 * from any other frame finds that the one before was left by siglongjmp.
 */
#define _GNU_SOURCE
#include "core.h"

/* How many are taken. A thread counts its own before it looks for it. */
static _Atomic uint32_t held;
static _Atomic uint32_t next; /* where the next search begins: behind the last one that was taken */

/*
 * Gives the thread an epoch. Reports whether it has one. Each transfer of a thread without one
 * comes here, so where there is none it must not look at all of them.
 */
int vmmc_take_epoch(struct thread *t) {
    struct vmmcb_shared *s = vmmc_shared;
    if (atomic_load_explicit(&held, memory_order_relaxed) >= VMMCB_EPOCHS) {
        return 0;
    }
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    if (atomic_fetch_add(&held, 1) >= VMMCB_EPOCHS) {
        atomic_fetch_sub(&held, 1);
        vmmc_restore_signals(old);
        return 0;
    }
    uint32_t first = atomic_load(&next);
    for (uint32_t k = 0; !t->epoch && k < VMMCB_EPOCHS; k++) {
        uint32_t i = (first + k) % VMMCB_EPOCHS;
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
            atomic_store(&next, i + 1);
        }
    }
    if (!t->epoch) {
        atomic_fetch_sub(&held, 1);
    }
    vmmc_restore_signals(old);
    return t->epoch != NULL;
}

/*
 * Reports whether a call with this frame interrupts the one that has made the epoch odd. Otherwise
 * that one was left.
 */
int vmmc_interrupts(uint64_t now, uintptr_t frame) {
    return VMMC_FRAME(frame) < (VMMC_FRAME(now) & ~(uint64_t)1) || vmmc_on_alternate_stack();
}

/* The thread ends, perhaps by pthread_exit in a handler that interrupts a call. */
void vmmc_drop_epoch(struct thread *t) {
    if (t->epoch) {
        vmmc_leave_epoch(t);
        __atomic_store_n(&t->epoch->taken, 0, __ATOMIC_RELEASE);
        atomic_store(&next, (uint32_t)(t->epoch - vmmc_shared->epochs)); /* few are ever used */
        atomic_fetch_sub(&held, 1);
        t->epoch = NULL;
    }
}
