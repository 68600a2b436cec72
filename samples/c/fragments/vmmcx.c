/* What the manual does not have (vmmcx.h). */
#include <stdio.h>
#include <vmmcx.h>

int32 *offer_pages(unsigned long bytes, uint32 id, vmmc_exphandle_t *handle);
vmmc_result_t take_back(int32 *pages, vmmc_exphandle_t handle);
void explain(vmmc_result_t res, char *what);
int is_over(vmmc_result_t res);
vmmc_result_t enter_once(int32 *far_lock, int32 *far_count);
vmmc_result_t count_far(int32 *far_counter, int64_t *before);
vmmc_result_t await_answer(int32 *word, int32 old, vmmc_imphandle_t *peer);
vmmc_result_t offer_by_name(vmmc_exphandle_t handle, int (*serve)(void));
int32 *find_by_name(const char *name, vmmc_imphandle_t *handle);
vmmc_result_t import_next(uint32 id, vmmc_imphandle_t *handle, int32 **next);
int serve_handlers(int (*wait_for_input)(int descriptor));

/* Memory that importers on the same node map. */
int32 *offer_pages(unsigned long bytes, uint32 id, vmmc_exphandle_t *handle)
{
    int32 *pages = (int32 *)vmmcx_alloc(bytes);
    vmmc_result_t res;

    if (pages == NULL)
        return NULL;
    res = vmmc_ExportRecvBuf(pages, (uint32)(bytes / 4), id, NULL,
                             BUF_READWRITE | BUF_GLOBAL_SPACE, 0, handle);
    if (res == vmmc_Success)
        return pages;
    explain(res, (char *)"export pages");
    (void)vmmcx_free(pages);
    return NULL;
}

/* Memory that is exported cannot be freed. */
vmmc_result_t take_back(int32 *pages, vmmc_exphandle_t handle)
{
    vmmc_result_t res = vmmc_UnexportRecvBuf(handle);

    return res == vmmc_Success ? vmmcx_free(pages) : res;
}

/* What was tried, on what, and why it failed. */
void explain(vmmc_result_t res, char *what)
{
    if (res < 0)
        fprintf(stderr, "%s: %s\n", what, vmmcx_last_error());
}

/* The exporter has ended, was restarted, or has withdrawn the buffer: each is the manual's kind. */
int is_over(vmmc_result_t res)
{
    return vmmcx_error_is(res, vmmcErr_BadIbufState);
}

/* A lock of one word that several processes take, and a counter beside it. */
vmmc_result_t enter_once(int32 *far_lock, int32 *far_count)
{
    int32 was = 1;
    vmmc_result_t res;

    do
        res = vmmcx_compare_and_swap(far_lock, 0, 1, &was);
    while (res == vmmc_Success && was != 0);
    if (res < 0)
        return res;
    res = vmmcx_fetch_add(far_count, 1, NULL);
    if (res < 0)
        return res;
    return vmmcx_swap(far_lock, 0, NULL);
}

/* Counts to at most 1,000,000, and then begins again. All of it has arrived in the end. */
vmmc_result_t count_far(int32 *far_counter, int64_t *before)
{
    vmmc_result_t res = vmmcx_compare_and_swap64(far_counter, 1000000, 0, before);

    if (res == vmmc_Success && *before != 1000000)
        res = vmmcx_fetch_add64(far_counter, 1, before);
    if (res == vmmc_Success && *before > 1000000)
        res = vmmcx_swap64(far_counter, 0, NULL);
    return res == vmmc_Success ? vmmcx_fence(far_counter) : res;
}

/* Waits for an answer, or for the end of the process that owes it: at most a minute. */
vmmc_result_t await_answer(int32 *word, int32 old, vmmc_imphandle_t *peer)
{
    vmmc_result_t res = vmmcx_wait_word(word, old, 60000, peer);

    if (res == vmmcErr_Timeout)
        fprintf(stderr, "no answer within a minute\n");
    return res;
}

/* A program with a loop of its own runs handlers in it. It calls this before it exports. */
int serve_handlers(int (*wait_for_input)(int descriptor))
{
    int fd = vmmcx_poll_fd(), res = 0;

    while (fd >= 0 && res >= 0 && wait_for_input(fd))
        res = vmmcx_run_handlers();
    return fd < 0 ? fd : res;
}

/* Others find the buffer by its name for as long as it serves. */
vmmc_result_t offer_by_name(vmmc_exphandle_t handle, int (*serve)(void))
{
    vmmc_result_t res = vmmcx_publish(handle, "jobs");

    if (res < 0)
        return res;
    while (serve())
        ;
    return vmmcx_unpublish(handle, "jobs");
}

/* Waits up to a minute for a server. NULL if there is none. */
int32 *find_by_name(const char *name, vmmc_imphandle_t *handle)
{
    int32 *far = NULL;
    uint32 nwords;

    if (vmmcx_import_name(name, 60000, handle, &far, &nwords) < 0)
        return NULL;
    return far;
}

/* A ring: each program of a group imports the buffer of the next one. */
vmmc_result_t import_next(uint32 id, vmmc_imphandle_t *handle, int32 **next)
{
    vmmc_node_t node;
    vmmc_pid_t pid;
    uint32 nwords;
    int rank, size;
    vmmc_result_t res = vmmcx_group(&rank, &size);

    if (res == vmmc_Success)
        res = vmmcx_member((rank + 1) % size, -1, &node, &pid);
    if (res == vmmc_Success)
        res = vmmc_ImportRecvBuf(node, pid, id, handle, next, &nwords);
    if (res == vmmc_Success)
        res = vmmcx_barrier(-1);
    return res == vmmc_Success ? vmmcx_leave(-1) : res;
}
