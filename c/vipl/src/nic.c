/* NICs, protection tags, memory, and the name service. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* of Linux 5.14 */
#endif

/* The longest name that a node may have is shorter. */
#define NAME 1024

API VIP_RETURN VipOpenNic(const VIP_CHAR *DeviceName, VIP_NIC_HANDLE *NicHandle) {
    if (!DeviceName || !NicHandle || strlen(DeviceName) > NAME) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {
        .op = VMMCB_VIP_OPEN, .data = DeviceName, .data_len = strlen(DeviceName)};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        *NicHandle = HANDLE(c.out[1]);
    }
    return code;
}

API VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_CLOSE, .in = {BITS(NicHandle), vipl_in_handler()}};
    return vipl_run(&c);
}

API VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES *Attributes) {
    static VIP_UINT8 address[VMMCB_VIP_HOST]; /* the node's: all NICs of a process have it */
    struct vmmcb_nic n;
    if (!Attributes) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_QUERY_NIC,
                           .now = 1,
                           .in = {BITS(NicHandle)},
                           .room = &n,
                           .room_len = sizeof n};
    VIP_RETURN code = vipl_run(&c);
    if (code != VIP_SUCCESS) {
        return code;
    }
    for (int i = 0; i < VMMCB_VIP_HOST; i++) {
        __atomic_store_n(&address[i], n.host[i], __ATOMIC_RELAXED);
    }
    memset(Attributes, 0, sizeof *Attributes);
    memcpy(Attributes->Name, n.device, sizeof Attributes->Name);
    Attributes->ProviderVersion = 1;
    Attributes->NicAddressLen = VMMCB_VIP_HOST;
    Attributes->LocalNicAddress = address;
    Attributes->ThreadSafe = VIP_TRUE;
    Attributes->MaxDiscriminatorLen = (VIP_UINT16)n.discriminator;
    Attributes->MaxRegisterBytes = INTPTR_MAX; /* the address space is the limit */
    Attributes->MaxRegisterRegions = n.regions;
    Attributes->MaxRegisterBlockBytes = INTPTR_MAX;
    Attributes->MaxVI = n.vis;
    Attributes->MaxDescriptorsPerQueue = n.descriptors;
    Attributes->MaxSegmentsPerDesc = n.segments;
    Attributes->MaxCQ = n.cqs;
    Attributes->MaxCQEntries = n.entries;
    Attributes->MaxTransferSize = n.transfer;
    Attributes->NativeMTU = n.mtu;
    Attributes->MaxPtags = n.tags;
    Attributes->ReliabilityLevelSupport = (VIP_RELIABILITY_LEVEL)n.levels;
    Attributes->RDMAReadSupport =
        (VIP_RELIABILITY_LEVEL)(n.levels & ~(uint64_t)VIP_SERVICE_UNRELIABLE);
    return VIP_SUCCESS;
}

API VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle, VIP_ULONG InfoType,
                                            VIP_PVOID SysManInfo) {
    struct vmmcp_call c = {.op = VMMCB_VIP_CHECK_NIC, .now = 1, .in = {BITS(NicHandle)}};
    VIP_RETURN code = vipl_run(&c);
    if (code != VIP_SUCCESS) {
        return code;
    }
    return InfoType != VIP_SMI_AUTODISCOVERY || !SysManInfo ? VIP_INVALID_PARAMETER
                                                            : VIP_ERROR_NOT_SUPPORTED;
}

API VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE *Ptag) {
    if (!Ptag) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_NEW_TAG, .in = {BITS(NicHandle)}};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        *Ptag = HANDLE(c.out[1]);
    }
    return code;
}

API VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE Ptag) {
    struct vmmcp_call c = {.op = VMMCB_VIP_END_TAG, .in = {BITS(NicHandle), BITS(Ptag)}};
    return vipl_run(&c);
}

/*
 * Reports whether a range is memory that can be read, and gives it pages as a NIC would that pins
 * it: Go ends the process at a fault. It says nothing about what the program does later.
 */
static int is_there(const void *at, size_t n) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at & ~(page - 1);
    size_t length = (((uintptr_t)at + n + page - 1) & ~(page - 1)) - first;
    while (madvise((void *)first, length, MADV_POPULATE_READ) != 0) {
        unsigned char seen[256];
        if (errno == EINTR) {
            continue;
        }
        if (errno != EINVAL) {
            return 0;
        }
        /* An older kernel, or memory of a device: whether it is mapped is all that can be known. */
        for (size_t done = 0; done < length; done += sizeof seen * page) {
            size_t part = length - done < sizeof seen * page ? length - done : sizeof seen * page;
            if (mincore((void *)(first + done), part, seen) != 0) {
                return 0;
            }
        }
        return 1;
    }
    return 1;
}

