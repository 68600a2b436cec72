/*
 * vmmc.h: the calls of the VMMC 2.0 manual (Princeton, February 1999), for programs in C and C++.
 *
 * Lengths and offsets are in words of 4 bytes, as in the manual. Addresses are aligned to a word.
 * All calls may be made from several threads at a time.
 *
 * The first call that needs the node joins it: VMMC_SOCKET names the node's socket. A child of
 * fork() that has not called exec() cannot use the library that its parent has used.
 *
 * Each call has a page in section 3 of the manual pages, which begins with vmmc(3).
 */
#ifndef VMMC_H
#define VMMC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* C++ has no conversion from a string literal or a pointer to const to the types of the manual. */
#define VMMC_IN const
#else
#define VMMC_IN
#endif

/* The API level that vmmc_Version returns. */
#define VMMC_MAJOR_VERSION 2
#define VMMC_MINOR_VERSION 0

/* Types. */

typedef int32_t int32;
typedef uint32_t uint32;
typedef unsigned int uint;
typedef unsigned long ulong;

/* A return value: vmmc_Success, or one of the negative vmmcErr_ values below. */
typedef int vmmc_result_t;

/* A notification handler: the address and the value of the last word of a message. */
typedef void (*vmmc_callback_t)(int32 *, int32);

/*
 * Handles. Their content belongs to the library, which checks each handle that it is given. A
 * handle of zeros is valid nowhere.
 */
typedef struct {
    uint64_t vmmc_opaque;
} vmmc_exphandle_t;

typedef struct {
    uint64_t vmmc_opaque;
} vmmc_imphandle_t;

typedef struct {
    uint64_t vmmc_opaque[4];
} vmmc_async_handle_t;

/* A node. A node of zeros is no node. Compare two by vmmc_EqualNodes. */
typedef struct {
    uint64_t vmmc_opaque;
} vmmc_node_t;

/* A logical process id, unique in the cluster. It is not the kernel's process id. */
typedef uint32 vmmc_pid_t;

/*
 * The permission of an export. 0 admits processes of the same user and session. Other values are
 * kept for later versions.
 */
typedef uint32 vmmc_perm_t;

/* Flags of vmmc_ExportRecvBuf: exactly one of the first three, and none or more of the others. */
#define BUF_WRITE_ONLY 0x1u
#define BUF_READ_ONLY 0x2u
#define BUF_READWRITE 0x3u
#define BUF_REDIRECTABLE 0x4u
#define BUF_GLOBAL_SPACE 0x8u /* the buffer is memory of vmmcx_alloc */

/* Return values. Their numbers never change. */

#define vmmc_Success 0
#define vmmcErr_BadAlignment (-1)
#define vmmcErr_BufAlreadyExists (-2)
#define vmmcErr_BadIbufState (-3)
#define vmmcErr_BadRbufState (-4)
#define vmmcErr_BadProxyExtension (-5)
#define vmmcErr_BadProxyAddr (-6)
#define vmmcErr_BadSize (-7)
#define vmmcErr_BadArg (-8)
#define vmmcErr_NotImplemented (-9)
#define vmmcErr_UnblockedNotifications (-10)
#define vmmcErr_BlockedNotifications (-11)
#define vmmcErr_NoPhysDestSpace (-12)
#define vmmcErr_NoVirtDestSpace (-13)
#define vmmcErr_NoMem (-14)
#define vmmcErr_NoSuchNode (-15)
#define vmmcErr_NoSuchProcess (-16)
#define vmmcErr_NotInHandler (-17)
#define vmmcErr_OverlappedBufs (-18)
#define vmmcErr_InProgress (-19)
#define vmmcErr_NoSuchError (-20) /* of vmmc_DataEnd: no data has arrived */
#define vmmcErr_NoParent (-21)
#define vmmcErr_BadAsyncHandle (-22)
#define vmmcErr_StaleHandle (-23)

/* The manual's other spellings. */
#define vmmcErr_StateHandle vmmcErr_StaleHandle
#define vmmc_ENotInHandler vmmcErr_NotInHandler

/* Values that the manual does not have. */
#define vmmcErr_NoRights (-64)
#define vmmcErr_PeerGone (-65)
#define vmmcErr_Revoked (-66)
#define vmmcErr_StaleImport (-67)
#define vmmcErr_NotRedirectable (-68)
#define vmmcErr_Timeout (-69)
#define vmmcErr_OutcomeUnknown (-70)
#define vmmcErr_NoDaemon (-71)
#define vmmcErr_Unreachable (-72)
#define vmmcErr_Closed (-73)
#define vmmcErr_Protocol (-74)
#define vmmcErr_BadConfig (-75)
#define vmmcErr_NoCredit (-76)
#define vmmcErr_NoSuchSession (-77)
#define vmmcErr_Canceled (-78)
#define vmmcErr_Unknown (-79)
#define vmmcErr_NameTaken (-80)
#define vmmcErr_BadName (-81)

