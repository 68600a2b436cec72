/* Imports and DestSpace (Programming Model 4 and 5; pages 37 to 39 and 57). */
#include <vmmc.h>

struct remote {
    vmmc_imphandle_t handle;
    int32 *begin; /* in DestSpace: no data is there */
    uint32 nwords;
};

vmmc_result_t open_remote(vmmc_node_t node, vmmc_pid_t pid, uint32 id, struct remote *r);
int32 *word_of(const struct remote *r, uint32 i);
vmmc_result_t open_two(vmmc_node_t node, vmmc_pid_t pid, struct remote *a, struct remote *b);
vmmc_result_t close_remote(struct remote *r);

/* Page 37: waits until the process exports the buffer. */
vmmc_result_t open_remote(vmmc_node_t node, vmmc_pid_t pid, uint32 id, struct remote *r)
{
    return vmmc_ImportRecvBuf(node, pid, id, &r->handle, &r->begin, &r->nwords);
}

/* Programming Model 5: pointer arithmetic gives the address of a word of the remote buffer. */
int32 *word_of(const struct remote *r, uint32 i)
{
    return i < r->nwords ? r->begin + i : (int32 *)0;
}

/* Pages 38 and 39: both requests are made before one is waited for. */
vmmc_result_t open_two(vmmc_node_t node, vmmc_pid_t pid, struct remote *a, struct remote *b)
{
    vmmc_result_t res = vmmc_ImportRecvBufAsync(node, pid, 1, &a->handle);

    if (res != vmmc_Success)
        return res;
    res = vmmc_ImportRecvBufAsync(node, pid, 2, &b->handle);
    if (res != vmmc_Success)
        return res;
    do
        res = vmmc_ImportRecvBufStatus(&a->handle, &a->begin, &a->nwords);
    while (res == vmmcErr_InProgress);
    if (res != vmmc_Success)
        return res;
    do
        res = vmmc_ImportRecvBufStatus(&b->handle, &b->begin, &b->nwords);
    while (res == vmmcErr_InProgress);
    return res;
}

/* Page 57: the handle is passed by value. Addresses of the import are no longer valid. */
vmmc_result_t close_remote(struct remote *r)
{
    vmmc_result_t res = vmmc_UnimportRecvBuf(r->handle);

    if (res == vmmc_Success)
        r->begin = (int32 *)0;
    return res;
}
