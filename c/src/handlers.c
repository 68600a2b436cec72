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

API void vmmc_BlockNotifications(void) {
    struct thread *t;
    int code;
    struct vmmcb_record *r = begin(VMMCB_BLOCK, &t, &code);
    if (r) {
        vmmc_queue_running(t, r);
        vmmc_end(t, r);
    }
}

/* Positive: notifications are delivered; 0: a level is left (the manual's section 8, page 55). */
API int vmmc_UnblockNotifications(void) {
    struct thread *t;
    int code;
    struct vmmcb_record *r = begin(VMMCB_UNBLOCK, &t, &code);
    if (!r) {
        return code;
    }
    vmmc_queue(t, r);
    uint64_t left = r->out[0];
    code = vmmc_end(t, r);
    return code != 0 ? code : left == 0;
}
