/*
 * Handlers of the program. Errors have a thread of the library, and completions have another one:
 * an error handler may wait for a completion's. Each is made by the first handler that it is for.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "core.h"

static struct {
    pthread_mutex_t mu;
    int made;
} streams[VMMCB_VIP_STREAMS] = {{PTHREAD_MUTEX_INITIALIZER, 0}, {PTHREAD_MUTEX_INITIALIZER, 0}};

static void *run(void *stream);

static __thread uint64_t handling; /* 1 on the threads of handlers */

uint64_t vipl_in_handler(void) { return handling; }

static int make(uintptr_t stream) {
    pthread_t id;
    pthread_attr_t detached;
    if (pthread_attr_init(&detached) != 0) {
        return -1;
    }
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&id, &detached, run, (void *)stream);
    pthread_attr_destroy(&detached);
    return failed ? -1 : 0;
}

/* A handler has ended its thread: another one takes its place. */
static void replace(void *stream) { make((uintptr_t)stream); }

static void call(const struct vmmcb_event *e) {
    void *context = HANDLE(e->context);
    VIP_DESCRIPTOR *d = HANDLE(e->descriptor);
    if (e->kind == VMMCB_VIP_ERROR) {
        VIP_ERROR_DESCRIPTOR error = {
            .NicHandle = HANDLE(e->nic),
            .ViHandle = HANDLE(e->vi),
            .CQHandle = HANDLE(e->cq),
            .DescriptorPtr = d,
            .OpCode = e->op,
            .ResourceCode = (VIP_RESOURCE_CODE)e->resource,
            .ErrorCode = (VIP_ERROR_CODE)e->error,
        };
        ((void (*)(VIP_PVOID, VIP_ERROR_DESCRIPTOR *))(uintptr_t)e->function)(context, &error);
    } else if (e->kind == VMMCB_VIP_DESCRIPTOR) {
        ((void (*)(VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_DESCRIPTOR *))(uintptr_t)
             e->function)(context, HANDLE(e->nic), HANDLE(e->vi), d);
    } else {
        ((void (*)(VIP_PVOID, VIP_NIC_HANDLE, VIP_VI_HANDLE, VIP_BOOLEAN))(uintptr_t)e->function)(
            context, HANDLE(e->nic), HANDLE(e->vi), (VIP_BOOLEAN)e->receive);
    }
}

static void *run(void *stream) {
    pthread_cleanup_push(replace, stream);
    handling = 1;
    for (;;) {
        struct vmmcb_event e;
        struct vmmcp_call c = {
            .op = VMMCB_VIP_EVENT, .in = {(uintptr_t)stream}, .room = &e, .room_len = sizeof e};
        if (vipl_run(&c) == VIP_SUCCESS) {
            call(&e);
        } else { /* no memory for a record: handlers must run when there is some again */
            struct timespec pause = {0, 10 * 1000 * 1000};
            nanosleep(&pause, NULL);
        }
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* Makes the thread of a stream once. It has the signal mask of the first thread that needs it. */
int vipl_start_thread(unsigned stream) {
    pthread_mutex_lock(&streams[stream].mu);
    int failed = !streams[stream].made && make(stream) != 0;
    if (!failed) {
        streams[stream].made = 1;
    }
    pthread_mutex_unlock(&streams[stream].mu);
    return failed;
}

/*
 * Sets a handler. The thread is there before the handler is given away: none waits for one that
 * cannot be made. `check` is an operation that finds out whether the first handle is one.
 */
static VIP_RETURN set(struct vmmcp_call *c, uint32_t check, unsigned stream) {
    struct vmmcp_call look = {.op = check, .now = 1, .in = {c->in[0]}};
    VIP_RETURN code = vipl_run(&look);
    if (code != VIP_SUCCESS) {
        return code;
    }
    return vipl_start_thread(stream) != 0 ? VIP_ERROR_RESOURCE : vipl_run(c);
}

API VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context,
                                void (*Handler)(VIP_PVOID Context,
                                                VIP_ERROR_DESCRIPTOR *ErrorDesc)) {
    struct vmmcp_call c = {.op = VMMCB_VIP_ON_ERROR,
                           .in = {BITS(NicHandle), (uintptr_t)Handler, BITS(Context)}};
    return Handler ? set(&c, VMMCB_VIP_CHECK_NIC, VMMCB_VIP_ERRORS) : vipl_run(&c);
}

static VIP_RETURN notify_vi(VIP_VI_HANDLE vi, uint64_t recv, VIP_PVOID context,
                            uintptr_t function) {
    struct vmmcp_call c = {.op = VMMCB_VIP_NOTIFY,
                           .in = {BITS(vi), recv, function, BITS(context)}};
    return function ? set(&c, VMMCB_VIP_USER, VMMCB_VIP_NOTIFIES) : VIP_INVALID_PARAMETER;
}

API VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context,
                             void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle,
                                             VIP_VI_HANDLE ViHandle,
                                             VIP_DESCRIPTOR *DescriptorPtr)) {
    return notify_vi(ViHandle, 0, Context, (uintptr_t)Handler);
}

API VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context,
                             void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle,
                                             VIP_VI_HANDLE ViHandle,
                                             VIP_DESCRIPTOR *DescriptorPtr)) {
    return notify_vi(ViHandle, 1, Context, (uintptr_t)Handler);
}

API VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, VIP_PVOID Context,
                           void (*Handler)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle,
                                           VIP_VI_HANDLE ViHandle, VIP_BOOLEAN RecvQueue)) {
    struct vmmcp_call c = {.op = VMMCB_VIP_NOTIFY_CQ,
                           .in = {BITS(CQHandle), (uintptr_t)Handler, BITS(Context)}};
    return Handler ? set(&c, VMMCB_VIP_CHECK_CQ, VMMCB_VIP_NOTIFIES) : VIP_INVALID_PARAMETER;
}