/* The library. */

void vmmc_Version(uint32 *major, uint32 *minor);
int vmmc_PageSize(void);
int vmmc_WordSize(void);
void vmmc_SetDebugLevel(int level);

/* Texts of return values. The library owns the string of vmmc_ErrorStr. */
char *vmmc_ErrorStr(int errCode);
void vmmc_Error(int errCode, VMMC_IN char *text);

/*
 * Nodes and processes. The library owns the strings and arrays that it returns: a program neither
 * writes nor frees them, and they stay until the process ends.
 */
char *vmmc_MyHostName(void);
vmmc_node_t vmmc_MyNode(void);
vmmc_pid_t vmmc_MyPid(void);
vmmc_result_t vmmc_AllHosts(uint32 *nhosts, vmmc_node_t **hosts);
vmmc_result_t vmmc_SessionHosts(uint32 *nhosts, vmmc_node_t **hostIds);
vmmc_node_t vmmc_NameToNode(VMMC_IN char *hostname);
char *vmmc_NodeToName(vmmc_node_t node);
int vmmc_EqualNodes(vmmc_node_t node1, vmmc_node_t node2);
vmmc_result_t vmmc_Parent(vmmc_node_t *parentNode, vmmc_pid_t *parentPid);
vmmc_result_t vmmc_Spawn(VMMC_IN char *execfile, char **argv, vmmc_node_t node, vmmc_pid_t *pid);

/* Exports and imports. */

vmmc_result_t vmmc_ExportRecvBuf(int32 *buf, uint32 nwords, uint32 rbufid, vmmc_callback_t proc,
                                 uint32 flags, vmmc_perm_t perm, vmmc_exphandle_t *bufHandle);
vmmc_result_t vmmc_UnexportRecvBuf(vmmc_exphandle_t handle);
vmmc_result_t vmmc_ImportRecvBuf(vmmc_node_t node, vmmc_pid_t pid, uint32 rbufid,
                                 vmmc_imphandle_t *handle, int32 **proxyBuf, uint32 *nwords);
vmmc_result_t vmmc_ImportRecvBufAsync(vmmc_node_t node, vmmc_pid_t pid, uint32 rbufid,
                                      vmmc_imphandle_t *handle);
vmmc_result_t vmmc_ImportRecvBufStatus(vmmc_imphandle_t *handle, int32 **proxyBuf,
                                       uint32 *nwords);
vmmc_result_t vmmc_UnimportRecvBuf(vmmc_imphandle_t handle);

/* Data transfer. */

vmmc_result_t vmmc_SendData(VMMC_IN int32 *localSrcAddr, int32 *remoteDestProxyAddr,
                            uint32 nwords);
vmmc_result_t vmmc_SendDataNotify(VMMC_IN int32 *localSrcAddr, int32 *remoteDestProxyAddr,
                                  uint32 nwords);
vmmc_result_t vmmc_SendDataAsync(VMMC_IN int32 *localSrcAddr, int32 *remoteDestProxyAddr,
                                 uint32 nwords, vmmc_async_handle_t *handle);
vmmc_result_t vmmc_SendDataAsyncNotify(VMMC_IN int32 *localSrcAddr, int32 *remoteDestProxyAddr,
                                       uint32 nwords, vmmc_async_handle_t *handle);
vmmc_result_t vmmc_GetData(int32 *localDstBuf, VMMC_IN int32 *remoteSrcProxyAddr, uint32 nwords);
vmmc_result_t vmmc_GetDataAsync(int32 *localDstBuf, VMMC_IN int32 *remoteSrcProxyAddr,
                                uint32 nwords, vmmc_async_handle_t *handle);
vmmc_result_t vmmc_AsyncStatus(vmmc_async_handle_t *handle);

/* Transfer redirection. */

vmmc_result_t vmmc_PostRedir(vmmc_exphandle_t bufHandle, uint32 redirOffset, uint32 numWords,
                             int32 *userBuf);
vmmc_result_t vmmc_EndRedir(vmmc_exphandle_t bufHandle, uint32 *numWordsPtr,
                            uint32 *firstWordOffsetPtr);
int vmmc_DataEnd(vmmc_exphandle_t bufHandle);
void vmmc_ClearDataEnd(vmmc_exphandle_t bufHandle);

/* Notifications. */

void vmmc_BlockNotifications(void);
int vmmc_UnblockNotifications(void);

#undef VMMC_IN

#ifdef __cplusplus
}
#endif

#endif
