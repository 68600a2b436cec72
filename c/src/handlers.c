/*
 * Notification handlers, which run on one thread of the library unless the program polls. It asks
 * Go for a job, which Go's dispatcher gives it, runs the handler, and asks again: that is the
 * answer to the job. The calls of a handler are queued to the dispatcher's goroutine, which waits
 * for the answer.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "core.h"

/* Who runs handlers is decided once. */
enum { UNDECIDED, THREAD, POLLING };
static _Atomic int mode;
static pthread_mutex_t deciding = PTHREAD_MUTEX_INITIALIZER;
static vmmc_mask mask; /* of the thread that needed the first handler */

static void *run_handlers(void *unused);

static int make_thread(void) {
    pthread_t id;
    pthread_attr_t detached;
    if (pthread_attr_init(&detached) != 0) {
        return -1;
    }
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&id, &detached, run_handlers, NULL);
    pthread_attr_destroy(&detached);
    return failed ? -1 : 0;
}

/* A handler has ended its thread: another one takes its place, and answers for it. */
static void replace(void *unused) {
    (void)unused;
    make_thread();
}

static void run_one(struct thread *t, struct vmmcb_record *r) {
    vmmc_callback_t f = (vmmc_callback_t)(uintptr_t)r->out[0];
    int32 *last = (int32 *)(uintptr_t)r->out[1];
    int32 value = (int32)r->out[2];
    vmmc_end(t, r); /* the handler's calls are not nested in this one */
    t->in_handler = 1;
    f(last, value);
    t->in_handler = 0;
}

static void *run_handlers(void *unused) {
    (void)unused;
    vmmc_restore_signals(mask);
    struct thread *t = vmmc_thread();
    pthread_cleanup_push(replace, NULL);
    while (t) {
        t->in_handler = 0;
        struct vmmcb_record *r = vmmc_begin(t, VMMCB_HANDLERS, 0);
        if (!r) {
            break;
        }
        if (vmmc_queue(t, r) != 0) {
            vmmc_end(t, r);
            break;
        }
        run_one(t, r);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/*
 * Makes the thread, once and unless the program polls. It has the signal mask of the first thread
 * that needs it.
 */
int vmmc_start_handlers(void) {
    if (atomic_load(&mode) != UNDECIDED) {
        return 0;
    }
    int failed = 0;
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    pthread_mutex_lock(&deciding);
    if (atomic_load(&mode) == UNDECIDED) {
        mask = old;
        failed = make_thread();
        if (!failed) {
            atomic_store(&mode, THREAD);
        }
    }
    pthread_mutex_unlock(&deciding);
    vmmc_restore_signals(old);
    return failed;
}

/* Has the program run handlers. Reports by 0 that a thread of the library does so already. */
int vmmc_choose_polling(void) {
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    pthread_mutex_lock(&deciding);
    if (atomic_load(&mode) == UNDECIDED) {
        atomic_store(&mode, POLLING);
    }
    pthread_mutex_unlock(&deciding);
    vmmc_restore_signals(old);
    return atomic_load(&mode) == POLLING;
}

/* Begins a call without arguments; NULL if that fails, with the code in *code. */
static struct vmmcb_record *begin(uint32_t op, struct thread **t, int *code) {
    *code = vmmc_ready();
    if (*code != 0) {
        return NULL;
    }
    *t = vmmc_thread();
    struct vmmcb_record *r = *t ? vmmc_begin(*t, op, 0) : NULL;
    if (!r) {
        *code = vmmc_fail(vmmcErr_NoMem, "change blocking: no memory for a record");
    }
    return r;
}

/*
 * Levels of blocking of the program, not of its handlers, in one word: how many there are, and how
 * many of them Go knows. While no export has had a handler Go need know none. Afterwards it knows
 * one at least, if there is one, so that only the first and the last level enter Go, and never more
 * than there are. A level that Go is being told of is not counted yet: only when Go has it has the
 * running handler returned.
 */
#define LEVELS 0xffffffffu
#define KNOWN ((uint64_t)1 << 32) /* a level that Go knows */
#define KNOWN_OF(s) ((s) >> 32 & 0x7fffffff)
#define HANDLERS ((uint64_t)1 << 63)
static _Atomic uint64_t levels;

/* Takes or gives back a level in Go. */
static int tell_go(uint32_t op, uint64_t *left) {
    struct thread *t;
    int code;
    struct vmmcb_record *r = begin(op, &t, &code);
    if (!r) {
        return code;
    }
    if (op == VMMCB_BLOCK) {
        vmmc_queue_running(t, r);
    } else {
        vmmc_queue(t, r);
    }
    *left = r->out[0];
    return vmmc_end(t, r);
}

/* An export gets a handler. Levels that Go has not been told of must hold that back. */
int vmmc_tell_levels(void) {
    uint64_t s = atomic_fetch_or(&levels, HANDLERS), left;
    if (s & HANDLERS || (s & LEVELS) == 0) {
        return 0;
    }
    int code = tell_go(VMMCB_BLOCK, &left);
    s = atomic_load(&levels);
    while (code == 0 && !atomic_compare_exchange_weak(&levels, &s, s + KNOWN)) {
        if (KNOWN_OF(s) >= (s & LEVELS)) { /* what was there was given back meanwhile */
            return tell_go(VMMCB_UNBLOCK, &left);
        }
    }
    return code;
}

/* Reports whether a level may be added without Go. */
static int may_count(uint64_t s) {
    if ((s & LEVELS) == LEVELS) {
        return 0;
    }
    return s & HANDLERS ? KNOWN_OF(s) > 0
                        : __atomic_load_n(&vmmc_shared->joined, __ATOMIC_ACQUIRE) != 0;
}

static int in_handler(void) { return vmmc_self && vmmc_self->in_handler; }

API void vmmc_BlockNotifications(void) {
    uint64_t s = atomic_load(&levels), left;
    if (vmmc_ready() != 0) {
        return;
    }
    if (in_handler()) { /* its levels are its own, and Go counts them */
        tell_go(VMMCB_BLOCK, &left);
        return;
    }
    while (may_count(s)) {
        if (atomic_compare_exchange_weak(&levels, &s, s + 1)) {
            return;
        }
    }
    if (tell_go(VMMCB_BLOCK, &left) == 0) {
        atomic_fetch_add(&levels, KNOWN + 1);
    }
}

/* Positive: notifications are delivered; 0: a level is left (the manual's section 8, page 55). */
API int vmmc_UnblockNotifications(void) {
    uint64_t s = atomic_load(&levels), left;
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    while ((s & LEVELS) > 0 && !in_handler()) {
        uint64_t rest = (s & LEVELS) - 1;
        int known = KNOWN_OF(s) > rest;
        if (atomic_compare_exchange_weak(&levels, &s, s - 1 - (known ? KNOWN : 0))) {
            code = known ? tell_go(VMMCB_UNBLOCK, &left) : 0;
            return code != 0 ? code : rest == 0;
        }
    }
    code = tell_go(VMMCB_UNBLOCK, &left);
    return code != 0 ? code : left == 0;
}
