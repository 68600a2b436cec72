/* The way of a call into Go. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "core.h"
#include "vmmc.h"
#include "vmmcx.h"

/* The process that has called first. A child of fork is another one. */
static _Atomic pid_t caller;

/* 0 before MPI_Init, 2 after MPI_Finalize, and 1 between them. Go tells it with each call. */
static _Atomic uint64_t phase;

int mpi_initialized(void) { return atomic_load(&phase) > 0; }

int mpi_finalized(void) { return atomic_load(&phase) > 1; }

/* Calls end in another order than they have begun, so the phase only rises. */
static void set_phase(uint64_t now) {
    uint64_t was = atomic_load_explicit(&phase, memory_order_relaxed);
    while (was < now && !atomic_compare_exchange_weak(&phase, &was, now)) {
    }
}

/*
 * Sessions do not end the job: the program may begin another one. A child of fork has no job that
 * its end could end.
 */
static void end_job(void) {
    if (getpid() == atomic_load(&caller)) {
        mpi_call(MPI_CALL_EXIT, "exit", NULL, 0);
    }
}

/*
 * The arguments are copied into the record: the thread may leave the call by siglongjmp, and its
 * stack is then not what Go reads. Without the Go part no error handler of MPI can run, so the
 * process ends as MPI_ERRORS_ARE_FATAL would have it.
 */
int mpi_call(uint32_t number, const char *name, const uint64_t *args, uint32_t n) {
    pid_t none = 0;
    if (!atomic_load_explicit(&caller, memory_order_relaxed) &&
        atomic_compare_exchange_strong(&caller, &none, getpid())) {
        atexit(end_job);
    }
    struct vmmcp_call c = {.op = VMMCB_MPI,
                           .now = VMMCP_TRY,
                           .in = {number, n, mpi_table},
                           .data = args,
                           .data_len = n * sizeof *args};
    int code = vmmcp_call(&c);
    if (code != 0) {
        const char *why = vmmcx_last_error();
        fprintf(stderr, "%s: libvmmc cannot run the call: %s\n", name,
                why && *why ? why : vmmc_ErrorStr(code));
        if (code != vmmcErr_Closed) { /* A child of fork: what is buffered is its parent's too. */
            fflush(NULL);
        }
        _exit(1);
    }
    if (c.out[1]) { /* The job ends. Go's exit would lose what the program has printed. */
        fflush(NULL);
        _exit((int)(c.out[1] & 255));
    }
    set_phase(c.out[2]);
    return (int)(int64_t)c.out[0];
}
