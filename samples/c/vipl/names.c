/* Prints the NIC's limits, and the addresses of nodes: names [NODE...] */
#include <stdio.h>

#include "common.h"

static void print_address(const VIP_UINT8 *a, int n) {
    int i;
    for (i = 0; i < n; i++) {
        printf("%s%02x", i ? ":" : "", a[i]);
    }
}

int main(int argc, char **argv) {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES n;
    int i, failed = 0;
    TRY(VipOpenNic("nic0", &nic));
    TRY(VipNSInit(nic, NULL));
    TRY(VipQueryNic(nic, &n));
    printf("%s: address ", n.Name);
    print_address(n.LocalNicAddress, n.NicAddressLen);
    printf(", %lu VIs, %lu descriptors a queue, %lu bytes a message\n", n.MaxVI,
           n.MaxDescriptorsPerQueue, n.MaxTransferSize);
    for (i = 1; i < argc; i++) {
        union {
            VIP_NET_ADDRESS a;
            VIP_UINT8 room[64];
        } to;
        char name[256];
        VIP_ULONG length = sizeof name;
        if (VipNSGetHostByName(nic, argv[i], &to.a, 0) != VIP_SUCCESS) {
            fprintf(stderr, "no node is called %s\n", argv[i]);
            failed = 1;
            continue;
        }
        TRY(VipNSGetHostByAddr(nic, &to.a, name, &length));
        printf("%s: address ", name);
        print_address(to.room + 4, to.a.HostAddressLen);
        printf("\n");
    }
    TRY(VipNSShutdown(nic));
    TRY(VipCloseNic(nic));
    return failed;
}
