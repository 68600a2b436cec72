/*
 * Each call with each bad argument: a NULL for each pointer, and for each handle one that is NULL,
 * one that was closed, one of another kind and one that was made up. Prints "row CALL".
 */
#include "prog.h"

/* A handle of the NIC that is closed at the end of the setup, and one of another kind. */
static VIP_PVOID wrong[4];

#define ROW(call) puts("row " #call)
#define IP(call) WANT(call, VIP_INVALID_PARAMETER)
#define BAD(h, call)                                                                               \
    for (int i_ = 0; i_ < 4; i_++) {                                                               \
        VIP_PVOID h = wrong[i_];                                                                   \
        IP(call);                                                                                  \
    }

static void on_error(void *c, VIP_ERROR_DESCRIPTOR *e) { (void)c, (void)e; }
static void on_descriptor(void *c, VIP_NIC_HANDLE n, VIP_VI_HANDLE v, VIP_DESCRIPTOR *d) {
    (void)c, (void)n, (void)v, (void)d;
}
static void on_completion(void *c, VIP_NIC_HANDLE n, VIP_VI_HANDLE v, VIP_BOOLEAN r) {
    (void)c, (void)n, (void)v, (void)r;
}

static void with_nic(struct end *e, VIP_VI_HANDLE vi, VIP_CQ_HANDLE cq, address *a) {
    VIP_NIC_HANDLE n = e->nic;
    VIP_NIC_ATTRIBUTES na;
    VIP_VI_ATTRIBUTES va = attributes(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_MEM_ATTRIBUTES ma = {e->tag, VIP_FALSE, VIP_FALSE};
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE mh;
    VIP_PVOID h;
    VIP_AUTODISCOVERY_LIST list;
    char text[64];
    VIP_ULONG len = sizeof text;
    address from;
    VIP_VI_HANDLE out = vi;
    VIP_CQ_HANDLE out_cq = cq;

    ROW(VipOpenNic);
    IP(VipOpenNic(NULL, &h));
    IP(VipOpenNic("nic0", NULL));
    ROW(VipCloseNic);
    BAD(x, VipCloseNic(x));
    ROW(VipQueryNic);
    BAD(x, VipQueryNic(x, &na));
    IP(VipQueryNic(n, NULL));
    ROW(VipErrorCallback);
    BAD(x, VipErrorCallback(x, NULL, on_error));
    BAD(x, VipErrorCallback(x, NULL, NULL));
    ROW(VipQuerySystemManagementInfo);
    BAD(x, VipQuerySystemManagementInfo(x, VIP_SMI_AUTODISCOVERY, &list));
    IP(VipQuerySystemManagementInfo(n, VIP_SMI_AUTODISCOVERY, NULL));
    IP(VipQuerySystemManagementInfo(n, 2, &list));
    WANT(VipQuerySystemManagementInfo(n, VIP_SMI_AUTODISCOVERY, &list), VIP_ERROR_NOT_SUPPORTED);
    ROW(VipCreatePtag);
    BAD(x, VipCreatePtag(x, &tag));
    IP(VipCreatePtag(n, NULL));
    ROW(VipDestroyPtag);
    BAD(x, VipDestroyPtag(x, e->tag));
    BAD(x, VipDestroyPtag(n, x));
    ROW(VipRegisterMem);
    BAD(x, VipRegisterMem(x, e->mem, 64, &ma, &mh));
    IP(VipRegisterMem(n, NULL, 64, &ma, &mh));
    IP(VipRegisterMem(n, e->mem, 0, &ma, &mh));
    IP(VipRegisterMem(n, e->mem, 64, NULL, &mh));
    IP(VipRegisterMem(n, e->mem, 64, &ma, NULL));
    for (int i = 0; i < 4; i++) {
        ma.Ptag = wrong[i];
        WANT(VipRegisterMem(n, e->mem, 64, &ma, &mh), VIP_INVALID_PTAG);
        WANT(VipSetMemAttributes(n, e->mem, e->handle, &ma), VIP_INVALID_PTAG);
    }
    ma.Ptag = e->tag;
    ROW(VipDeregisterMem);
    BAD(x, VipDeregisterMem(x, e->mem, e->handle));
    IP(VipDeregisterMem(n, NULL, e->handle));
    IP(VipDeregisterMem(n, e->mem, 0));
    IP(VipDeregisterMem(n, e->mem, e->handle + 99));
    ROW(VipQueryMem);
    BAD(x, VipQueryMem(x, e->mem, e->handle, &ma));
    IP(VipQueryMem(n, NULL, e->handle, &ma));
    IP(VipQueryMem(n, e->mem, 0, &ma));
    IP(VipQueryMem(n, e->mem, e->handle, NULL));
    ROW(VipSetMemAttributes);
    BAD(x, VipSetMemAttributes(x, e->mem, e->handle, &ma));
    IP(VipSetMemAttributes(n, NULL, e->handle, &ma));
    IP(VipSetMemAttributes(n, e->mem, 0, &ma));
    IP(VipSetMemAttributes(n, e->mem, e->handle, NULL));
    ROW(VipCreateVi);
    BAD(x, VipCreateVi(x, &va, NULL, NULL, &out));
    IP(VipCreateVi(n, NULL, NULL, NULL, &out));
    IP(VipCreateVi(n, &va, NULL, NULL, NULL));
    for (int i = 1; i < 4; i++) { /* NULL is no completion queue */
        IP(VipCreateVi(n, &va, wrong[i], NULL, &out));
        IP(VipCreateVi(n, &va, NULL, wrong[i], &out));
    }
    ROW(VipConnectWait);
    BAD(x, VipConnectWait(x, &a->a, 1, &from.a, &va, &h));
    IP(VipConnectWait(n, NULL, 1, &from.a, &va, &h));
    IP(VipConnectWait(n, &a->a, 1, NULL, &va, &h));
    IP(VipConnectWait(n, &a->a, 1, &from.a, NULL, &h));
    IP(VipConnectWait(n, &a->a, 1, &from.a, &va, NULL));
    WANT(VipConnectWait(n, &a->a, 0, &from.a, &va, &h), VIP_TIMEOUT);
    ROW(VipCreateCQ);
    BAD(x, VipCreateCQ(x, 1, &out_cq));
    IP(VipCreateCQ(n, 0, &out_cq));
    IP(VipCreateCQ(n, 1, NULL));
    WANT(VipCreateCQ(n, ~(VIP_ULONG)0, &out_cq), VIP_ERROR_RESOURCE);
    ROW(VipNSInit);
    BAD(x, VipNSInit(x, NULL));
    ROW(VipNSGetHostByName);
    BAD(x, VipNSGetHostByName(x, "", &from.a, 0));
    IP(VipNSGetHostByName(n, NULL, &from.a, 0));
    IP(VipNSGetHostByName(n, "", NULL, 0));
    ROW(VipNSGetHostByAddr);
    BAD(x, VipNSGetHostByAddr(x, &a->a, text, &len));
    IP(VipNSGetHostByAddr(n, NULL, text, &len));
    IP(VipNSGetHostByAddr(n, &a->a, NULL, &len));
    IP(VipNSGetHostByAddr(n, &a->a, text, NULL));
    ROW(VipNSShutdown);
    BAD(x, VipNSShutdown(x));
}

static void with_vi(struct end *e, VIP_VI_HANDLE vi, address *a) {
    VIP_VI_ATTRIBUTES va = attributes(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_DESCRIPTOR *d = fill(e, NULL, 0, 0, 8), *got;
    VIP_VI_STATE s;
    VIP_BOOLEAN b;
    address other = *a;

    ROW(VipDestroyVi);
    BAD(x, VipDestroyVi(x));
    ROW(VipQueryVi);
    BAD(x, VipQueryVi(x, &s, &va, &b, &b));
    OK(VipQueryVi(vi, NULL, NULL, NULL, NULL));
    ROW(VipSetViAttributes);
    BAD(x, VipSetViAttributes(x, &va));
    IP(VipSetViAttributes(vi, NULL));
    ROW(VipConnectAccept);
    BAD(x, VipConnectAccept(x, vi));
    ROW(VipConnectReject);
    BAD(x, VipConnectReject(x));
    ROW(VipConnectRequest);
    BAD(x, VipConnectRequest(x, &a->a, &a->a, 1000, &va));
    IP(VipConnectRequest(vi, NULL, &a->a, 1000, &va));
    IP(VipConnectRequest(vi, &a->a, NULL, 1000, &va));
    IP(VipConnectRequest(vi, &a->a, &a->a, 0, &va));
    IP(VipConnectRequest(vi, &a->a, &a->a, 1000, NULL));
    other.a.HostAddressLen = 5;
    IP(VipConnectRequest(vi, &a->a, &other.a, 1000, &va));
    other.a.HostAddressLen = 6;
    other.a.DiscriminatorLen = 33;
    IP(VipConnectRequest(vi, &a->a, &other.a, 1000, &va));
    other.a.DiscriminatorLen = 1;
    other.room[4] ^= 0xFF;
    WANT(VipConnectRequest(vi, &a->a, &other.a, 1000, &va), VIP_NOT_REACHABLE);
    ROW(VipDisconnect);
    BAD(x, VipDisconnect(x));
    ROW(VipConnectPeerRequest);
    BAD(x, VipConnectPeerRequest(x, &a->a, &a->a, 1000));
    IP(VipConnectPeerRequest(vi, NULL, &a->a, 1000));
    IP(VipConnectPeerRequest(vi, &a->a, NULL, 1000));
    IP(VipConnectPeerRequest(vi, &a->a, &a->a, 0));
    ROW(VipConnectPeerDone);
    BAD(x, VipConnectPeerDone(x, &va));
    IP(VipConnectPeerDone(vi, NULL));
    ROW(VipConnectPeerWait);
    BAD(x, VipConnectPeerWait(x, &va));
    IP(VipConnectPeerWait(vi, NULL));
    ROW(VipPostSend);
    BAD(x, VipPostSend(x, d, e->handle));
    IP(VipPostSend(vi, NULL, e->handle));
    ROW(VipPostRecv);
    BAD(x, VipPostRecv(x, d, e->handle));
    IP(VipPostRecv(vi, NULL, e->handle));
    ROW(VipSendDone);
    BAD(x, VipSendDone(x, &got));
    IP(VipSendDone(vi, NULL));
    ROW(VipRecvDone);
    BAD(x, VipRecvDone(x, &got));
    IP(VipRecvDone(vi, NULL));
    ROW(VipSendWait);
    BAD(x, VipSendWait(x, 1, &got));
    IP(VipSendWait(vi, 1, NULL));
    ROW(VipRecvWait);
    BAD(x, VipRecvWait(x, 1, &got));
    IP(VipRecvWait(vi, 1, NULL));
    ROW(VipSendNotify);
    BAD(x, VipSendNotify(x, NULL, on_descriptor));
    IP(VipSendNotify(vi, NULL, NULL));
    ROW(VipRecvNotify);
    BAD(x, VipRecvNotify(x, NULL, on_descriptor));
    IP(VipRecvNotify(vi, NULL, NULL));
    ROW(VipGetUserData);
    for (int i = 0; i < 4; i++) {
        CHECK(!VipGetUserData(wrong[i]));
        VipSetUserData(wrong[i], e);
    }
    CHECK(!VipGetUserData(vi));
    ROW(VipSetUserData);
    ROW(VipPostDeferredSends);
    BAD(x, VipPostDeferredSends(x, VIP_FALSE, &b));
    IP(VipPostDeferredSends(vi, VIP_FALSE, NULL));
}

static void with_cq(VIP_CQ_HANDLE cq) {
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN b;
    VIP_EVENT_HANDLE event;
    ROW(VipDestroyCQ);
    BAD(x, VipDestroyCQ(x));
    ROW(VipResizeCQ);
    BAD(x, VipResizeCQ(x, 10));
    IP(VipResizeCQ(cq, 0));
    WANT(VipResizeCQ(cq, ~(VIP_ULONG)0), VIP_ERROR_RESOURCE);
    ROW(VipCQDone);
    BAD(x, VipCQDone(x, &vi, &b));
    IP(VipCQDone(cq, NULL, &b));
    IP(VipCQDone(cq, &vi, NULL));
    ROW(VipCQWait);
    BAD(x, VipCQWait(x, 1, &vi, &b));
    IP(VipCQWait(cq, 1, NULL, &b));
    IP(VipCQWait(cq, 1, &vi, NULL));
    ROW(VipCQNotify);
    BAD(x, VipCQNotify(x, NULL, on_completion));
    IP(VipCQNotify(cq, NULL, NULL));
    ROW(VipAddTagCQ);
    BAD(x, VipAddTagCQ(x, &event, 1, 1));
    IP(VipAddTagCQ(cq, NULL, 1, 1));
    WANT(VipAddTagCQ(cq, &event, 1, 1), VIP_ERROR_NOT_SUPPORTED);
    ROW(VipRemoveTagCQ);
    BAD(x, VipRemoveTagCQ(x, NULL, 1));
    WANT(VipRemoveTagCQ(cq, NULL, 1), VIP_ERROR_NOT_SUPPORTED);
}

void bad_arguments(struct end *e) {
    VIP_NIC_HANDLE closed;
    VIP_CONN_HANDLE c;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    address a;
    (void)c;
    OK(VipCreateCQ(e->nic, 4, &cq));
    OK(VipOpenNic("nic0", &closed));
    address_of(e, &a, NULL, "bad");
    wrong[0] = NULL;
    wrong[1] = closed;
    wrong[2] = (VIP_PVOID)((uintptr_t)closed ^ (uintptr_t)1 << 40); /* made up */
    wrong[3] = &a; /* a pointer of the program */
    OK(VipCloseNic(closed));
    with_nic(e, vi, cq, &a);
    with_vi(e, vi, &a);
    with_cq(cq);
    /* Handles of another kind. */
    VIP_VI_STATE s;
    VIP_NIC_ATTRIBUTES na;
    IP(VipQueryVi(e->nic, &s, NULL, NULL, NULL));
    IP(VipQueryNic(vi, &na));
    IP(VipDestroyCQ(vi));
    IP(VipDestroyVi(cq));
    IP(VipConnectReject(vi));
    IP(VipDestroyPtag(e->nic, vi));
    OK(VipDestroyCQ(cq));
    OK(VipDestroyVi(vi));
}
