/* What each call says to bad arguments. Each row prints its call, which the test compares. */
#include "prog.h"

#include "sbl.h"

#define ROW(name, call, code)                                                                      \
    do {                                                                                           \
        WANT(call, code);                                                                          \
        printf("row %s\n", #name);                                                                 \
    } while (0)
#define VOID_ROW(name, call)                                                                       \
    do {                                                                                           \
        call;                                                                                      \
        printf("row %s\n", #name);                                                                 \
    } while (0)

void bad_arguments(void) {
    static int32 mem[64], user[64];
    char *odd_memory = (char *)mem;
    int32 *odd = (int32 *)(void *)(odd_memory + 2), *p, *p2, *high = (int32 *)(~(uintptr_t)0 - 3);
    uint32 n, n2;
    vmmc_node_t *nodes, none = {0}, forged_node = {12345678}, node;
    vmmc_pid_t pid;
    vmmc_exphandle_t eh, zero_e = {0}, forged_e, other;
    vmmc_imphandle_t ih, zero_i = {0}, forged_i, stale_i, other_i;
    vmmc_async_handle_t ah, zero_a = {{0}}, forged_a;
    char *argv[] = {(char *)"x", NULL};

    /* What is there for the rows that need something. */
    WANT(vmmc_ExportRecvBuf(mem, 64, 1, NULL, BUF_READWRITE, 0, &eh), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 1, &ih, &p, &n), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 1, &stale_i, &p2, &n), 0);
    WANT(vmmc_UnimportRecvBuf(stale_i), 0);
    user[0] = 1;
    WANT(vmmc_SendDataAsync(user, p, 1, &ah), 0);
    forged_e.vmmc_opaque = eh.vmmc_opaque ^ 1ull << 40;
    forged_i.vmmc_opaque = ih.vmmc_opaque ^ 1ull << 40;
    forged_a = ah;
    forged_a.vmmc_opaque[0]++;

    VOID_ROW(vmmc_Version, vmmc_Version(NULL, NULL));
    ROW(vmmc_PageSize, vmmc_PageSize() % 4096, 0);
    ROW(vmmc_WordSize, vmmc_WordSize(), 4);
    VOID_ROW(vmmc_SetDebugLevel, vmmc_SetDebugLevel(-1));
    CHECK(vmmc_ErrorStr(1) && vmmc_ErrorStr(-1000) && vmmc_ErrorStr(vmmc_Success));
    printf("row vmmc_ErrorStr\n");
    VOID_ROW(vmmc_Error, vmmc_Error(-8, NULL));
    CHECK(vmmc_MyHostName() && vmmc_MyPid());
    printf("row vmmc_MyHostName\nrow vmmc_MyPid\n");
    ROW(vmmc_MyNode, vmmc_EqualNodes(vmmc_MyNode(), none), 0);
    ROW(vmmc_EqualNodes, vmmc_EqualNodes(none, none), 0);
    ROW(vmmc_AllHosts, vmmc_AllHosts(NULL, &nodes), vmmcErr_BadArg);
    ROW(vmmc_AllHosts, vmmc_AllHosts(&n2, NULL), vmmcErr_BadArg);
    ROW(vmmc_SessionHosts, vmmc_SessionHosts(NULL, NULL), vmmcErr_BadArg);
    ROW(vmmc_NameToNode, vmmc_EqualNodes(vmmc_NameToNode(NULL), none), 0);
    CHECK(vmmc_NodeToName(none) == NULL && vmmc_NodeToName(forged_node) == NULL);
    printf("row vmmc_NodeToName\n");
    ROW(vmmc_Parent, vmmc_Parent(NULL, &pid), vmmcErr_BadArg);
    ROW(vmmc_Parent, vmmc_Parent(&node, NULL), vmmcErr_BadArg);
    ROW(vmmc_Spawn, vmmc_Spawn(NULL, argv, vmmc_MyNode(), &pid), vmmcErr_BadArg);
    ROW(vmmc_Spawn, vmmc_Spawn((char *)"x", NULL, vmmc_MyNode(), &pid), vmmcErr_BadArg);
    ROW(vmmc_Spawn, vmmc_Spawn((char *)"x", argv, vmmc_MyNode(), NULL), vmmcErr_BadArg);
    ROW(vmmc_Spawn, vmmc_Spawn((char *)"", argv, vmmc_MyNode(), &pid), vmmcErr_BadArg);
    ROW(vmmc_Spawn, vmmc_Spawn((char *)"/bin/true", argv, none, &pid), vmmcErr_NoSuchNode);

    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(NULL, 4, 2, NULL, 3, 0, &other), vmmcErr_BadArg);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(user, 4, 2, NULL, 3, 0, NULL), vmmcErr_BadArg);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(user, 4, 2, NULL, 0, 0, &other), vmmcErr_BadArg);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(user, 4, 2, NULL, 64, 0, &other), vmmcErr_BadArg);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(user, 4, 2, NULL, 3, 1, &other), vmmcErr_BadArg);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(user, 0, 2, NULL, 3, 0, &other), vmmcErr_BadSize);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(odd, 4, 2, NULL, 3, 0, &other),
        vmmcErr_BadAlignment);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(user, 4, 1, NULL, 3, 0, &other),
        vmmcErr_BufAlreadyExists);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(mem + 2, 4, 2, NULL, 3, 0, &other),
        vmmcErr_OverlappedBufs);
    ROW(vmmc_ExportRecvBuf,
        vmmc_ExportRecvBuf(user, 4, 2, NULL, BUF_READWRITE | BUF_GLOBAL_SPACE, 0, &other),
        vmmcErr_BadArg);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(p, 4, 2, NULL, 3, 0, &other), vmmcErr_BadArg);
    ROW(vmmc_ExportRecvBuf, vmmc_ExportRecvBuf(high, 4, 2, NULL, 3, 0, &other), vmmcErr_BadArg);
    ROW(vmmc_UnexportRecvBuf, vmmc_UnexportRecvBuf(zero_e), vmmcErr_BadArg);
    ROW(vmmc_UnexportRecvBuf, vmmc_UnexportRecvBuf(forged_e), vmmcErr_BadRbufState);
    ROW(vmmc_UnexportRecvBuf, vmmc_UnexportRecvBuf((vmmc_exphandle_t){ih.vmmc_opaque}),
        vmmcErr_BadArg);

    ROW(vmmc_ImportRecvBuf, vmmc_ImportRecvBuf(none, 1, 1, &other_i, &p2, &n2),
        vmmcErr_NoSuchNode);
    ROW(vmmc_ImportRecvBuf, vmmc_ImportRecvBuf(forged_node, 1, 1, &other_i, &p2, &n2),
        vmmcErr_NoSuchNode);
    ROW(vmmc_ImportRecvBuf, vmmc_ImportRecvBuf(vmmc_MyNode(), 0, 1, &other_i, &p2, &n2),
        vmmcErr_NoSuchProcess);
    ROW(vmmc_ImportRecvBuf, vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 1, NULL, &p2, &n2),
        vmmcErr_BadArg);
    ROW(vmmc_ImportRecvBuf,
        vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 1, &other_i, NULL, &n2), vmmcErr_BadArg);
    ROW(vmmc_ImportRecvBuf,
        vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 1, &other_i, &p2, NULL), vmmcErr_BadArg);
    ROW(vmmc_ImportRecvBufAsync, vmmc_ImportRecvBufAsync(vmmc_MyNode(), vmmc_MyPid(), 1, NULL),
        vmmcErr_BadArg);
    ROW(vmmc_ImportRecvBufStatus, vmmc_ImportRecvBufStatus(NULL, &p2, &n2), vmmcErr_BadArg);
    ROW(vmmc_ImportRecvBufStatus, vmmc_ImportRecvBufStatus(&ih, NULL, &n2), vmmcErr_BadArg);
    ROW(vmmc_ImportRecvBufStatus, vmmc_ImportRecvBufStatus(&ih, &p2, NULL), vmmcErr_BadArg);
    ROW(vmmc_ImportRecvBufStatus, vmmc_ImportRecvBufStatus(&zero_i, &p2, &n2),
        vmmcErr_BadAsyncHandle);
    ROW(vmmc_ImportRecvBufStatus, vmmc_ImportRecvBufStatus(&forged_i, &p2, &n2),
        vmmcErr_BadAsyncHandle);
    ROW(vmmc_ImportRecvBufStatus, vmmc_ImportRecvBufStatus(&ih, &p2, &n2), vmmcErr_StaleHandle);
    ROW(vmmc_UnimportRecvBuf, vmmc_UnimportRecvBuf(zero_i), vmmcErr_BadArg);
    ROW(vmmc_UnimportRecvBuf, vmmc_UnimportRecvBuf(forged_i), vmmcErr_BadIbufState);
    ROW(vmmc_UnimportRecvBuf, vmmc_UnimportRecvBuf(stale_i), vmmcErr_BadIbufState);

