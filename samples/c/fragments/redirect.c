/* Transfer redirection (Programming Model 7; pages 29 to 31 and 47). */
#include <string.h>
#include <vmmc.h>

vmmc_result_t receive_into(vmmc_exphandle_t buffer, int32 *buf, int32 *user, uint32 nwords);
int last_word(vmmc_exphandle_t buffer);

/*
 * Programming Model 7 and figure 5: receives a message of nwords words, which its sender puts at
 * the beginning of the buffer. What came too early for the redirection is copied by the receiver.
 */
vmmc_result_t receive_into(vmmc_exphandle_t buffer, int32 *buf, int32 *user, uint32 nwords)
{
    uint32 n, first;
    vmmc_result_t res = vmmc_PostRedir(buffer, 0, nwords, user);

    if (res != vmmc_Success)
        return res;
    while (vmmc_DataEnd(buffer) != (int)nwords - 1)
        ;
    res = vmmc_EndRedir(buffer, &n, &first);
    if (res != vmmc_Success)
        return res;
    if (n == 0)
        first = nwords;
    memcpy(user, buf, first * sizeof *user);
    if (first + n < nwords)
        memcpy(user + first + n, buf + first + n, (nwords - first - n) * sizeof *user);
    vmmc_ClearDataEnd(buffer);
    return vmmc_Success;
}

/* Page 30: the index of the last word that has arrived, or -1. */
int last_word(vmmc_exphandle_t buffer)
{
    int end = vmmc_DataEnd(buffer);

    return end == vmmcErr_NoSuchError ? -1 : end;
}