static uint64_t flags_of(const VIP_MEM_ATTRIBUTES *a) {
    return (a->EnableRdmaWrite ? VMMCB_VIP_WRITE : 0) | (a->EnableRdmaRead ? VMMCB_VIP_READ : 0);
}

API VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_ULONG Length,
                              VIP_MEM_ATTRIBUTES *MemAttributes, VIP_MEM_HANDLE *MemoryHandle) {
    if (!VirtualAddress || Length == 0 || !MemAttributes || !MemoryHandle || Length > INTPTR_MAX ||
        (uintptr_t)VirtualAddress > INTPTR_MAX - Length || !is_there(VirtualAddress, Length)) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_REGISTER,
                           .in = {BITS(NicHandle), BITS(VirtualAddress), Length,
                                  BITS(MemAttributes->Ptag), flags_of(MemAttributes)}};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        *MemoryHandle = (VIP_MEM_HANDLE)c.out[1];
    }
    return code;
}

API VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress,
                                VIP_MEM_HANDLE MemoryHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_DEREGISTER,
                           .in = {BITS(NicHandle), BITS(VirtualAddress), MemoryHandle}};
    return vipl_run(&c);
}

API VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress,
                           VIP_MEM_HANDLE MemoryHandle, VIP_MEM_ATTRIBUTES *MemAttributes) {
    if (!MemAttributes) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_QUERY_MEM,
                           .in = {BITS(NicHandle), BITS(VirtualAddress), MemoryHandle}};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        MemAttributes->Ptag = HANDLE(c.out[1]);
        MemAttributes->EnableRdmaWrite = (c.out[2] & VMMCB_VIP_WRITE) != 0;
        MemAttributes->EnableRdmaRead = (c.out[2] & VMMCB_VIP_READ) != 0;
    }
    return code;
}

API VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress,
                                   VIP_MEM_HANDLE MemoryHandle, VIP_MEM_ATTRIBUTES *MemAttributes) {
    if (!MemAttributes) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_SET_MEM,
                           .in = {BITS(NicHandle), BITS(VirtualAddress), MemoryHandle,
                                  BITS(MemAttributes->Ptag), flags_of(MemAttributes)}};
    return vipl_run(&c);
}

static VIP_RETURN change_names(VIP_NIC_HANDLE nic, int begin) {
    struct vmmcp_call c = {.op = VMMCB_VIP_NAMES, .in = {BITS(nic), (uint64_t)begin}};
    return vipl_run(&c);
}

API VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, VIP_PVOID NSInitInfo) {
    (void)NSInitInfo; /* the nodes know their names */
    return change_names(NicHandle, 1);
}

API VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle) { return change_names(NicHandle, 0); }

/* The discriminator, which the program may have written before, stays. */
API VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle, VIP_CHAR *Name,
                                  VIP_NET_ADDRESS *Address, VIP_ULONG NameIndex) {
    unsigned char host[VMMCB_VIP_HOST];
    if (!Name || !Address) {
        return VIP_INVALID_PARAMETER;
    }
    if (strlen(Name) > NAME) {
        return VIP_ERROR_NAMESERVICE;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_BY_NAME,
                           .in = {BITS(NicHandle), NameIndex},
                           .data = Name,
                           .data_len = strlen(Name),
                           .room = host,
                           .room_len = sizeof host};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        Address->HostAddressLen = sizeof host;
        memcpy((char *)Address + sizeof(VIP_UINT16) * 2, host, sizeof host);
    }
    return code;
}

/* *NameLen is how much room there is, and then how long the name is, its zero not counted. */
API VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *Address,
                                  VIP_CHAR *Name, VIP_ULONG *NameLen) {
    char name[NAME + 1];
    if (!Address || !Name || !NameLen || Address->HostAddressLen != VMMCB_VIP_HOST) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_BY_ADDRESS,
                           .in = {BITS(NicHandle)},
                           .data = (char *)Address + sizeof(VIP_UINT16) * 2,
                           .data_len = VMMCB_VIP_HOST,
                           .room = name,
                           .room_len = sizeof name};
    VIP_RETURN code = vipl_run(&c);
    if (code != VIP_SUCCESS) {
        return code;
    }
    VIP_ULONG room = *NameLen;
    *NameLen = c.got - 1;
    if (c.got > room || c.got > sizeof name) {
        return VIP_INVALID_PARAMETER;
    }
    memcpy(Name, name, c.got);
    return VIP_SUCCESS;
}
