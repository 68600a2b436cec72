/* Sends and gets by address, and asynchronous requests. */
#define _GNU_SOURCE
#include <string.h>

#include "core.h"
#include "mapped.h"

/* The longest that Go is asked to do at once, on this thread. Longer ones wait in Go. */
#define LONGEST_MAPPED 65536u
#define LONGEST_ASYNC 262144u
#define LONGEST_STREAM 65536u /* one frame, which is sent whole or not begun */

/*
 * How many long sends are queued after one that did not fit into the socket. Such a send costs a
 * copy of what is left, and waits until all before it has arrived. A queued one does neither.
 */
#define CONGESTED 32

/* What a call knows of its destination or source in DestSpace. */
struct place {
    uint32_t number;
    uint64_t handle;
    uint64_t offset;
    uint32_t mapped;
};

int vmmc_in_dest_space(uintptr_t a) { return vmmc_import_at(a) != 0; }

/* Finds the import that has all of [a, a+bytes). */
static int find(uintptr_t a, uint64_t bytes, struct place *p) {
    uint32_t i = vmmc_import_at(a);
    if (i == 0 || i >= VMMCB_IMPORTS /* VMMCB_NO_IMPORT */) {
        return vmmcErr_BadProxyAddr;
    }
    struct vmmcb_import *im = &vmmc_shared->imports[i];
    uint64_t handle = __atomic_load_n(&im->handle, __ATOMIC_ACQUIRE);
    uint64_t begin = __atomic_load_n(&im->begin, __ATOMIC_ACQUIRE);
    uint64_t size = __atomic_load_n(&im->size, __ATOMIC_ACQUIRE);
    uint64_t mapped = __atomic_load_n(&im->mapped, __ATOMIC_ACQUIRE);
    /* An entry is closed before it is used again, so an unchanged handle makes it one import's. */
    if (handle == 0 || __atomic_load_n(&im->handle, __ATOMIC_RELAXED) != handle) {
        return vmmcErr_BadProxyAddr;
    }
    if (a < begin || a - begin > size || bytes > size - (a - begin)) {
        return vmmcErr_BadProxyAddr;
    }
    *p = (struct place){i, handle, a - begin, mapped != 0};
    return 0;
}

static uint64_t longest_now(struct thread *t, int get, uint32_t how, uint32_t mapped) {
    if (how & VMMCB_ASYNC) {
        return LONGEST_ASYNC;
    }
    if (mapped) {
        return LONGEST_MAPPED;
    }
    if (get) {
        return 0; /* a reply takes a round trip */
    }
    return t->congested > 0 ? VMMCB_SMALL : LONGEST_STREAM;
}

/*
 * Sends or gets on import i's path, in an epoch. A VMMC_MAPPED_ value; after VMMC_MAPPED_FINISH *p
 * is the place.
 */
VMMC_INLINE int transfer_inside(struct thread *t, uint32_t i, int get, void *local, uintptr_t far,
                                uint64_t bytes, struct place *p) {
    int done = VMMC_MAPPED_SLOW;
    const struct vmmcb_path *path =
        __atomic_load_n(&vmmc_shared->imports[i].path, __ATOMIC_SEQ_CST);
    uint64_t off;
    /* The entry may be another import's by now; what the path says is of one import. */
    if (LIKELY(path && (off = far - path->begin) <= path->size && bytes <= path->size - off)) {
        if (get) {
            done = vmmc_mapped_get(path, off, local, bytes, vmmc_lane(t));
        } else {
            done = vmmc_mapped_send(path, off, local, bytes, vmmc_lane(t));
        }
        if (UNLIKELY(done == VMMC_MAPPED_FINISH)) {
            *p = (struct place){i, path->handle, off, 1};
        }
    }
    return done;
}

/*
 * The same without Go, for arguments that were checked. A program may leave it by siglongjmp or
 * pthread_exit: it holds nothing but the epoch.
 */
__attribute__((noinline)) static int transfer_mapped(int get, void *local, uintptr_t far,
                                                     uint64_t bytes, struct place *p) {
    uint32_t i = vmmc_import_at(far);
    struct thread *t;
    if (i == 0 || i >= VMMCB_IMPORTS || !(t = vmmc_thread()) ||
        (!t->epoch && !vmmc_take_epoch(t))) {
        return VMMC_MAPPED_SLOW;
    }
    int entered = vmmc_enter_epoch(t, (uintptr_t)__builtin_frame_address(0));
    int done = transfer_inside(t, i, get, local, far, bytes, p);
    if (entered) {
        vmmc_leave_epoch(t);
    }
    return done;
}

