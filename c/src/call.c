/*
 * Calls: records, the queue to Go's threads, and the sleep of the caller. A signal handler runs
 * while a call sleeps, and may make calls itself, or leave by siglongjmp or pthread_exit.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"

#define RECORD 4096
#define FUTEX_WAIT 0 /* musl-gcc has not the kernel's headers */

/* Records that their threads left before Go had completed them. */
static _Atomic(struct vmmcb_record *) abandoned;

static uint32_t state_of(struct vmmcb_record *r) {
    return __atomic_load_n(&r->word, __ATOMIC_ACQUIRE);
}

static void free_record(struct vmmcb_record *r) { munmap(r, sizeof *r + r->data_cap); }

static void put_abandoned(struct vmmcb_record *r) {
    r->outer = atomic_load(&abandoned);
    while (!atomic_compare_exchange_weak(&abandoned, &r->outer, r)) {
    }
}

/*
 * Reports whether Go has filled a record that was left with an event, which the program would
 * otherwise never get.
 */
static int has_event(struct vmmcb_record *r) {
    return r->op == VMMCB_EVENT && state_of(r) == VMMCB_DONE && r->code == 0;
}

/* Gives the event back. The record is freed when Go has read it. */
static void give_event_back(struct vmmcb_record *r) {
    r->op = VMMCB_EVENT_BACK;
    vmmc_push(r);
    put_abandoned(r);
}

/* Frees what Go has completed since. */
static void sweep(void) {
    struct vmmcb_record *r = atomic_exchange(&abandoned, NULL);
    while (r) {
        struct vmmcb_record *next = r->outer;
        if (state_of(r) == VMMCB_PENDING) {
            put_abandoned(r);
        } else if (r->op == VMMCB_CANCEL) {
            put_abandoned((struct vmmcb_record *)(uintptr_t)r->in[0]);
            free_record(r);
        } else if (has_event(r)) {
            give_event_back(r);
        } else {
            free_record(r);
        }
        r = next;
    }
}

/* Has one of Go's threads look at what is queued, and whether handlers may run again. */
void vmmc_ring(void) {
    uint64_t one = 1;
    while (write(vmmc_shared->event, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* Has one of Go's threads run an operation. */
void vmmc_push(struct vmmcb_record *r) {
    struct vmmcb_shared *s = vmmc_shared;
    struct vmmcb_record *head = __atomic_load_n(&s->head, __ATOMIC_RELAXED);
    __atomic_store_n(&r->word, VMMCB_PENDING, __ATOMIC_RELAXED);
    do {
        r->next = head;
    } while (
        !__atomic_compare_exchange_n(&s->head, &head, r, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    __atomic_fetch_add(&s->queued, 1, __ATOMIC_RELAXED);
    vmmc_ring();
}

/*
 * Gives up a call that its thread has left. What is pending Go still completes, and may be reading:
 * it is neither freed nor reused until then.
 */
static void abandon(struct thread *t, struct vmmcb_record *r) {
    if (r->op == VMMCB_BLOCK) { /* it has a level, and its call has not returned */
        vmmc_drop_level();
    }
    if (state_of(r) != VMMCB_PENDING) {
        if (has_event(r)) {
            if (r == t->own) {
                t->own = NULL;
            }
            give_event_back(r);
            return;
        }
        if (r != t->own) {
            free_record(r);
        }
        return;
    }
    if (r == t->own) {
        t->own = NULL;
    }
    struct vmmcb_record *c = vmmc_map(RECORD);
    if (c) {
        c->data_cap = RECORD - sizeof *c;
        c->op = VMMCB_CANCEL;
        c->in[0] = (uintptr_t)r;
        vmmc_push(c);
        put_abandoned(c); /* and, when Go has done it, r */
    } else {
        put_abandoned(r);
    }
}

/* The thread ends. */
void vmmc_abandon_all(struct thread *t) {
    while (t->current) {
        struct vmmcb_record *r = t->current;
        t->current = r->outer;
        abandon(t, r);
    }
    if (t->own) {
        free_record(t->own);
        t->own = NULL;
    }
}

int vmmc_on_alternate_stack(void) {
    stack_t s;
    return sigaltstack(NULL, &s) == 0 && (s.ss_flags & SS_ONSTACK);
}

/* A call whose frame is below this one, or is this one, was left by siglongjmp. */
void vmmc_abandon_left(struct thread *t, uintptr_t frame) {
    while (t->current != NULL && frame >= t->current->frame && !vmmc_on_alternate_stack()) {
        struct vmmcb_record *r = t->current;
        t->current = r->outer;
        abandon(t, r);
    }
}

/* A record for an operation, with room for `data` bytes; NULL if there is no memory. */
__attribute__((noinline)) struct vmmcb_record *vmmc_begin(struct thread *t, uint32_t op,
                                                          size_t data) {
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    if (UNLIKELY(t->current != NULL)) {
        vmmc_abandon_left(t, frame);
    }
    if (UNLIKELY(atomic_load_explicit(&abandoned, memory_order_relaxed) != NULL)) {
        sweep();
    }
    struct vmmcb_record *r = NULL;
    if (!t->own) {
        r = vmmc_map(RECORD);
        if (!r) {
            return NULL;
        }
        r->data_cap = RECORD - sizeof *r;
        if (t->own) { /* a signal handler's call was quicker */
            free_record(r);
        } else {
            t->own = r;
        }
    }
    int busy = 0;
    for (struct vmmcb_record *c = t->current; c; c = c->outer) {
        busy |= c == t->own;
    }
    if (LIKELY(!busy && data <= t->own->data_cap)) {
        r = t->own;
    } else {
        size_t size =
            sizeof *r + data < RECORD ? RECORD : (sizeof *r + data + 4095) & ~(size_t)4095;
        r = vmmc_map(size);
        if (!r) {
            return NULL;
        }
        r->data_cap = (uint32_t)(size - sizeof *r);
    }
    r->word = VMMCB_FILLING;
    r->op = op;
    r->code = 0;
    r->data_len = 0;
    r->text[0] = 0;
    r->in_handler = (uint32_t)t->in_handler;
    r->frame = frame;
    r->outer = t->current;
    memset(r->in, 0, sizeof r->in);
    memset(r->out, 0, sizeof r->out);
    atomic_signal_fence(memory_order_seq_cst);
    t->current = r;
    return r;
}

/* Ends a call, keeps why it failed, and returns its code. The record is not touched any more. */
int vmmc_end(struct thread *t, struct vmmcb_record *r) {
    int code = r->code;
    if (code != 0) {
        memcpy(t->text, r->text, sizeof t->text);
        t->text[sizeof t->text - 1] = 0;
    }
    t->current = r->outer;
    atomic_signal_fence(memory_order_seq_cst);
    if (r != t->own) {
        free_record(r);
    }
    return code;
}

/* Runs an operation in Go on this thread, and returns its code, or VMMCB_WOULD_WAIT. */
int vmmc_now(struct thread *t, struct vmmcb_record *r) {
    __atomic_fetch_add(&vmmc_shared->now_calls, 1, __ATOMIC_RELAXED);
    vmmc_enter(vmmc_go_now, r, t);
    return r->code;
}

/* Has one of Go's threads run an operation, sleeps until it is done, and returns its code. */
int vmmc_queue(struct thread *t, struct vmmcb_record *r) {
    (void)t;
    vmmc_push(r);
    while (state_of(r) == VMMCB_PENDING) {
        syscall(SYS_futex, &r->word, FUTEX_WAIT, VMMCB_PENDING, NULL, NULL, 0);
    }
    return r->code;
}
