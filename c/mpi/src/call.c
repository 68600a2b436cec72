/* The way of a call into Go. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core.h"
#include "vmmc.h"
#include "vmmcx.h"

static atomic_flag has_called = ATOMIC_FLAG_INIT;

/* Sessions do not end the job: the program may begin another one. */
static void end_job(void) { mpi_call(MPI_CALL_EXIT, "exit", NULL, 0); }

/*
 * The arguments are copied into the record: the thread may leave the call by siglongjmp, and its
 * stack is then not what Go reads. Without the Go part no error handler of MPI can run, so the
 * process ends as MPI_ERRORS_ARE_FATAL would have it.
 */
int mpi_call(uint32_t number, const char *name, const uint64_t *args, uint32_t n) {
    if (!atomic_flag_test_and_set(&has_called)) {
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
    return (int)(int64_t)c.out[0];
}
