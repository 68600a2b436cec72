/* Return values (pages 24 and 33). */
#include <stdio.h>
#include <string.h>
#include <vmmc.h>

int failed(vmmc_result_t res, char *what);
void copy_text(vmmc_result_t res, char *to, unsigned long size);
const char *kind_of(vmmc_result_t res);

/* Page 24: negative is an error. vmmc_Error prints the text and the error's own. */
int failed(vmmc_result_t res, char *what)
{
    if (res < 0)
        vmmc_Error(res, what);
    return res < 0;
}

/* Page 33: a text that is needed longer is copied, and never freed. */
void copy_text(vmmc_result_t res, char *to, unsigned long size)
{
    if (size == 0)
        return;
    strncpy(to, vmmc_ErrorStr(res), size - 1);
    to[size - 1] = '\0';
}

/* Page 24: all return values of the manual are different constants. */
const char *kind_of(vmmc_result_t res)
{
    switch (res) {
    case vmmc_Success:
        return "success";
    case vmmcErr_InProgress:
        return "not over yet";
    case vmmcErr_BadAlignment:
    case vmmcErr_BadSize:
    case vmmcErr_BadArg:
    case vmmcErr_BadProxyAddr:
    case vmmcErr_BadAsyncHandle:
    case vmmcErr_StateHandle:
        return "an argument";
    case vmmcErr_BadIbufState:
    case vmmcErr_BadRbufState:
    case vmmcErr_BufAlreadyExists:
    case vmmcErr_OverlappedBufs:
    case vmmcErr_BlockedNotifications:
    case vmmcErr_UnblockedNotifications:
        return "the state of a buffer";
    case vmmcErr_NoSuchNode:
    case vmmcErr_NoSuchProcess:
    case vmmcErr_NoParent:
        return "no such node or process";
    case vmmcErr_BadProxyExtension:
    case vmmcErr_NoPhysDestSpace:
    case vmmcErr_NoVirtDestSpace:
    case vmmcErr_NoMem:
        return "too little memory";
    case vmmcErr_NotInHandler:
        return "not in a handler";
    case vmmcErr_NotImplemented:
        return "not here";
    case vmmcErr_NoSuchError:
        return "no data yet";
    }
    return "a value that the manual does not have";
}
