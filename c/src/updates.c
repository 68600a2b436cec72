/* Calls of vmmcx.h on automatic update, and the wait for events. */
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

API vmmc_result_t vmmcx_map(int32 *memory, int32 *remoteProxyAddr, uint32 nwords, int notify) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!memory || !remoteProxyAddr) {
        return vmmc_fail(vmmcErr_BadArg, "map memory: an address is NULL");
    }
    if (((uintptr_t)memory | (uintptr_t)remoteProxyAddr) % VMMCB_WORD != 0) {
        return vmmc_fail(vmmcErr_BadAlignment,
                         "map memory: an address is not aligned to 4 bytes");
    }
    if (nwords == 0) {
        return vmmc_fail(vmmcErr_BadSize, "map memory: no words");
    }
    if ((uintptr_t)memory > UINTPTR_MAX - (uintptr_t)nwords * VMMCB_WORD ||
        vmmc_in_dest_space((uintptr_t)memory)) {
        return vmmc_fail(vmmcErr_BadArg, "map memory: the memory is not of vmmcx_alloc");
    }
    int code = begin("map memory: no memory for a record", VMMCB_MAP, 0, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = (uintptr_t)memory;
    r->in[1] = (uint64_t)nwords * VMMCB_WORD;
    r->in[2] = (uintptr_t)remoteProxyAddr;
    r->in[3] = notify != 0;
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

static int on_mapped(const char *what, uint32_t op, int32 *memory) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!memory) {
        return vmmc_fail(vmmcErr_BadArg, "flush or unmap memory: the address is NULL");
    }
    int code = begin(what, op, 0, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = (uintptr_t)memory;
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

API vmmc_result_t vmmcx_unmap(int32 *memory) {
    return on_mapped("unmap memory: no memory for a record", VMMCB_UNMAP, memory);
}

API vmmc_result_t vmmcx_flush(int32 *memory) {
    return on_mapped("flush: no memory for a record", VMMCB_FLUSH, memory);
}

API vmmc_result_t vmmcx_next_event(int milliseconds, vmmcx_event_t *event) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!event) {
        return vmmc_fail(vmmcErr_BadArg, "wait for an event: the address for it is NULL");
    }
    memset(event, 0, sizeof *event);
    int code = begin("wait for an event: no memory for a record", VMMCB_EVENT, sizeof event->name,
                     &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = milliseconds < 0 ? UINT64_MAX : (uint64_t)milliseconds;
    if (vmmc_queue(t, r) == 0) {
        event->kind = (int)(uint32_t)r->out[0];
        event->code = (int32)(uint32_t)(r->out[0] >> 32);
        event->node.vmmc_opaque = r->out[1];
        event->pid = (vmmc_pid_t)r->out[2];
        if (event->kind == VMMCX_IMPORT_REVOKED) {
            event->imported.vmmc_opaque = r->out[3];
        } else {
            event->exported.vmmc_opaque = r->out[3];
        }
        size_t n = r->data_len < sizeof event->name ? r->data_len : sizeof event->name - 1;
        memcpy(event->name, r->data, n);
        event->name[n < sizeof event->name ? n : sizeof event->name - 1] = 0;
    }
    return vmmc_end(t, r);
}