/*
 * The same for the most usual case: a thread that has an epoch and interrupts no transfer of its
 * own, and a message of one piece. Anything else, bad arguments too, is VMMC_MAPPED_SLOW:
 * `transfer` finds out what it is. The tests are those that `transfer` makes, in as few
 * instructions as they need.
 */
VMMC_INLINE int transfer_short(int get, void *local, const void *remote, uint32 nwords,
                               struct place *p) {
    uintptr_t near = (uintptr_t)local, far = (uintptr_t)remote;
    struct thread *t = vmmc_self;
    const uint32_t *live = __atomic_load_n(&vmmc_live, __ATOMIC_ACQUIRE);
    if (UNLIKELY(!t || !t->epoch || nwords - 1 >= VMMC_PIECE / 4 || near == 0 ||
                 ((near | far) & 3) != 0 || (near | far) >> VMMCB_ADDR_BITS != 0 ||
                 __atomic_load_n(live, __ATOMIC_RELAXED) == 0)) {
        return VMMC_MAPPED_SLOW;
    }
    uint32_t i = vmmc_number_at(far);
    if (UNLIKELY(i - 1 >= VMMCB_IMPORTS - 1 || vmmc_number_at(near) != 0 ||
                 __atomic_load_n(&t->epoch->now, __ATOMIC_RELAXED) & 1)) {
        return VMMC_MAPPED_SLOW;
    }
    vmmc_begin_epoch(t, (uintptr_t)__builtin_frame_address(0));
    int done = transfer_inside(t, i, get, local, far, (uint64_t)nwords * 4, p);
    vmmc_leave_epoch(t);
    return done;
}

/*
 * Sends or gets: `local` is this process's memory, `far` an address in DestSpace. The mapped path
 * has returned `done` and, with VMMC_MAPPED_FINISH, has stored the message there.
 */
