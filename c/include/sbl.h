/*
 * sbl.h: the calls of the SHRIMP Base Library (1995), for programs in C and C++. They are in
 * libvmmc and made of the calls of vmmc.h; a process may use both.
 *
 * The library's own text describes its calls and prints no declarations: names and results are
 * those of the text, arguments are in the order in which it names them, but sends take the source
 * first, as those of VMMC do. sbl(3) has all of them.
 */
#ifndef SBL_H
#define SBL_H

#include "vmmc.h"

#ifdef __cplusplus
extern "C" {
#define SBL_IN const
#else
#define SBL_IN
#endif

/* A handler: the address and the value of the last word of a message with notification. */
typedef vmmc_callback_t SBL_Handler;

/* An import that is being made. */
typedef vmmc_imphandle_t SBL_Request;

/* Machine. The array belongs to the library. */
int SBL_PageSize(void);
int SBL_WordSize(void);
int SBL_Hosts(uint32 *nhosts, vmmc_node_t **hosts);

/* Receive buffers. handler may be NULL. */
int SBL_ExportRecvBuf(uint32 bufid, int32 *addr, uint32 nwords, SBL_Handler handler);
int SBL_UnexportRecvBuf(uint32 bufid);
int SBL_ImportRecvBuf(uint32 bufid, vmmc_node_t nodeId, vmmc_pid_t pid, int32 **raddr,
                      uint32 *nwords);
int SBL_ImportRecvBufReq(uint32 bufid, vmmc_node_t nodeId, vmmc_pid_t pid, SBL_Request *request);
int SBL_ImportRecvBufStatus(SBL_Request *request, int32 **raddr, uint32 *nwords);
int SBL_UnimportRecvBuf(int32 *raddr);

/* Deliberate update. The text spells the first call in two ways. */
int SBL_SendMsg(SBL_IN int32 *addr, int32 *raddr, uint32 nwords);
int SBL_SendMesg(SBL_IN int32 *addr, int32 *raddr, uint32 nwords);
int SBL_SendMsgWithNotify(SBL_IN int32 *addr, int32 *raddr, uint32 nwords);

/*
 * Automatic update: stores to nwords words at addr, which are of vmmcx_alloc, appear at raddr by
 * themselves; with notify, each with a notification.
 */
int SBL_Map(int32 *addr, int32 *raddr, uint32 nwords, int notify);
int SBL_Unmap(int32 *addr);

/* Notifications. */
void SBL_BlockNotifications(void);
int SBL_UnblockNotifications(void);

/* Errors: the values of vmmc.h. */
void SBL_Error(int status, SBL_IN char *text);

#undef SBL_IN

#ifdef __cplusplus
}
#endif

#endif
