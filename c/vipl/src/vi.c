/* VIs and their connections. */
#include <stdint.h>

#include "core.h"

/* Where the bytes of an address begin: a compiler takes HostAddress for one byte. */
#define BYTES(address) ((unsigned char *)(address) + sizeof(VIP_UINT16) * 2)

static uint64_t flags_of(const VIP_VI_ATTRIBUTES *a) {
    return (a->EnableRdmaWrite ? VMMCB_VIP_WRITE : 0) | (a->EnableRdmaRead ? VMMCB_VIP_READ : 0);
}

static void give(VIP_VI_ATTRIBUTES *to, const struct vmmcb_attributes *a) {
    memset(to, 0, sizeof *to);
    to->ReliabilityLevel = (VIP_RELIABILITY_LEVEL)a->level;
    to->MaxTransferSize = a->transfer;
    to->Ptag = HANDLE(a->tag);
    to->EnableRdmaWrite = (a->flags & VMMCB_VIP_WRITE) != 0;
    to->EnableRdmaRead = (a->flags & VMMCB_VIP_READ) != 0;
}

/* Takes an address apart, and reports whether it can be one. This side's may leave out the host. */
static int take(const VIP_NET_ADDRESS *a, int own, struct vmmcb_address *to) {
    if (!a || a->DiscriminatorLen > VMMCB_VIP_DISCRIMINATOR ||
        (a->HostAddressLen != VMMCB_VIP_HOST && !(own && a->HostAddressLen == 0))) {
        return 0;
    }
    memset(to, 0, sizeof *to);
    memcpy(to->host, BYTES(a), a->HostAddressLen);
    to->length = a->DiscriminatorLen;
    memcpy(to->discriminator, BYTES(a) + a->HostAddressLen, to->length);
    return 1;
}

API VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, VIP_VI_ATTRIBUTES *ViAttributes,
                           VIP_CQ_HANDLE SendCQHandle, VIP_CQ_HANDLE RecvCQHandle,
                           VIP_VI_HANDLE *ViHandle) {
    VIP_VI_ATTRIBUTES *a = ViAttributes;
    if (!a || !ViHandle) {
        return VIP_INVALID_PARAMETER;
    }
    if (a->QoS) {
        return VIP_INVALID_QOS;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_NEW_VI,
                           .in = {BITS(NicHandle), a->ReliabilityLevel, a->MaxTransferSize,
                                  BITS(a->Ptag), flags_of(a), BITS(SendCQHandle),
                                  BITS(RecvCQHandle)}};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        *ViHandle = HANDLE(c.out[1]);
    }
    return code;
}

API VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_END_VI, .in = {BITS(ViHandle), vipl_in_handler()}};
    return vipl_run(&c);
}

/* A result that the program does not want may be NULL. */
API VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE *State,
                          VIP_VI_ATTRIBUTES *Attributes, VIP_BOOLEAN *SendQueueEmpty,
                          VIP_BOOLEAN *RecvQueueEmpty) {
    struct vmmcb_attributes a;
    struct vmmcp_call c = {.op = VMMCB_VIP_QUERY_VI,
                           .now = 1,
                           .in = {BITS(ViHandle)},
                           .room = &a,
                           .room_len = sizeof a};
    VIP_RETURN code = vipl_run(&c);
    if (code != VIP_SUCCESS) {
        return code;
    }
    if (State) {
        *State = (VIP_VI_STATE)c.out[1];
    }
    if (Attributes) {
        give(Attributes, &a);
    }
    if (SendQueueEmpty) {
        *SendQueueEmpty = (c.out[2] & 1) != 0;
    }
    if (RecvQueueEmpty) {
        *RecvQueueEmpty = (c.out[2] & 2) != 0;
    }
    return code;
}

API VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *Attributes) {
    VIP_VI_ATTRIBUTES *a = Attributes;
    if (!a) {
        return VIP_INVALID_PARAMETER;
    }
    if (a->QoS) {
        return VIP_INVALID_QOS;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_SET_VI,
                           .in = {BITS(ViHandle), a->ReliabilityLevel, a->MaxTransferSize,
                                  BITS(a->Ptag), flags_of(a)}};
    return vipl_run(&c);
}

API VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, VIP_NET_ADDRESS *LocalAddr,
                              VIP_ULONG Timeout, VIP_NET_ADDRESS *RemoteAddr,
                              VIP_VI_ATTRIBUTES *RemoteViAttributes, VIP_CONN_HANDLE *ConnHandle) {
    struct vmmcb_address local;
    struct {
        struct vmmcb_attributes attributes;
        struct vmmcb_address address;
    } from;
    if (!RemoteAddr || !RemoteViAttributes || !ConnHandle || !take(LocalAddr, 1, &local)) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_LISTEN,
                           .in = {BITS(NicHandle), vipl_limit(Timeout)},
                           .data = local.discriminator,
                           .data_len = local.length,
                           .room = &from,
                           .room_len = sizeof from};
    VIP_RETURN code = vipl_run(&c);
    if (code != VIP_SUCCESS) {
        return code;
    }
    give(RemoteViAttributes, &from.attributes);
    RemoteAddr->HostAddressLen = VMMCB_VIP_HOST;
    RemoteAddr->DiscriminatorLen = from.address.length;
    memcpy(BYTES(RemoteAddr), from.address.host, VMMCB_VIP_HOST);
    memcpy(BYTES(RemoteAddr) + VMMCB_VIP_HOST, from.address.discriminator, from.address.length);
    *ConnHandle = HANDLE(c.out[1]);
    return code;
}

API VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_ACCEPT, .in = {BITS(ConnHandle), BITS(ViHandle)}};
    return vipl_run(&c);
}

API VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_REJECT, .in = {BITS(ConnHandle)}};
    return vipl_run(&c);
}

API VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr,
                                 VIP_NET_ADDRESS *RemoteAddr, VIP_ULONG Timeout,
                                 VIP_VI_ATTRIBUTES *RemoteViAttributes) {
    struct vmmcb_address both[2];
    struct vmmcb_attributes a;
    if (Timeout == 0 || !RemoteViAttributes || !take(LocalAddr, 1, &both[0]) ||
        !take(RemoteAddr, 0, &both[1])) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_CONNECT,
                           .in = {BITS(ViHandle), vipl_limit(Timeout)},
                           .data = both,
                           .data_len = sizeof both,
                           .room = &a,
                           .room_len = sizeof a};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        give(RemoteViAttributes, &a);
    }
    return code;
}

API VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_DISCONNECT, .in = {BITS(ViHandle)}};
    return vipl_run(&c);
}

API VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, VIP_NET_ADDRESS *LocalAddr,
                                     VIP_NET_ADDRESS *RemoteAddr, VIP_ULONG Timeout) {
    struct vmmcb_address both[2];
    if (Timeout == 0 || !take(LocalAddr, 1, &both[0]) || !take(RemoteAddr, 0, &both[1])) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_PEER,
                           .in = {BITS(ViHandle), vipl_limit(Timeout)},
                           .data = both,
                           .data_len = sizeof both};
    return vipl_run(&c);
}

static VIP_RETURN take_outcome(VIP_VI_HANDLE vi, uint64_t wait, VIP_VI_ATTRIBUTES *to) {
    struct vmmcb_attributes a;
    if (!to) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_PEER_TAKE,
                           .now = !wait,
                           .in = {BITS(vi), wait},
                           .room = &a,
                           .room_len = sizeof a};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        give(to, &a);
    }
    return code;
}

API VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttributes) {
    return take_outcome(ViHandle, 0, RemoteViAttributes);
}

API VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttributes) {
    return take_outcome(ViHandle, 1, RemoteViAttributes);
}

API VIP_PVOID VipGetUserData(VIP_VI_HANDLE ViHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_USER, .now = 1, .in = {BITS(ViHandle)}};
    return vipl_run(&c) == VIP_SUCCESS ? HANDLE(c.out[1]) : NULL;
}

API void VipSetUserData(VIP_VI_HANDLE ViHandle, VIP_PVOID UserData) {
    struct vmmcp_call c = {
        .op = VMMCB_VIP_USER, .now = 1, .in = {BITS(ViHandle), 1, BITS(UserData)}};
    vipl_run(&c);
}
