/* Exports, imports, redirection, and memory for exports. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdint.h>
#include <sys/mman.h>

#include "core.h"
#include "mapped.h"
#include "vmmcx.h"

/* Begins a call that an argument's check has not refused. */
static int begin(const char *what, uint32_t op, struct thread **t, struct vmmcb_record **r) {
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    *t = vmmc_thread();
    *r = *t ? vmmc_begin(*t, op, 0) : NULL;
    return *r ? 0 : vmmc_fail(vmmcErr_NoMem, what);
}

API void *vmmcx_alloc(size_t bytes) {
    struct thread *t;
    struct vmmcb_record *r;
    if (bytes > INT64_MAX) {
        vmmc_fail(vmmcErr_NoMem, "allocate memory: the size is beyond any memory");
        return NULL;
    }
    if (begin("allocate memory: no memory for a record", VMMCB_ALLOC, &t, &r) != 0) {
        return NULL;
    }
    void *p = NULL;
    r->in[0] = bytes;
    if (vmmc_queue(t, r) == 0) {
        size_t page = (size_t)vmmc_PageSize();
        p = (void *)(uintptr_t)r->out[0];
        /* A child's stores would reach the importers. */
        madvise(p, (bytes + page - 1) & ~(page - 1), MADV_DONTFORK);
    }
    vmmc_end(t, r);
    return p;
}