/* What holds for each send and each get: `call(local, far, words)`. */
#define TRANSFERS(name, call)                                                                      \
    ROW(name, call(NULL, p, 1), vmmcErr_BadArg);                                                   \
    ROW(name, call(user, NULL, 1), vmmcErr_BadArg);                                                \
    ROW(name, call(odd, p, 1), vmmcErr_BadAlignment);                                              \
    ROW(name, call(user, (int32 *)(void *)((char *)p + 1), 1), vmmcErr_BadAlignment);              \
    ROW(name, call(user, p, 0), vmmcErr_BadSize);                                                  \
    ROW(name, call(user, p, 65), vmmcErr_BadProxyAddr);                                            \
    ROW(name, call(user, p, 0xffffffffu), vmmcErr_BadProxyAddr);                                   \
    ROW(name, call(user, p + 63, 2), vmmcErr_BadProxyAddr);                                        \
    ROW(name, call(user, p - 1, 1), vmmcErr_BadProxyAddr);                                         \
    ROW(name, call(user, p + 64, 1), vmmcErr_BadProxyAddr);                                        \
    ROW(name, call(user, p2_stale, 1), vmmcErr_BadProxyAddr);                                      \
    ROW(name, call(user, user, 1), vmmcErr_BadProxyAddr);                                          \
    ROW(name, call(user, high, 1), vmmcErr_BadProxyAddr);                                          \
    ROW(name, call(high, p, 4), vmmcErr_BadArg);                                                   \
    ROW(name, call(p, p, 1), vmmcErr_BadArg)
