/* Data transfer (Programming Model 1 and 6; pages 27, 35, 36 and 48 to 51). */
#include <vmmc.h>

vmmc_result_t send_record(int32 *record, uint32 nwords, int32 *remote, int32 *flag);
int has_arrived(volatile int32 *flag, int32 number);
vmmc_result_t send_and_wake(int32 *data, uint32 nwords, int32 *remote);
vmmc_result_t send_beside_work(int32 *data, uint32 nwords, int32 *remote, void (*work)(void));
vmmc_result_t send_many(int32 *data, int32 *remote);
vmmc_result_t fetch(int32 *to, int32 *remote, uint32 nwords);
vmmc_result_t fetch_ahead(int32 *a, int32 *b, int32 *remote, uint32 nwords);

/* Page 48 and Programming Model 1: messages arrive in order, so the flag follows the data. */
vmmc_result_t send_record(int32 *record, uint32 nwords, int32 *remote, int32 *flag)
{
    vmmc_result_t res = vmmc_SendData(record, remote, nwords);

    if (res != vmmc_Success)
        return res;
    return vmmc_SendData(flag, remote + nwords, 1);
}

/* Programming Model 1: to receive is to look at a word of one's own memory. */
int has_arrived(volatile int32 *flag, int32 number)
{
    return *flag == number;
}

/* Page 51: the receiver's handler runs when the data is there. */
vmmc_result_t send_and_wake(int32 *data, uint32 nwords, int32 *remote)
{
    return vmmc_SendDataNotify(data, remote, nwords);
}

/* Pages 49 and 27: the data must stay as it is until the request is over. */
vmmc_result_t send_beside_work(int32 *data, uint32 nwords, int32 *remote, void (*work)(void))
{
    vmmc_async_handle_t request;
    vmmc_result_t res = vmmc_SendDataAsync(data, remote, nwords, &request);

    if (res != vmmc_Success)
        return res;
    while ((res = vmmc_AsyncStatus(&request)) == vmmcErr_InProgress)
        work();
    return res;
}

/* Page 50: four messages, the last of which notifies; all are in order. */
vmmc_result_t send_many(int32 *data, int32 *remote)
{
    vmmc_async_handle_t request[4];
    vmmc_result_t res = vmmc_Success, one;
    int i, begun;

    for (begun = 0; begun < 4 && res == vmmc_Success; begun++) {
        if (begun < 3)
            res = vmmc_SendDataAsync(data + begun, remote + begun, 1, &request[begun]);
        else
            res = vmmc_SendDataAsyncNotify(data + begun, remote + begun, 1, &request[begun]);
    }
    if (res != vmmc_Success)
        begun--;
    for (i = 0; i < begun; i++) {
        while ((one = vmmc_AsyncStatus(&request[i])) == vmmcErr_InProgress)
            ;
        if (res == vmmc_Success)
            res = one;
    }
    return res;
}

/* Page 35: returns when the data is here. */
vmmc_result_t fetch(int32 *to, int32 *remote, uint32 nwords)
{
    return vmmc_GetData(to, remote, nwords);
}

/* Page 36: two fetches at a time. */
vmmc_result_t fetch_ahead(int32 *a, int32 *b, int32 *remote, uint32 nwords)
{
    vmmc_async_handle_t first, second;
    vmmc_result_t res = vmmc_GetDataAsync(a, remote, nwords, &first), second_res;

    if (res != vmmc_Success)
        return res;
    second_res = vmmc_GetDataAsync(b, remote + nwords, nwords, &second);
    while ((res = vmmc_AsyncStatus(&first)) == vmmcErr_InProgress)
        ;
    if (second_res == vmmc_Success)
        while ((second_res = vmmc_AsyncStatus(&second)) == vmmcErr_InProgress)
            ;
    return res != vmmc_Success ? res : second_res;
}
