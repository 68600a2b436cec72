/* Calls of vmmcx.h on names of exports, and on the group of programs that includes this one. */
#include <string.h>

#include "core.h"
#include "vmmcx.h"

static int begin(const char *what, uint32_t op, size_t data, struct thread **t,
                 struct vmmcb_record **r) {
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    *t = vmmc_thread();
    *r = *t ? vmmc_begin(*t, op, data) : NULL;
    return *r ? 0 : vmmc_fail(vmmcErr_NoMem, what);
}

static uint64_t limit(int milliseconds) {
    return milliseconds < 0 ? UINT64_MAX : (uint64_t)milliseconds;
}

/* Begins a call on a name, which the record is given without its end. */
static int begin_name(const char *what, uint32_t op, const char *name, struct thread **t,
                      struct vmmcb_record **r) {
    size_t n = strlen(name);
    if (n > VMMCB_NAME) {
        return vmmc_fail(vmmcErr_BadName, "the name is longer than any name can be");
    }
    int code = begin(what, op, n, t, r);
    if (code == 0) {
        memcpy((*r)->data, name, n);
        (*r)->data_len = (uint32_t)n;
    }
    return code;
}

static int on_name(const char *what, uint32_t op, vmmc_exphandle_t handle, const char *name) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!name) {
        return vmmc_fail(vmmcErr_BadArg, "publish or unpublish a buffer: the name is NULL");
    }
    int code = begin_name(what, op, name, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = handle.vmmc_opaque;
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

API vmmc_result_t vmmcx_publish(vmmc_exphandle_t handle, const char *name) {
    return on_name("publish: no memory for a record", VMMCB_PUBLISH, handle, name);
}

API vmmc_result_t vmmcx_unpublish(vmmc_exphandle_t handle, const char *name) {
    return on_name("unpublish: no memory for a record", VMMCB_UNPUBLISH, handle, name);
}

API vmmc_result_t vmmcx_import_name(const char *name, int milliseconds, vmmc_imphandle_t *handle,
                                    int32 **proxyBuf, uint32 *nwords) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!name || !handle || !proxyBuf || !nwords) {
        return vmmc_fail(vmmcErr_BadArg,
                         "import by a name: the name or an address for the result is NULL");
    }
    handle->vmmc_opaque = 0;
    *proxyBuf = NULL;
    *nwords = 0;
    int code = begin_name("import by a name: no memory for a record", VMMCB_IMPORT_NAME, name, &t,
                          &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = limit(milliseconds);
    if (vmmc_queue(t, r) == 0) {
        handle->vmmc_opaque = r->out[0];
        *proxyBuf = (int32 *)(uintptr_t)r->out[1];
        *nwords = vmmc_words(r->out[2]);
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmcx_group(int *rank, int *size) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!rank || !size) {
        return vmmc_fail(vmmcErr_BadArg, "join the group: an address for the result is NULL");
    }
    int code = begin("join the group: no memory for a record", VMMCB_GROUP, 0, &t, &r);
    if (code != 0) {
        return code;
    }
    if (vmmc_queue(t, r) == 0) {
        *rank = (int)r->out[0];
        *size = (int)r->out[1];
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmcx_member(int rank, int milliseconds, vmmc_node_t *node, vmmc_pid_t *pid) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!node || !pid) {
        return vmmc_fail(vmmcErr_BadArg, "find a member: an address for the result is NULL");
    }
    int code = begin("find a member: no memory for a record", VMMCB_MEMBER, 0, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = (uint64_t)(int64_t)rank;
    r->in[1] = limit(milliseconds);
    if (vmmc_queue(t, r) == 0) {
        node->vmmc_opaque = r->out[0];
        *pid = (vmmc_pid_t)r->out[1];
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmcx_barrier(int milliseconds) {
    struct thread *t;
    struct vmmcb_record *r;
    int code = begin("barrier: no memory for a record", VMMCB_BARRIER, 0, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = limit(milliseconds);
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

API vmmc_result_t vmmcx_leave(int milliseconds) {
    struct thread *t;
    struct vmmcb_record *r;
    int code = begin("leave the group: no memory for a record", VMMCB_LEAVE, 0, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = limit(milliseconds);
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}
