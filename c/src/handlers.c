/*
 * Notification handlers, which run on one thread of the library unless the program polls. It asks
 * Go for a job, which Go's dispatcher gives it, runs the handler, and asks again: that is the
 * answer to the job. The calls of a handler are queued to the dispatcher's goroutine, which waits
 * for the answer.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

#define FUTEX_WAIT 0 /* musl-gcc has not the kernel's headers */

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
    vmmc_block_signals(VMMC_NO_SIGNAL); /* as the thread that takes its place begins */
    vmmc_keep_levels();
    make_thread();
}

static void run_one(struct thread *t, struct vmmcb_record *r) {
    vmmc_callback_t f = (vmmc_callback_t)(uintptr_t)r->out[0];
    int32 *last = (int32 *)(uintptr_t)r->out[1];
    int32 value = (int32)r->out[2];
    vmmc_end(t, r); /* the handler's calls are not nested in this one */
    t->in_handler = 1;
    vmmc_restore_signals(mask);
    f(last, value);
    vmmc_block_signals(VMMC_NO_SIGNAL);
    t->in_handler = 0;
    vmmc_keep_levels();
}

/*
 * Signals reach this thread in handlers alone. A signal handler that ran between them could block
 * notifications, and would wait for the handler that this thread is about to run.
 */
static void *run_handlers(void *unused) {
    (void)unused;
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

/*
 * Levels of blocking are one word, which Go's dispatcher loads before each handler: see struct
 * vmmcb_shared. Neither call enters Go, but for its first one, which joins the node: an Unblock
 * has Go look again where it waits with a notification, and a Block that finds a handler running
 * sleeps here.
 *
 * A handler has levels of its own, which only it can take away. There is one handler at a time.
 */
static _Atomic uint32_t own_levels;

static int in_handler(void) { return vmmc_self && vmmc_self->in_handler; }

/*
 * Reports by 0 that the library can be used, and has joined its node. A Block that the thread has
 * left gives its level back first.
 */
static int join(uintptr_t frame) {
    int code = vmmc_ready();
    if (code == 0 && UNLIKELY(vmmc_self != NULL && vmmc_self->current != NULL)) {
        vmmc_abandon_left(vmmc_self, frame);
    }
    if (code != 0 || LIKELY(__atomic_load_n(&vmmc_shared->joined, __ATOMIC_ACQUIRE) != 0)) {
        return code;
    }
    struct thread *t = vmmc_thread();
    struct vmmcb_record *r = t ? vmmc_begin(t, VMMCB_SELF, 0) : NULL;
    if (!r) {
        return vmmc_fail(vmmcErr_NoMem, "change blocking: no memory for a record");
    }
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

void vmmc_keep_levels(void) {
    uint32_t n = atomic_exchange(&own_levels, 0);
    if (n != 0) {
        __atomic_fetch_add(&vmmc_shared->levels, n, __ATOMIC_SEQ_CST);
    }
}

int vmmc_drop_level(void) {
    struct vmmcb_shared *s = vmmc_shared;
    uint32_t n = __atomic_load_n(&s->levels, __ATOMIC_SEQ_CST);
    do {
        if (n == 0) {
            return 1;
        }
    } while (!__atomic_compare_exchange_n(&s->levels, &n, n - 1, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    if (n == 1 && __atomic_load_n(&s->pending, __ATOMIC_SEQ_CST) != 0) {
        vmmc_ring();
    }
    return n == 1;
}

/*
 * Waits until no handler runs. The record says that the call has a level: one that is left by
 * siglongjmp or pthread_exit gives it back, when its thread makes its next call or ends.
 */
__attribute__((noinline)) static void await_handler(void) {
    uint32_t *running = &vmmc_shared->running, v;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    struct thread *t = vmmc_thread();
    struct vmmcb_record *r = t ? vmmc_begin(t, VMMCB_BLOCK, 0) : NULL;
    if (!r) {
        vmmc_drop_level();
        vmmc_fail(vmmcErr_NoMem, "block notifications: no memory for a record");
        return;
    }
    while ((v = __atomic_load_n(running, __ATOMIC_SEQ_CST)) != VMMCB_IDLE) {
        struct timespec soon = {0, 500000};
        /* A handler that Go has given to this process would never run if its only thread waited. */
        if (vmmc_polls() && vmmc_run_given(t, frame)) {
            continue;
        }
        if (v == VMMCB_RUNNING &&
            !__atomic_compare_exchange_n(running, &v, VMMCB_AWAITED, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST)) {
            continue;
        }
        syscall(SYS_futex, running, FUTEX_WAIT, VMMCB_AWAITED, vmmc_polls() ? &soon : NULL, NULL,
                0);
    }
    vmmc_end(t, r);
}

API void vmmc_BlockNotifications(void) {
    if (join((uintptr_t)__builtin_frame_address(0)) != 0) {
        return;
    }
    if (in_handler()) {
        atomic_fetch_add(&own_levels, 1);
        return;
    }
    struct vmmcb_shared *s = vmmc_shared;
    uint32_t n = __atomic_load_n(&s->levels, __ATOMIC_SEQ_CST);
    do {
        if (n == UINT32_MAX) {
            vmmc_fail(vmmcErr_NoMem, "block notifications: there are 4,294,967,295 levels");
            return;
        }
    } while (!__atomic_compare_exchange_n(&s->levels, &n, n + 1, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    if (UNLIKELY(__atomic_load_n(&s->running, __ATOMIC_SEQ_CST) != VMMCB_IDLE)) {
        await_handler();
    }
}

/* Positive: notifications are delivered; 0: a level is left (the manual's section 8, page 55). */
API int vmmc_UnblockNotifications(void) {
    int code = join((uintptr_t)__builtin_frame_address(0));
    if (code != 0) {
        return code;
    }
    if (in_handler()) {
        if (atomic_load(&own_levels) == 0) {
            return vmmc_fail(
                vmmcErr_NotInHandler,
                "unblock notifications: notifications stay blocked while a handler runs");
        }
        atomic_fetch_sub(&own_levels, 1);
        return 0;
    }
    return vmmc_drop_level();
}