__attribute__((noinline)) static int transfer(uint32_t op, const void *local, const void *far,
                                              uint32 nwords, uint32_t how,
                                              vmmc_async_handle_t *request, int done,
                                              const struct place *stored) {
    struct place p = {0};
    uint64_t bytes = (uint64_t)nwords * 4;
    int get = op == VMMCB_GET;
    if (request) {
        memset(request, 0, sizeof *request);
    }
    if (!local || !far || (how & VMMCB_ASYNC && !request)) {
        return vmmc_fail(vmmcErr_BadArg,
                         get ? "get: an address is NULL" : "send: an address is NULL");
    }
    if (((uintptr_t)local | (uintptr_t)far) % 4 != 0) {
        return vmmc_fail(vmmcErr_BadAlignment, get ? "get: an address is not aligned to 4 bytes"
                                                   : "send: an address is not aligned to 4 bytes");
    }
    if (nwords == 0) {
        return vmmc_fail(vmmcErr_BadSize, get ? "get: no words" : "send: no words");
    }
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    if ((uintptr_t)local > UINTPTR_MAX - bytes || vmmc_in_dest_space((uintptr_t)local)) {
        return vmmc_fail(vmmcErr_BadArg, get ? "get: the destination is no memory of this process"
                                             : "send: the source is no memory of this process");
    }
    if (how == 0 && done == VMMC_MAPPED_SLOW) {
        done = transfer_mapped(get, (void *)local, (uintptr_t)far, bytes, &p);
        stored = &p;
        if (done == VMMC_MAPPED_DONE) {
            return 0;
        }
    }
    if ((code = vmmc_ready()) != 0) { /* a handler may have forked meanwhile: this is the child */
        return code;
    }
    int finish = done == VMMC_MAPPED_FINISH && !get;
    if (finish) {
        p = *stored;
    }
    code = finish ? 0 : find((uintptr_t)far, bytes, &p);
    if (code != 0) {
        return vmmc_fail(code, get ? "get: the source does not lie within one import"
                                   : "send: the destination does not lie within one import");
    }
    struct thread *t = vmmc_thread();
    struct vmmcb_record *r = t ? vmmc_begin(t, finish ? VMMCB_FINISH : op, VMMCB_SMALL) : NULL;
    if (!r) {
        return vmmc_fail(finish ? vmmcErr_OutcomeUnknown : vmmcErr_NoMem,
                         "send or get: no memory for a record");
    }
    if (!get && !finish && bytes <= VMMCB_SMALL && !(how & VMMCB_ASYNC)) {
        memcpy(r->data, local, bytes); /* a fault is the program's own, here and not in Go */
        local = r->data;
    }
    r->in[0] = p.number;
    r->in[1] = p.handle;
    r->in[2] = p.offset;
    r->in[3] = (uintptr_t)local;
    r->in[4] = bytes;
    r->in[5] = how;
    code = VMMCB_WOULD_WAIT;
    int is_long = !get && bytes > VMMCB_SMALL && !(how & VMMCB_ASYNC);
    if (!t->in_handler && (finish || bytes <= longest_now(t, get, how, p.mapped))) {
        code = vmmc_now(t, r);
        if (is_long && code == VMMCB_SENT) {
            t->congested = CONGESTED;
        }
    } else if (is_long && t->congested > 0) {
        t->congested--;
    }
    if (code == VMMCB_WOULD_WAIT) {
        vmmc_queue(t, r);
    } else if (code == VMMCB_SENT) {
        r->op = VMMCB_FENCE;
        vmmc_queue(t, r);
    }
    if (request && r->code == 0) {
        vmmc_request(request, r->out[0]);
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_SendData(int32 *src, int32 *dst, uint32 nwords) {
    struct place p;
    int done = transfer_short(0, src, dst, nwords, &p);
    if (LIKELY(done == VMMC_MAPPED_DONE)) {
        return 0;
    }
    return transfer(VMMCB_SEND, src, dst, nwords, 0, NULL, done, &p);
}

API vmmc_result_t vmmc_GetData(int32 *dst, int32 *src, uint32 nwords) {
    struct place p;
    int done = transfer_short(1, dst, src, nwords, &p);
    if (LIKELY(done == VMMC_MAPPED_DONE)) {
        return 0;
    }
    return transfer(VMMCB_GET, dst, src, nwords, 0, NULL, done, &p);
}

/* Sends or gets as the mapped path of C does not. */
static int transfer_in_go(uint32_t op, const void *local, const void *far, uint32 nwords,
                          uint32_t how, vmmc_async_handle_t *request) {
    return transfer(op, local, far, nwords, how, request, VMMC_MAPPED_SLOW, NULL);
}

API vmmc_result_t vmmc_SendDataNotify(int32 *src, int32 *dst, uint32 nwords) {
    return transfer_in_go(VMMCB_SEND, src, dst, nwords, VMMCB_NOTIFY, NULL);
}

/*
 * What Go would copy within the call is copied here, and the request is over at once. A message
 * that is stored, and whose end needs Go, gets that end within the call.
 */
API vmmc_result_t vmmc_SendDataAsync(int32 *src, int32 *dst, uint32 nwords,
                                     vmmc_async_handle_t *handle) {
    struct place p;
    int code = 0, done = handle && nwords <= LONGEST_MAPPED / 4
                             ? transfer_short(0, src, dst, nwords, &p)
                             : VMMC_MAPPED_SLOW;
    if (UNLIKELY(done == VMMC_MAPPED_SLOW)) {
        return transfer_in_go(VMMCB_SEND, src, dst, nwords, VMMCB_ASYNC, handle);
    }
    memset(handle, 0, sizeof *handle);
    if (UNLIKELY(done == VMMC_MAPPED_FINISH)) {
        code = transfer(VMMCB_SEND, src, dst, nwords, 0, NULL, done, &p);
    }
    if (LIKELY(code == 0)) {
        vmmc_completed_request(handle);
    }
    return code;
}

API vmmc_result_t vmmc_SendDataAsyncNotify(int32 *src, int32 *dst, uint32 nwords,
                                           vmmc_async_handle_t *handle) {
    return transfer_in_go(VMMCB_SEND, src, dst, nwords, VMMCB_ASYNC | VMMCB_NOTIFY, handle);
}

API vmmc_result_t vmmc_GetDataAsync(int32 *dst, int32 *src, uint32 nwords,
                                    vmmc_async_handle_t *handle) {
    struct place p;
    if (handle && nwords <= LONGEST_MAPPED / 4 &&
        transfer_short(1, dst, src, nwords, &p) == VMMC_MAPPED_DONE) {
        vmmc_completed_request(handle);
        return 0;
    }
    return transfer_in_go(VMMCB_GET, dst, src, nwords, VMMCB_ASYNC, handle);
}

API vmmc_result_t vmmc_AsyncStatus(vmmc_async_handle_t *handle) {
    if (!handle) {
        return vmmc_fail(vmmcErr_BadArg, "ask for a request: the handle is NULL");
    }
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    uint64_t number;
    code = vmmc_status(handle, &number);
    if (code != vmmcErr_InProgress) {
        return code;
    }
    struct thread *t = vmmc_thread();
    struct vmmcb_record *r = t ? vmmc_begin(t, VMMCB_STATUS, 0) : NULL;
    if (!r) {
        return vmmc_fail(vmmcErr_NoMem, "ask for a request: no memory for a record");
    }
    r->in[0] = number;
    if (t->in_handler || vmmc_now(t, r) == VMMCB_WOULD_WAIT) {
        vmmc_queue(t, r);
    }
    return vmmc_end(t, r);
}
