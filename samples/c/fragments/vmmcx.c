/* What the manual does not have (vmmcx.h). */
#include <stdio.h>
#include <vmmcx.h>

int32 *offer_pages(unsigned long bytes, uint32 id, vmmc_exphandle_t *handle);
vmmc_result_t take_back(int32 *pages, vmmc_exphandle_t handle);
void explain(vmmc_result_t res, char *what);
int is_over(vmmc_result_t res);

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