#define ASYNC(name) name##_
#define vmmc_SendDataAsync_(a, b, c) vmmc_SendDataAsync(a, b, c, &forged_a)
#define vmmc_SendDataAsyncNotify_(a, b, c) vmmc_SendDataAsyncNotify(a, b, c, &forged_a)
#define vmmc_GetDataAsync_(a, b, c) vmmc_GetDataAsync(a, b, c, &forged_a)
    int32 *p2_stale = p + (1 << 14); /* the slot behind the import's, and then the stale import's */
    ROW(vmmc_AsyncStatus, vmmc_AsyncStatus(&forged_a), vmmcErr_BadAsyncHandle);
    TRANSFERS(vmmc_SendData, vmmc_SendData);
    TRANSFERS(vmmc_SendDataNotify, vmmc_SendDataNotify);
    TRANSFERS(vmmc_GetData, vmmc_GetData);
    TRANSFERS(vmmc_SendDataAsync, vmmc_SendDataAsync_);
    TRANSFERS(vmmc_SendDataAsyncNotify, vmmc_SendDataAsyncNotify_);
    TRANSFERS(vmmc_GetDataAsync, vmmc_GetDataAsync_);
    ROW(vmmc_SendDataAsync, vmmc_SendDataAsync(user, p, 1, NULL), vmmcErr_BadArg);
    ROW(vmmc_SendDataAsyncNotify, vmmc_SendDataAsyncNotify(user, p, 1, NULL), vmmcErr_BadArg);
    ROW(vmmc_GetDataAsync, vmmc_GetDataAsync(user, p, 1, NULL), vmmcErr_BadArg);
    ROW(vmmc_AsyncStatus, vmmc_AsyncStatus(NULL), vmmcErr_BadArg);
    ROW(vmmc_AsyncStatus, vmmc_AsyncStatus(&zero_a), vmmcErr_BadAsyncHandle);

    ROW(vmmc_PostRedir, vmmc_PostRedir(eh, 0, 4, user), vmmcErr_NotRedirectable);
    ROW(vmmc_PostRedir, vmmc_PostRedir(eh, 0, 4, NULL), vmmcErr_BadArg);
    ROW(vmmc_PostRedir, vmmc_PostRedir(eh, 0, 4, odd), vmmcErr_BadAlignment);
    ROW(vmmc_PostRedir, vmmc_PostRedir(eh, 0, 0, user), vmmcErr_BadSize);
    ROW(vmmc_PostRedir, vmmc_PostRedir(eh, 0, 4, p), vmmcErr_BadArg);
    ROW(vmmc_PostRedir, vmmc_PostRedir(zero_e, 0, 4, user), vmmcErr_BadArg);
    ROW(vmmc_EndRedir, vmmc_EndRedir(eh, NULL, &n2), vmmcErr_BadArg);
    ROW(vmmc_EndRedir, vmmc_EndRedir(eh, &n2, NULL), vmmcErr_BadArg);
    ROW(vmmc_EndRedir, vmmc_EndRedir(forged_e, &n2, &n2), vmmcErr_BadRbufState);
    ROW(vmmc_DataEnd, vmmc_DataEnd(zero_e), vmmcErr_BadArg);
    ROW(vmmc_DataEnd, vmmc_DataEnd(forged_e), vmmcErr_BadRbufState);
    ROW(vmmc_DataEnd, vmmc_DataEnd(eh), vmmcErr_NoSuchError);
    VOID_ROW(vmmc_ClearDataEnd, vmmc_ClearDataEnd(zero_e));
    VOID_ROW(vmmc_BlockNotifications, vmmc_BlockNotifications());
    ROW(vmmc_UnblockNotifications, vmmc_UnblockNotifications() > 0, 1);
    ROW(vmmc_UnblockNotifications, vmmc_UnblockNotifications() > 0, 1);

    CHECK(vmmcx_alloc(0) == NULL && vmmcx_alloc(3) == NULL && vmmcx_alloc(~(size_t)0) == NULL);
    printf("row vmmcx_alloc\n");
    ROW(vmmcx_free, vmmcx_free(NULL), 0);
    ROW(vmmcx_free, vmmcx_free(user), vmmcErr_BadArg);
    ROW(vmmcx_error_is, vmmcx_error_is(vmmcErr_Revoked, vmmcErr_BadIbufState), 1);
    ROW(vmmcx_error_is, vmmcx_error_is(vmmcErr_BadArg, vmmcErr_BadSize), 0);
    ROW(vmmcx_run_handlers, vmmcx_run_handlers(), vmmcErr_BadConfig);
    CHECK(vmmcx_poll_fd() >= 0 && vmmcx_poll_fd() == vmmcx_poll_fd());
    printf("row vmmcx_poll_fd\n");
    ROW(vmmcx_run_handlers, vmmcx_run_handlers(), 0);
    ROW(vmmcx_publish, vmmcx_publish(eh, NULL), vmmcErr_BadArg);
    ROW(vmmcx_publish, vmmcx_publish(eh, ""), vmmcErr_BadName);
    ROW(vmmcx_publish, vmmcx_publish(forged_e, "x"), vmmcErr_BadRbufState);
    ROW(vmmcx_publish, vmmcx_publish(zero_e, "x"), vmmcErr_BadArg);
    ROW(vmmcx_unpublish, vmmcx_unpublish(eh, NULL), vmmcErr_BadArg);
    ROW(vmmcx_unpublish, vmmcx_unpublish(eh, ""), vmmcErr_BadName);
    ROW(vmmcx_unpublish, vmmcx_unpublish(forged_e, "x"), vmmcErr_BadRbufState);
    ROW(vmmcx_import_name, vmmcx_import_name(NULL, 0, &other_i, &p2, &n2), vmmcErr_BadArg);
    ROW(vmmcx_import_name, vmmcx_import_name("x", 0, NULL, &p2, &n2), vmmcErr_BadArg);
    ROW(vmmcx_import_name, vmmcx_import_name("x", 0, &other_i, NULL, &n2), vmmcErr_BadArg);
    ROW(vmmcx_import_name, vmmcx_import_name("x", 0, &other_i, &p2, NULL), vmmcErr_BadArg);
    ROW(vmmcx_import_name, vmmcx_import_name("", 0, &other_i, &p2, &n2), vmmcErr_BadName);
    ROW(vmmcx_import_name, vmmcx_import_name("no_such", 5, &other_i, &p2, &n2), vmmcErr_Timeout);
    static char long_name[4096];
    memset(long_name, 'a', sizeof long_name - 1);
    ROW(vmmcx_publish, vmmcx_publish(eh, long_name), vmmcErr_BadName);
    ROW(vmmcx_import_name, vmmcx_import_name(long_name, 5, &other_i, &p2, &n2), vmmcErr_BadName);
    int rank, size;
    ROW(vmmcx_group, vmmcx_group(NULL, &size), vmmcErr_BadArg);
    ROW(vmmcx_group, vmmcx_group(&rank, NULL), vmmcErr_BadArg);
    ROW(vmmcx_member, vmmcx_member(0, -1, NULL, &pid), vmmcErr_BadArg);
    ROW(vmmcx_member, vmmcx_member(0, -1, &node, NULL), vmmcErr_BadArg);
    ROW(vmmcx_member, vmmcx_member(1, -1, &node, &pid), vmmcErr_BadArg);
    ROW(vmmcx_member, vmmcx_member(-1, -1, &node, &pid), vmmcErr_BadArg);
    ROW(vmmcx_barrier, vmmcx_barrier(-1), 0); /* of a group of one */
    ROW(vmmcx_leave, vmmcx_leave(-1), 0);
    ROW(vmmcx_barrier, vmmcx_barrier(-1), vmmcErr_Closed);
    vmmcx_event_t event;
    ROW(vmmcx_next_event, vmmcx_next_event(0, NULL), vmmcErr_BadArg);
    ROW(vmmcx_next_event, vmmcx_next_event(0, &event), vmmcErr_Timeout);
    int32 *pages = vmmcx_alloc(4096);
    ROW(vmmcx_map, vmmcx_map(NULL, p, 8, 0), vmmcErr_BadArg);
    ROW(vmmcx_map, vmmcx_map(pages, NULL, 8, 0), vmmcErr_BadArg);
    ROW(vmmcx_map, vmmcx_map(odd, p, 8, 0), vmmcErr_BadAlignment);
    ROW(vmmcx_map, vmmcx_map(pages, p, 0, 0), vmmcErr_BadSize);
    ROW(vmmcx_map, vmmcx_map(pages, p, 65, 0), vmmcErr_BadProxyAddr);
    ROW(vmmcx_map, vmmcx_map(pages, user, 8, 0), vmmcErr_BadProxyAddr);
    ROW(vmmcx_map, vmmcx_map(user, p, 8, 0), vmmcErr_BadArg);
    ROW(vmmcx_map, vmmcx_map(p, p, 8, 0), vmmcErr_BadArg);
    ROW(vmmcx_map, vmmcx_map(high, p, 8, 0), vmmcErr_BadArg);
    ROW(vmmcx_unmap, vmmcx_unmap(NULL), vmmcErr_BadArg);
    ROW(vmmcx_unmap, vmmcx_unmap(pages), vmmcErr_BadArg);
    ROW(vmmcx_flush, vmmcx_flush(NULL), vmmcErr_BadArg);
    ROW(vmmcx_flush, vmmcx_flush(pages), vmmcErr_BadArg);
    WANT(vmmcx_free(pages), 0);
    ROW(vmmcx_fence, vmmcx_fence(NULL), vmmcErr_BadArg);
    ROW(vmmcx_fence, vmmcx_fence(user), vmmcErr_BadProxyAddr);
    ROW(vmmcx_fence, vmmcx_fence(p2_stale), vmmcErr_BadProxyAddr);
