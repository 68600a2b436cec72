/* Receive buffers (Programming Model 3 and 9; pages 34 and 56). */
#include <stdlib.h>
#include <vmmc.h>

vmmc_result_t offer(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle);
int32 *offer_new(uint32 nwords, uint32 id, vmmc_exphandle_t *handle);
vmmc_result_t offer_for_reading(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle);
vmmc_result_t offer_mailbox(int32 *buf, uint32 nwords, uint32 id, vmmc_callback_t proc,
                            vmmc_exphandle_t *handle);
vmmc_result_t offer_redirectable(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle);
vmmc_result_t offer_global(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle);
vmmc_result_t withdraw(vmmc_exphandle_t handle);

/* Page 34: any memory that is there, with no handler, to be written and read. */
vmmc_result_t offer(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle)
{
    return vmmc_ExportRecvBuf(buf, nwords, id, NULL, BUF_READWRITE, 0, handle);
}

/* Page 34: the call allocates nothing, so the program does. */
int32 *offer_new(uint32 nwords, uint32 id, vmmc_exphandle_t *handle)
{
    int32 *buf = (int32 *)calloc(nwords, (size_t)vmmc_WordSize());
    vmmc_result_t res;

    if (buf == NULL)
        return NULL;
    res = offer(buf, nwords, id, handle);
    if (res != vmmc_Success) {
        vmmc_Error(res, (char *)"export a new buffer");
        free(buf);
        return NULL;
    }
    return buf;
}

/* Page 34: the flags say what importers may do. */
vmmc_result_t offer_for_reading(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle)
{
    return vmmc_ExportRecvBuf(buf, nwords, id, NULL, BUF_READ_ONLY, 0, handle);
}

/* Programming Model 8: a buffer has at most one handler, given when it is exported. */
vmmc_result_t offer_mailbox(int32 *buf, uint32 nwords, uint32 id, vmmc_callback_t proc,
                            vmmc_exphandle_t *handle)
{
    return vmmc_ExportRecvBuf(buf, nwords, id, proc, BUF_WRITE_ONLY, 0, handle);
}

/* Programming Model 7: redirection is decided when the buffer is exported. */
vmmc_result_t offer_redirectable(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle)
{
    return vmmc_ExportRecvBuf(buf, nwords, id, NULL, BUF_READWRITE | BUF_REDIRECTABLE, 0, handle);
}

/* Page 34: the buffer lies in the global buffer space, which is memory of the library. */
vmmc_result_t offer_global(int32 *buf, uint32 nwords, uint32 id, vmmc_exphandle_t *handle)
{
    return vmmc_ExportRecvBuf(buf, nwords, id, NULL, BUF_READWRITE | BUF_GLOBAL_SPACE, 0, handle);
}

/* Page 56: from here on no importer can send to the buffer. */
vmmc_result_t withdraw(vmmc_exphandle_t handle)
{
    return vmmc_UnexportRecvBuf(handle);
}
