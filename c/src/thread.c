/* Threads: their entries, their alternate signal stacks, and the way into Go. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"

#define PAGE 4096
#define STACK (256 * 1024)
#define GUARD (64 * 1024)   /* a multiple of every page size */
#define ENOUGH (16 * 1024) /* a fault in Go that Go recovers from uses 3.4 KiB */

_Thread_local struct thread *vmmc_self __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static _Atomic int key_made; /* 1: made, -1: cannot be */

/* The first thread that calls Go pays for the runtime's list of threads, which is a spin lock. */
static pthread_mutex_t first_call = PTHREAD_MUTEX_INITIALIZER;

static void thread_ends(void *entry) {
    struct thread *t = entry;
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL); /* a handler would make a new entry */
    vmmc_stop_running(t);
    vmmc_abandon_all(t);
    vmmc_drop_epoch(t);
    vmmc_self = NULL;
    if (t->stack) {
        stack_t now;
        char *low = (char *)t->stack + GUARD;
        if (sigaltstack(NULL, &now) == 0 && now.ss_sp == (void *)low) {
            stack_t none = {.ss_flags = SS_DISABLE};
            sigaltstack(&none, NULL);
        }
        munmap(t->stack, GUARD + STACK);
    }
    munmap(t, PAGE);
    vmmc_restore_signals(old);
}

static int make_key(void) {
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    int state = atomic_load_explicit(&key_made, memory_order_acquire);
    if (state != 0) {
        return state > 0;
    }
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    pthread_mutex_lock(&mu);
    if (atomic_load(&key_made) == 0) {
        atomic_store(&key_made, pthread_key_create(&key, thread_ends) == 0 ? 1 : -1);
    }
    pthread_mutex_unlock(&mu);
    vmmc_restore_signals(old);
    return atomic_load(&key_made) > 0;
}

/* Makes the calling thread's entry; NULL if there is no memory for one. */
struct thread *vmmc_new_thread(void) {
    if (!make_key()) {
        return NULL;
    }
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    struct thread *t = vmmc_self;
    if (!t) {
        t = vmmc_map(PAGE);
        if (t && pthread_setspecific(key, t) != 0) {
            munmap(t, PAGE);
            t = NULL;
        }
        vmmc_self = t;
    }
    vmmc_restore_signals(old);
    return t;
}

static void *new_stack(void) {
    char *p = vmmc_map(GUARD + STACK);
    if (p && mprotect(p, GUARD, PROT_NONE) != 0) {
        munmap(p, GUARD + STACK);
        p = NULL;
    }
    return p;
}

/*
 * Gives the thread an alternate signal stack before its first call of Go. Otherwise Go gives it one
 * of 32 KiB in Go's heap, which the program's own handlers would overrun. Signals are blocked.
 */
static void give_stack(struct thread *t) {
    stack_t now;
    if (sigaltstack(NULL, &now) != 0) {
        return;
    }
    if (!(now.ss_flags & SS_DISABLE) && now.ss_size >= ENOUGH) {
        return;
    }
    t->stack = new_stack();
    t->swap = t->stack && !(now.ss_flags & SS_DISABLE);
    if (t->stack && !t->swap) {
        stack_t ours = {.ss_sp = (char *)t->stack + GUARD, .ss_size = STACK};
        sigaltstack(&ours, NULL);
    }
}

/* Calls Go with all signals blocked but those of faults, which Go recovers from. */
void vmmc_enter(void (*f)(struct vmmcb_record *), struct vmmcb_record *r, struct thread *t) {
    vmmc_mask old = vmmc_block_signals(VMMC_FAULTS);
    int first = !t->entered && !t->entering; /* or a function that the first call runs has called */
    if (UNLIKELY(first)) {
        vmmc_block_signals(VMMC_NO_SIGNAL);
        pthread_mutex_lock(&first_call);
        vmmc_block_signals(VMMC_FAULTS);
        t->entering = 1;
        give_stack(t);
    }
    stack_t own;
    int swapped = 0;
    if (UNLIKELY(t->swap) && sigaltstack(NULL, &own) == 0 && !(own.ss_flags & SS_ONSTACK)) {
        stack_t ours = {.ss_sp = (char *)t->stack + GUARD, .ss_size = STACK};
        swapped = sigaltstack(&ours, NULL) == 0;
    }
    f(r);
    if (swapped) {
        sigaltstack(&own, NULL);
    }
    if (UNLIKELY(first)) {
        t->entered = 1;
        t->entering = 0;
        pthread_mutex_unlock(&first_call);
    }
    vmmc_restore_signals(old);
}