/* What holds for each atomic operation: `call(far)`. */
#define ATOMICS(name, call, size)                                                                  \
    ROW(name, call(NULL), vmmcErr_BadArg);                                                         \
    ROW(name, call((int32 *)(void *)((char *)p + 1)), vmmcErr_BadAlignment);                       \
    ROW(name, call(p - 1), vmmcErr_BadProxyAddr);                                                  \
    ROW(name, call(p + 64), vmmcErr_BadProxyAddr);                                                 \
    ROW(name, call(p + 65 - size), vmmcErr_BadProxyAddr);                                          \
    ROW(name, call(user), vmmcErr_BadProxyAddr);                                                   \
    ROW(name, call(high), vmmcErr_BadProxyAddr);                                                   \
    ROW(name, call(p2_stale), vmmcErr_BadProxyAddr)
#define FETCH_ADD(a) vmmcx_fetch_add(a, 1, NULL)
#define SWAP(a) vmmcx_swap(a, 1, NULL)
#define COMPARE_AND_SWAP(a) vmmcx_compare_and_swap(a, 0, 1, NULL)
#define FETCH_ADD64(a) vmmcx_fetch_add64(a, 1, NULL)
#define SWAP64(a) vmmcx_swap64(a, 1, NULL)
#define COMPARE_AND_SWAP64(a) vmmcx_compare_and_swap64(a, 0, 1, NULL)
    ATOMICS(vmmcx_fetch_add, FETCH_ADD, 1);
    ATOMICS(vmmcx_swap, SWAP, 1);
    ATOMICS(vmmcx_compare_and_swap, COMPARE_AND_SWAP, 1);
    ATOMICS(vmmcx_fetch_add64, FETCH_ADD64, 2);
    ATOMICS(vmmcx_swap64, SWAP64, 2);
    ATOMICS(vmmcx_compare_and_swap64, COMPARE_AND_SWAP64, 2);
    ROW(vmmcx_wait_word, vmmcx_wait_word(NULL, 0, 0, NULL), vmmcErr_BadArg);
    ROW(vmmcx_wait_word, vmmcx_wait_word(odd, 0, 0, NULL), vmmcErr_BadAlignment);
    ROW(vmmcx_wait_word, vmmcx_wait_word(p, 0, 0, NULL), vmmcErr_BadArg);
    ROW(vmmcx_wait_word, vmmcx_wait_word(user + 1, user[1], -1, NULL), vmmcErr_BadArg);
    ROW(vmmcx_wait_word, vmmcx_wait_word(mem + 2, 0, -1, &zero_i), vmmcErr_BadArg);
    ROW(vmmcx_wait_word, vmmcx_wait_word(mem + 2, 0, -1, &forged_i), vmmcErr_BadIbufState);
    ROW(vmmcx_wait_word, vmmcx_wait_word(mem + 2, 0, -1, &stale_i), vmmcErr_BadIbufState);
    ROW(vmmcx_wait_word, vmmcx_wait_word(mem + 2, 0, 0, NULL), vmmcErr_Timeout);
    CHECK(strlen(vmmcx_last_error()) > 0);
    printf("row vmmcx_last_error\n");

    /* SBL names exports by ids and imports by addresses: those of VMMC's calls are none of its. */
    SBL_Request request;
    ROW(SBL_PageSize, SBL_PageSize() % 4096, 0);
    ROW(SBL_WordSize, SBL_WordSize(), 4);
    ROW(SBL_Hosts, SBL_Hosts(NULL, &nodes), vmmcErr_BadArg);
    ROW(SBL_Hosts, SBL_Hosts(&n2, NULL), vmmcErr_BadArg);
    ROW(SBL_ExportRecvBuf, SBL_ExportRecvBuf(2, NULL, 4, NULL), vmmcErr_BadArg);
    ROW(SBL_ExportRecvBuf, SBL_ExportRecvBuf(2, user, 0, NULL), vmmcErr_BadSize);
    ROW(SBL_ExportRecvBuf, SBL_ExportRecvBuf(2, odd, 4, NULL), vmmcErr_BadAlignment);
    ROW(SBL_ExportRecvBuf, SBL_ExportRecvBuf(1, user, 4, NULL), vmmcErr_BufAlreadyExists);
    ROW(SBL_ExportRecvBuf, SBL_ExportRecvBuf(2, mem + 2, 4, NULL), vmmcErr_OverlappedBufs);
    ROW(SBL_ExportRecvBuf, SBL_ExportRecvBuf(2, p, 4, NULL), vmmcErr_BadArg);
    ROW(SBL_ExportRecvBuf, SBL_ExportRecvBuf(2, high, 4, NULL), vmmcErr_BadArg);
    WANT(SBL_ExportRecvBuf(2, user, 64, NULL), 0);
    WANT(SBL_UnexportRecvBuf(2), 0);
    ROW(SBL_UnexportRecvBuf, SBL_UnexportRecvBuf(2), vmmcErr_BadArg);
    CHECK(strstr(vmmcx_last_error(), "withdraw"));
    ROW(SBL_UnexportRecvBuf, SBL_UnexportRecvBuf(1), vmmcErr_BadArg);
    ROW(SBL_ImportRecvBuf, SBL_ImportRecvBuf(1, none, 1, &p2, &n2), vmmcErr_NoSuchNode);
    ROW(SBL_ImportRecvBuf, SBL_ImportRecvBuf(1, forged_node, 1, &p2, &n2), vmmcErr_NoSuchNode);
    ROW(SBL_ImportRecvBuf, SBL_ImportRecvBuf(1, vmmc_MyNode(), 0, &p2, &n2),
        vmmcErr_NoSuchProcess);
    ROW(SBL_ImportRecvBuf, SBL_ImportRecvBuf(1, vmmc_MyNode(), vmmc_MyPid(), NULL, &n2),
        vmmcErr_BadArg);
    ROW(SBL_ImportRecvBuf, SBL_ImportRecvBuf(1, vmmc_MyNode(), vmmc_MyPid(), &p2, NULL),
        vmmcErr_BadArg);
    ROW(SBL_ImportRecvBufReq, SBL_ImportRecvBufReq(1, vmmc_MyNode(), vmmc_MyPid(), NULL),
        vmmcErr_BadArg);
    ROW(SBL_ImportRecvBufStatus, SBL_ImportRecvBufStatus(NULL, &p2, &n2), vmmcErr_BadArg);
    request = zero_i;
    ROW(SBL_ImportRecvBufStatus, SBL_ImportRecvBufStatus(&request, &p2, &n2),
        vmmcErr_BadAsyncHandle);
    request = forged_i;
    ROW(SBL_ImportRecvBufStatus, SBL_ImportRecvBufStatus(&request, &p2, &n2),
        vmmcErr_BadAsyncHandle);
    ROW(SBL_ImportRecvBufStatus, SBL_ImportRecvBufStatus(&request, NULL, &n2), vmmcErr_BadArg);
    ROW(SBL_ImportRecvBufStatus, SBL_ImportRecvBufStatus(&request, &p2, NULL), vmmcErr_BadArg);
    ROW(SBL_UnimportRecvBuf, SBL_UnimportRecvBuf(NULL), vmmcErr_BadProxyAddr);
    CHECK(strstr(vmmcx_last_error(), "close the import"));
    ROW(SBL_UnimportRecvBuf, SBL_UnimportRecvBuf(p), vmmcErr_BadProxyAddr);
    TRANSFERS(SBL_SendMsg, SBL_SendMsg);
    TRANSFERS(SBL_SendMesg, SBL_SendMesg);
    TRANSFERS(SBL_SendMsgWithNotify, SBL_SendMsgWithNotify);
    ROW(SBL_Map, SBL_Map(NULL, p, 8, 0), vmmcErr_BadArg);
    ROW(SBL_Map, SBL_Map(user, p, 8, 0), vmmcErr_BadArg);
    ROW(SBL_Map, SBL_Map(odd, p, 8, 0), vmmcErr_BadAlignment);
    ROW(SBL_Map, SBL_Map(user, p, 0, 0), vmmcErr_BadSize);
    ROW(SBL_Map, SBL_Map(user, p, 65, 0), vmmcErr_BadProxyAddr);
    ROW(SBL_Unmap, SBL_Unmap(NULL), vmmcErr_BadArg);
    ROW(SBL_Unmap, SBL_Unmap(user), vmmcErr_BadArg);
    VOID_ROW(SBL_BlockNotifications, SBL_BlockNotifications());
    ROW(SBL_UnblockNotifications, SBL_UnblockNotifications() > 0, 1);
    ROW(SBL_UnblockNotifications, SBL_UnblockNotifications() > 0, 1);
    VOID_ROW(SBL_Error, SBL_Error(-8, NULL));

    /* Nothing of it has changed anything. */
    user[0] = 7;
    WANT(vmmc_SendData(user, p + 63, 1), 0);
    await(mem + 63, 7);
    for (int i = 1; i < 63; i++) {
        CHECK(mem[i] == 0);
    }
    WANT(vmmc_UnimportRecvBuf(ih), 0);
    WANT(vmmc_UnexportRecvBuf(eh), 0);
    WANT(vmmc_DataEnd(eh), vmmcErr_BadRbufState);
}
