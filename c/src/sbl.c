/*
 * The calls of the SHRIMP Base Library, made of those of vmmc.h and vmmcx.h. They name exports by
 * id and imports by address, where VMMC has handles: a list has the handle of each.
 */
#include <pthread.h>
#include <stdlib.h>

#include "core.h"
#include "sbl.h"
#include "vmmcx.h"

#define API __attribute__((visibility("default")))

struct entry {
    uintptr_t name; /* an export's id, an import's first address */
    uint64_t handle;
};

struct list {
    pthread_mutex_t mu;
    struct entry *all; /* guarded by mu, as what follows */
    size_t n, room;
};

static struct list exports = {PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0};
static struct list imports = {PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0};

/* Makes room for one entry more, so that the add that follows cannot fail. Needs mu. */
static int reserve(struct list *l) {
    size_t room = 2 * l->room + 8;
    struct entry *all;
    if (l->n < l->room) {
        return 0;
    }
    all = realloc(l->all, room * sizeof *all);
    if (!all) {
        return vmmc_fail(vmmcErr_NoMem, "note an export or an import: no memory");
    }
    l->all = all;
    l->room = room;
    return 0;
}

static int add(struct list *l, uintptr_t name, uint64_t handle) {
    pthread_mutex_lock(&l->mu);
    int code = reserve(l);
    if (code == 0) {
        l->all[l->n++] = (struct entry){name, handle};
    }
    pthread_mutex_unlock(&l->mu);
    return code;
}

/* Takes an entry out and reports whether there was one. */
static int take(struct list *l, uintptr_t name, uint64_t *handle) {
    int found = 0;
    pthread_mutex_lock(&l->mu);
    for (size_t i = 0; i < l->n && !found; i++) {
        if (l->all[i].name == name) {
            *handle = l->all[i].handle;
            l->all[i] = l->all[--l->n];
            found = 1;
        }
    }
    pthread_mutex_unlock(&l->mu);
    return found;
}

/* Puts an entry back whose export or import stays. Nothing was added for it, so there is room. */
static int keep(struct list *l, uintptr_t name, uint64_t handle, int code) {
    if (code != 0) {
        add(l, name, handle);
    }
    return code;
}

API int SBL_PageSize(void) { return vmmc_PageSize(); }

API int SBL_WordSize(void) { return vmmc_WordSize(); }

API int SBL_Hosts(uint32 *nhosts, vmmc_node_t **hosts) { return vmmc_AllHosts(nhosts, hosts); }

API int SBL_ExportRecvBuf(uint32 bufid, int32 *addr, uint32 nwords, SBL_Handler handler) {
    vmmc_exphandle_t h;
    int code = vmmc_ExportRecvBuf(addr, nwords, bufid, handler, BUF_WRITE_ONLY, 0, &h);
    if (code != 0) {
        return code;
    }
    code = add(&exports, bufid, h.vmmc_opaque);
    if (code != 0) {
        vmmc_UnexportRecvBuf(h);
    }
    return code;
}

API int SBL_UnexportRecvBuf(uint32 bufid) {
    vmmc_exphandle_t h;
    if (!take(&exports, bufid, &h.vmmc_opaque)) {
        return vmmc_fail(vmmcErr_BadArg, "withdraw a buffer: SBL_ExportRecvBuf has exported none "
                                         "under this id, or it is withdrawn");
    }
    return keep(&exports, bufid, h.vmmc_opaque, vmmc_UnexportRecvBuf(h));
}

/* Notes an import that was made. */
static int made(vmmc_imphandle_t h, int32 *raddr) {
    int code = add(&imports, (uintptr_t)raddr, h.vmmc_opaque);
    if (code != 0) {
        vmmc_UnimportRecvBuf(h);
    }
    return code;
}

API int SBL_ImportRecvBuf(uint32 bufid, vmmc_node_t nodeId, vmmc_pid_t pid, int32 **raddr,
                          uint32 *nwords) {
    vmmc_imphandle_t h;
    int code = vmmc_ImportRecvBuf(nodeId, pid, bufid, &h, raddr, nwords);
    return code != 0 ? code : made(h, *raddr);
}

API int SBL_ImportRecvBufReq(uint32 bufid, vmmc_node_t nodeId, vmmc_pid_t pid,
                             SBL_Request *request) {
    return vmmc_ImportRecvBufAsync(nodeId, pid, bufid, request);
}

API int SBL_ImportRecvBufStatus(SBL_Request *request, int32 **raddr, uint32 *nwords) {
    int code = vmmc_ImportRecvBufStatus(request, raddr, nwords);
    return code != 0 ? code : made(*request, *raddr);
}

API int SBL_UnimportRecvBuf(int32 *raddr) {
    vmmc_imphandle_t h;
    if (!take(&imports, (uintptr_t)raddr, &h.vmmc_opaque)) {
        return vmmc_fail(vmmcErr_BadProxyAddr,
                         "close the import of a buffer: no import that SBL's calls have made "
                         "begins at this address");
    }
    return keep(&imports, (uintptr_t)raddr, h.vmmc_opaque, vmmc_UnimportRecvBuf(h));
}

API int SBL_SendMsg(int32 *addr, int32 *raddr, uint32 nwords) {
    return vmmc_SendData(addr, raddr, nwords);
}

API int SBL_SendMesg(int32 *addr, int32 *raddr, uint32 nwords) {
    return vmmc_SendData(addr, raddr, nwords);
}

API int SBL_SendMsgWithNotify(int32 *addr, int32 *raddr, uint32 nwords) {
    return vmmc_SendDataNotify(addr, raddr, nwords);
}

API int SBL_Map(int32 *addr, int32 *raddr, uint32 nwords, int notify) {
    return vmmcx_map(addr, raddr, nwords, notify);
}

API int SBL_Unmap(int32 *addr) { return vmmcx_unmap(addr); }

API void SBL_BlockNotifications(void) { vmmc_BlockNotifications(); }

API int SBL_UnblockNotifications(void) { return vmmc_UnblockNotifications(); }

API void SBL_Error(int status, char *text) { vmmc_Error(status, text); }
