/* The calls of the SHRIMP Base Library, as its text describes them. */
#include <sbl.h>
#include <vmmcx.h>
#include <stdio.h>

int sbl_receive(int32 *buf, uint32 nwords, SBL_Handler handler);
int sbl_send(vmmc_node_t node, vmmc_pid_t pid, int32 *data, uint32 nwords);
int sbl_send_later(vmmc_node_t node, vmmc_pid_t pid, int32 *data, uint32 nwords);
int sbl_withdraw(void);
int sbl_is_whole_pages(uint32 nwords);
int sbl_print_hosts(void);
void sbl_unblock(void);

enum { ID = 7 };

/* "Receive Buffers" and "Notifications": id, starting address, length, and zero or one handler. */
int sbl_receive(int32 *buf, uint32 nwords, SBL_Handler handler)
{
    int status = SBL_ExportRecvBuf(ID, buf, nwords, handler);

    if (status < 0)
        SBL_Error(status, (char *)"export");
    return status;
}

/* "Communication": a message, and one that calls the handler, to successive words. */
int sbl_send(vmmc_node_t node, vmmc_pid_t pid, int32 *data, uint32 nwords)
{
    int32 *raddr;
    uint32 room;
    int status = SBL_ImportRecvBuf(ID, node, pid, &raddr, &room);

    if (status < 0)
        return status;
    if (nwords + 1 > room)
        return vmmcErr_BadSize;
    status = SBL_SendMsg(data, raddr, nwords);
    if (status == 0)
        status = SBL_SendMsgWithNotify(data, raddr + nwords, 1);
    if (status == 0)
        status = SBL_UnimportRecvBuf(raddr);
    return status;
}

/* "Receive Buffers": the request returns immediately. The text's other spelling of the send. */
int sbl_send_later(vmmc_node_t node, vmmc_pid_t pid, int32 *data, uint32 nwords)
{
    SBL_Request request;
    int32 *raddr;
    uint32 room;
    int status = SBL_ImportRecvBufReq(ID, node, pid, &request);

    if (status < 0)
        return status;
    while ((status = SBL_ImportRecvBufStatus(&request, &raddr, &room)) == vmmcErr_InProgress)
        ;
    return status < 0 ? status : SBL_SendMesg(data, raddr, nwords < room ? nwords : room);
}

/* "Removal of Import-Export Link": the id names the buffer. */
int sbl_withdraw(void)
{
    return SBL_UnexportRecvBuf(ID);
}

/* "Protection Guarantees": whole pages. */
int sbl_is_whole_pages(uint32 nwords)
{
    return nwords % (uint32)(SBL_PageSize() / SBL_WordSize()) == 0;
}

/* The introduction: the nodes of the machine. */
int sbl_print_hosts(void)
{
    vmmc_node_t *hosts;
    uint32 i, n;
    int status = SBL_Hosts(&n, &hosts);

    for (i = 0; status == 0 && i < n; i++)
        printf("%s\n", vmmc_NodeToName(hosts[i]));
    return status;
}

/* "Notifications": a pair, then a loop that takes all levels away. */
void sbl_unblock(void)
{
    int status;

    SBL_BlockNotifications();
    while ((status = SBL_UnblockNotifications()) == 0)
        ;
    if (status < 0)
        SBL_Error(status, (char *)"unblock");
}

int sbl_share(int32 *raddr, uint32 nwords, int32 **memory);
int sbl_unshare(int32 *memory);

/* Automatic update: what the program stores in *memory appears at raddr. */
int sbl_share(int32 *raddr, uint32 nwords, int32 **memory)
{
    *memory = (int32 *)vmmcx_alloc((size_t)nwords * sizeof **memory);
    if (!*memory)
        return vmmcErr_NoMem;
    return SBL_Map(*memory, raddr, nwords, 0);
}

int sbl_unshare(int32 *memory)
{
    int r = SBL_Unmap(memory);
    return r != 0 ? r : vmmcx_free(memory);
}