API vmmc_result_t vmmcx_free(void *memory) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!memory) {
        return 0;
    }
    int code = begin("free memory: no memory for a record", VMMCB_FREE, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = (uintptr_t)memory;
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_ExportRecvBuf(int32 *buf, uint32 nwords, uint32 rbufid,
                                     vmmc_callback_t proc, uint32 flags, vmmc_perm_t perm,
                                     vmmc_exphandle_t *bufHandle) {
    struct thread *t;
    struct vmmcb_record *r;
    uint32_t how = 0;
    if (!bufHandle || !buf) {
        return vmmc_fail(vmmcErr_BadArg,
                         "export: the buffer or the address for the handle is NULL");
    }
    bufHandle->vmmc_opaque = 0;
    if ((uintptr_t)buf % 4 != 0) {
        return vmmc_fail(vmmcErr_BadAlignment, "export: the buffer is not aligned to 4 bytes");
    }
    if (nwords == 0) {
        return vmmc_fail(vmmcErr_BadSize, "export: the buffer has no words");
    }
    switch (flags & BUF_READWRITE) {
    case BUF_WRITE_ONLY:
        how = VMMCB_EXPORT_WRITE;
        break;
    case BUF_READ_ONLY:
        how = VMMCB_EXPORT_READ;
        break;
    case BUF_READWRITE:
        how = VMMCB_EXPORT_READ | VMMCB_EXPORT_WRITE;
        break;
    default:
        return vmmc_fail(vmmcErr_BadArg,
                         "export: the flags have none of BUF_WRITE_ONLY, BUF_READ_ONLY and "
                         "BUF_READWRITE");
    }
    if (flags & ~(BUF_READWRITE | BUF_REDIRECTABLE | BUF_GLOBAL_SPACE)) {
        return vmmc_fail(vmmcErr_BadArg, "export: the flags have a bit that is none of BUF_...");
    }
    if (perm != 0) {
        return vmmc_fail(vmmcErr_BadArg, "export: perm is not 0, the only one so far");
    }
    if ((uintptr_t)buf > UINTPTR_MAX - (uintptr_t)nwords * 4 ||
        vmmc_in_dest_space((uintptr_t)buf)) {
        return vmmc_fail(vmmcErr_BadArg, "export: the buffer is no memory of this process");
    }
    if (flags & BUF_REDIRECTABLE) {
        how |= VMMCB_EXPORT_REDIRECTABLE;
    }
    if (flags & BUF_GLOBAL_SPACE) {
        how |= VMMCB_EXPORT_GLOBAL;
    }
    int code = begin("export: no memory for a record", VMMCB_EXPORT, &t, &r);
    if (code != 0) {
        return code;
    }
    if (proc && vmmc_start_handlers() != 0) {
        r->code = vmmcErr_NoMem;
        vmmc_end(t, r);
        return vmmc_fail(vmmcErr_NoMem, "export: no thread for handlers can be made");
    }
    r->in[0] = (uintptr_t)buf;
    r->in[1] = (uint64_t)nwords * 4;
    r->in[2] = rbufid;
    r->in[3] = (uintptr_t)proc;
    r->in[4] = how;
    if (vmmc_queue(t, r) == 0) {
        bufHandle->vmmc_opaque = r->out[0];
    }
    return vmmc_end(t, r);
}

/* An operation on an export that has no other argument. */
static int on_export(const char *what, uint32_t op, vmmc_exphandle_t h, uint64_t out[2]) {
    struct thread *t;
    struct vmmcb_record *r;
    int code = begin(what, op, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = h.vmmc_opaque;
    if (op == VMMCB_DATA_END || op == VMMCB_CLEAR_END) {
        vmmc_now(t, r);
    } else {
        vmmc_queue(t, r);
    }
    out[0] = r->out[0];
    out[1] = r->out[1];
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_UnexportRecvBuf(vmmc_exphandle_t handle) {
    uint64_t out[2];
    return on_export("unexport: no memory for a record", VMMCB_UNEXPORT, handle, out);
}

API vmmc_result_t vmmc_PostRedir(vmmc_exphandle_t bufHandle, uint32 redirOffset, uint32 numWords,
                                 int32 *userBuf) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!userBuf) {
        return vmmc_fail(vmmcErr_BadArg, "redirect: the buffer is NULL");
    }
    if ((uintptr_t)userBuf % 4 != 0) {
        return vmmc_fail(vmmcErr_BadAlignment, "redirect: the buffer is not aligned to 4 bytes");
    }
    if (numWords == 0) {
        return vmmc_fail(vmmcErr_BadSize, "redirect: no words");
    }
    if ((uintptr_t)userBuf > UINTPTR_MAX - (uintptr_t)numWords * 4 ||
        vmmc_in_dest_space((uintptr_t)userBuf)) {
        return vmmc_fail(vmmcErr_BadArg, "redirect: the buffer is no memory of this process");
    }
    int code = begin("redirect: no memory for a record", VMMCB_POST_REDIR, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = bufHandle.vmmc_opaque;
    r->in[1] = (uint64_t)redirOffset * 4;
    r->in[2] = (uint64_t)numWords * 4;
    r->in[3] = (uintptr_t)userBuf;
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_EndRedir(vmmc_exphandle_t bufHandle, uint32 *numWordsPtr,
                                uint32 *firstWordOffsetPtr) {
    uint64_t out[2] = {0, 0};
    if (!numWordsPtr || !firstWordOffsetPtr) {
        return vmmc_fail(vmmcErr_BadArg, "end a redirection: an address for the result is NULL");
    }
    int code = on_export("end a redirection: no memory for a record", VMMCB_END_REDIR, bufHandle,
                         out);
    *numWordsPtr = vmmc_words(out[0]);
    *firstWordOffsetPtr = (uint32)(out[1] / 4);
    return code;
}

/* How often a reader of an importer's page looks again while that importer sends. */
#define LOOKS 1000

/*
 * Does what Exporter.DataEnd and Exporter.ClearEnd of internal/link/redirect do. Reports whether it
 * has; otherwise Go does it again. *word is the index of the last word, or -1 for none.
 */
static int end_inside(const struct vmmcb_end *e, int clear, int64_t *word) {
    uint64_t n, off = 0;
    *word = -1;
    if (!e->version) {
        return 1;
    }
    if (VMMC_LOAD(e->version) != e->at) {
        return 0;
    }
    if (clear) {
        __atomic_store_n(e->last, 0, __ATOMIC_SEQ_CST);
        if (e->messages) {
            uint64_t seen = VMMC_LOAD(e->cleared);
            do { /* after `seen`, so that no later change is taken back */
                n = VMMC_LOAD(e->messages);
            } while (!__atomic_compare_exchange_n(e->cleared, &seen, n, 0, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_SEQ_CST));
        }
    } else {
        if (e->messages) {
            int looks = 0;
            /* before the count: a message that is cleared meanwhile is not the last one again */
            uint64_t cleared = VMMC_LOAD(e->cleared);
            do { /* the importer keeps sending, or lies */
                n = VMMC_LOAD(e->messages);
                off = VMMC_LOAD(e->ends[n % 2]);
            } while (VMMC_LOAD(e->messages) != n && ++looks < LOOKS);
            if (n != cleared && off % VMMC_WORD == 0 && off < e->size) {
                *word = (int64_t)(off / VMMC_WORD);
            }
        }
        if (*word < 0 && (off = VMMC_LOAD(e->last)) != 0) {
            *word = (int64_t)(off / VMMC_WORD) - 1;
        }
    }
    return VMMC_LOAD(e->version) == e->at; /* what was stored was the export's */
}

/*
 * The same for a handle, without Go. The program may leave it by siglongjmp or pthread_exit: it
 * holds nothing but the epoch.
 */
__attribute__((noinline)) static int end_in_c(vmmc_exphandle_t h, int clear, int64_t *word) {
    struct thread *t = vmmc_thread();
    if (!t || (!t->epoch && !vmmc_take_epoch(t))) {
        return 0;
    }
    int entered = vmmc_enter_epoch(t, (uintptr_t)__builtin_frame_address(0));
    const struct vmmcb_end *e = __atomic_load_n(
        &vmmc_shared->exports[h.vmmc_opaque % VMMCB_EXPORTS].end, __ATOMIC_SEQ_CST);
    int done = e && e->handle == h.vmmc_opaque && end_inside(e, clear, word);
    if (entered) {
        vmmc_leave_epoch(t);
    }
    return done;
}

API int vmmc_DataEnd(vmmc_exphandle_t bufHandle) {
    uint64_t out[2];
    int64_t word;
    if (vmmc_ready() == 0 && end_in_c(bufHandle, 0, &word)) {
        return word >= 0 ? (int)word
                         : vmmc_fail(vmmcErr_NoSuchError,
                                     "read the end of data: no data has arrived since the export "
                                     "or vmmc_ClearDataEnd, or it is not redirectable");
    }
    int code = on_export("read the end of data: no memory for a record", VMMCB_DATA_END, bufHandle,
                         out);
    return code != 0 ? code : (int)out[0];
}

API void vmmc_ClearDataEnd(vmmc_exphandle_t bufHandle) {
    uint64_t out[2];
    int64_t word;
    if (vmmc_ready() == 0 && end_in_c(bufHandle, 1, &word)) {
        return;
    }
    on_export("clear the end of data: no memory for a record", VMMCB_CLEAR_END, bufHandle, out);
}

static int begin_import(uint32_t op, vmmc_node_t node, vmmc_pid_t pid, uint32 rbufid,
                        struct thread **t, struct vmmcb_record **r) {
    int code = begin("import: no memory for a record", op, t, r);
    if (code == 0) {
        (*r)->in[0] = node.vmmc_opaque;
        (*r)->in[1] = pid;
        (*r)->in[2] = rbufid;
    }
    return code;
}

API vmmc_result_t vmmc_ImportRecvBuf(vmmc_node_t node, vmmc_pid_t pid, uint32 rbufid,
                                     vmmc_imphandle_t *handle, int32 **proxyBuf, uint32 *nwords) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!handle || !proxyBuf || !nwords) {
        return vmmc_fail(vmmcErr_BadArg, "import: an address for the result is NULL");
    }
    handle->vmmc_opaque = 0;
    *proxyBuf = NULL;
    *nwords = 0;
    int code = begin_import(VMMCB_IMPORT, node, pid, rbufid, &t, &r);
    if (code != 0) {
        return code;
    }
    if (vmmc_queue(t, r) == 0) {
        handle->vmmc_opaque = r->out[0];
        *proxyBuf = (int32 *)(uintptr_t)r->out[1];
        *nwords = vmmc_words(r->out[2]);
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_ImportRecvBufAsync(vmmc_node_t node, vmmc_pid_t pid, uint32 rbufid,
                                          vmmc_imphandle_t *handle) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!handle) {
        return vmmc_fail(vmmcErr_BadArg, "begin to import: the address for the handle is NULL");
    }
    handle->vmmc_opaque = 0;
    int code = begin_import(VMMCB_IMPORT_BEGIN, node, pid, rbufid, &t, &r);
    if (code != 0) {
        return code;
    }
    if (vmmc_queue(t, r) == 0) {
        handle->vmmc_opaque = r->out[0];
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_ImportRecvBufStatus(vmmc_imphandle_t *handle, int32 **proxyBuf,
                                           uint32 *nwords) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!handle || !proxyBuf || !nwords) {
        return vmmc_fail(vmmcErr_BadArg, "ask for an import: the handle or an address is NULL");
    }
    int code = begin("ask for an import: no memory for a record", VMMCB_IMPORT_STATE, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = handle->vmmc_opaque;
    if (vmmc_queue(t, r) == 0) {
        *proxyBuf = (int32 *)(uintptr_t)r->out[1];
        *nwords = vmmc_words(r->out[2]);
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_UnimportRecvBuf(vmmc_imphandle_t handle) {
    struct thread *t;
    struct vmmcb_record *r;
    int code = begin("unimport: no memory for a record", VMMCB_UNIMPORT, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = handle.vmmc_opaque;
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}
