/* Prints sizes of types, offsets of their parts, and constants: a part of abi.txt. */
#include <stddef.h>
#include <stdio.h>

#include "vmmc.h"
#include "vmmcx.h"

#define SIZE(t) printf("size %s %zu align %zu\n", #t, sizeof(t), _Alignof(t))
#define VALUE(v) printf("value %s %d\n", #v, (int)(v))

int main(void) {
    SIZE(int32);
    SIZE(uint32);
    SIZE(uint);
    SIZE(ulong);
    SIZE(vmmc_result_t);
    SIZE(vmmc_callback_t);
    SIZE(vmmc_exphandle_t);
    SIZE(vmmc_imphandle_t);
    SIZE(vmmc_async_handle_t);
    SIZE(vmmc_node_t);
    SIZE(vmmc_pid_t);
    SIZE(vmmc_perm_t);
    SIZE(vmmcx_event_t);
    printf("offset vmmcx_event_t.name %zu\n", offsetof(vmmcx_event_t, name));
    VALUE(VMMCX_PEER_GONE);
    VALUE(VMMCX_IMPORT_REVOKED);
    VALUE(VMMCX_NODE_GONE);
    VALUE(VMMCX_LINK_DOWN);
    VALUE(VMMCX_LINK_RESUMED);
    VALUE(VMMCX_NODE_BACK);
    VALUE(VMMCX_EXPORT_FAULT);
    VALUE(VMMCX_NAME_LOST);
    VALUE(BUF_WRITE_ONLY);
    VALUE(BUF_READ_ONLY);
    VALUE(BUF_READWRITE);
    VALUE(BUF_REDIRECTABLE);
    VALUE(BUF_GLOBAL_SPACE);
    return 0;
}
