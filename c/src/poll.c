/*
 * Poll mode: the program's own threads run notification handlers, and no thread of the library. One
 * record asks Go for a notification at all times, and Go writes to a descriptor when it has
 * filled it. The thread that runs the handler pushes the record again, which is the answer.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core.h"
#include "vmmcx.h"

static _Atomic(struct vmmcb_record *) job;
static int job_fd; /* written before job */

static _Atomic(struct thread *) runner; /* the thread that runs a handler */
static uintptr_t runner_frame;          /* of its call; written by the runner */

/* Signals are blocked, and a mutex is held. */
static int make_job(void) {
    struct vmmcb_record *r = vmmc_map(sizeof *r);
    int fd = r ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    if (fd < 0) {
        if (r) {
            munmap(r, sizeof *r);
        }
        return -1;
    }
    r->op = VMMCB_HANDLERS;
    r->in[0] = (uint64_t)fd + 1;
    job_fd = fd;
    atomic_store(&job, r);
    vmmc_push(r);
    return 0;
}

API int vmmcx_poll_fd(void) {
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    if (!vmmc_choose_polling()) {
        return vmmc_fail(vmmcErr_BadConfig,
                         "poll for handlers: a thread of the library runs them already: call "
                         "vmmcx_poll_fd before the first export with a handler");
    }
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    pthread_mutex_lock(&mu);
    int failed = atomic_load(&job) ? 0 : make_job();
    pthread_mutex_unlock(&mu);
    vmmc_restore_signals(old);
    if (failed) {
        return vmmc_fail(vmmcErr_NoMem, "poll for handlers: no memory, or no descriptor, is left");
    }
    return job_fd;
}

/*
 * The thread runs no handler any more, if it has: it has returned, or was left. Go may give the
 * next one. Signals are blocked.
 */
void vmmc_stop_running(struct thread *t) {
    if (atomic_load(&runner) != t) {
        return;
    }
    if (t->in_handler) {
        t->in_handler = 0;
        vmmc_keep_levels();
        vmmc_push(atomic_load(&job));
    }
    atomic_store(&runner, NULL);
}

/* Reports whether the program runs handlers. */
int vmmc_polls(void) { return atomic_load(&job) != NULL; }

/* Runs the handler that Go has given, if there is one and no other thread runs it: reports by 1. */
int vmmc_run_given(struct thread *t, uintptr_t frame) {
    struct vmmcb_record *r = atomic_load(&job);
    struct thread *none = NULL;
    uint64_t n;
    /* No signal handler leaves it between the claim and the handler. */
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    if (!atomic_compare_exchange_strong(&runner, &none, t)) {
        vmmc_restore_signals(old);
        return 0;
    }
    runner_frame = frame;
    /* Go writes after it has filled the record, so what it fills after this read is readable. */
    int taken = read(job_fd, &n, sizeof n) == sizeof n;
    (void)taken;
    if (__atomic_load_n(&r->word, __ATOMIC_ACQUIRE) != VMMCB_DONE) {
        atomic_store(&runner, NULL);
        vmmc_restore_signals(old);
        return 0;
    }
    t->in_handler = 1;
    vmmc_restore_signals(old);
    /* One that is left by siglongjmp is over with the thread's next vmmcx_run_handlers,
       or with the thread. */
    ((vmmc_callback_t)(uintptr_t)r->out[0])((int32 *)(uintptr_t)r->out[1], (int32)r->out[2]);
    old = vmmc_block_signals(VMMC_NO_SIGNAL);
    vmmc_stop_running(t);
    vmmc_restore_signals(old);
    return 1;
}

API int vmmcx_run_handlers(void) {
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    struct thread *t = vmmc_thread();
    if (!t) {
        return vmmcErr_NoMem;
    }
    if (!atomic_load(&job)) {
        return vmmc_fail(vmmcErr_BadConfig, "run handlers: call vmmcx_poll_fd before");
    }
    if (atomic_load(&runner) == t && frame >= runner_frame && !vmmc_on_alternate_stack()) {
        vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
        vmmc_stop_running(t); /* the handler was left by siglongjmp */
        vmmc_restore_signals(old);
    }
    if (t->in_handler) {
        return vmmc_fail(vmmcErr_NotInHandler,
                         "run handlers: this is a handler, and one runs at a time");
    }
    return vmmc_run_given(t, frame);
}
