/* What one process can check: NICs, tags, memory, VIs and queues that are not connected, names. */
#include "prog.h"

void nic(struct end *e) {
    static const char *const devices[] = {"/dev/via_lo", "/dev/clanvi0", "VINIC0", "nic0"};
    static const char *const none[] = {"", "nic", "nic10", "/dev/null", "VINIC"};
    VIP_NIC_ATTRIBUTES a, b;
    VIP_NIC_HANDLE n, m;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        OK(VipOpenNic(devices[i], &n));
        OK(VipOpenNic(devices[i], &m));
        CHECK(n && m && n != m);
        OK(VipQueryNic(n, &a));
        OK(VipQueryNic(n, &b));
        CHECK(memcmp(&a, &b, sizeof a) == 0 && strcmp(a.Name, devices[i]) == 0);
        CHECK(a.NicAddressLen == 6 && a.LocalNicAddress && a.ThreadSafe);
        CHECK(a.MaxDiscriminatorLen >= 16 && a.MaxDescriptorsPerQueue >= 1024);
        CHECK(a.MaxSegmentsPerDesc == 252 && a.MaxTransferSize >= 1 << 20);
        CHECK(a.ReliabilityLevelSupport == 7 && a.RDMAReadSupport == 6);
        OK(VipCloseNic(n));
        WANT(VipCloseNic(n), VIP_INVALID_PARAMETER);
        WANT(VipQueryNic(n, &a), VIP_INVALID_PARAMETER);
        OK(VipQueryNic(m, &a));
        OK(VipCloseNic(m));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        WANT(VipOpenNic(none[i], &n), VIP_INVALID_PARAMETER);
    }
    /* Closing ends all that a NIC has. */
    VIP_PROTECTION_HANDLE tag;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_VI_STATE s;
    VIP_DESCRIPTOR *d;
    VIP_BOOLEAN recv;
    VIP_MEM_HANDLE h;
    OK(VipOpenNic("nic0", &n));
    OK(VipCreatePtag(n, &tag));
    VIP_MEM_ATTRIBUTES ma = {tag, VIP_FALSE, VIP_FALSE};
    VIP_VI_ATTRIBUTES va = attributes(e, VIP_SERVICE_UNRELIABLE);
    va.Ptag = tag;
    OK(VipRegisterMem(n, e->mem, DATA + MANY * sizeof(big), &ma, &h));
    OK(VipCreateCQ(n, 8, &cq));
    OK(VipCreateVi(n, &va, NULL, cq, &vi));
    d = fill(e, NULL, 0, 0, 8);
    d->DS[0].Local.Handle = h;
    OK(VipPostRecv(vi, d, h));
    OK(VipCloseNic(n));
    WANT(VipQueryVi(vi, &s, NULL, NULL, NULL), VIP_INVALID_PARAMETER);
    WANT(VipDestroyVi(vi), VIP_INVALID_PARAMETER);
    WANT(VipCQDone(cq, &vi, &recv), VIP_INVALID_PARAMETER);
    WANT(VipDestroyPtag(e->nic, tag), VIP_INVALID_PARAMETER);
    /* The descriptor can be posted elsewhere. */
    vi = new_vi(e, VIP_SERVICE_UNRELIABLE);
    OK(VipPostRecv(vi, fill(e, d, 0, 0, 8), e->handle));
    CHECK(error_count(VIP_ERROR_POST_DESC) == 0);
    OK(VipDisconnect(vi));
    CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == d);
    OK(VipDestroyVi(vi));
}

void memory(struct end *e) {
    VIP_PROTECTION_HANDLE tags[2048], foreign;
    VIP_NIC_HANDLE other;
    VIP_NIC_ATTRIBUTES n;
    VIP_MEM_ATTRIBUTES a = {e->tag, VIP_TRUE, VIP_FALSE}, got;
    VIP_MEM_HANDLE h[2];
    static char bytes[10000];
    OK(VipQueryNic(e->nic, &n));
    VIP_ULONG k = 0;
    CHECK(n.MaxPtags <= 2048);
    for (; k + 1 < n.MaxPtags; k++) { /* one is there */
        OK(VipCreatePtag(e->nic, &tags[k]));
    }
    WANT(VipCreatePtag(e->nic, &tags[k]), VIP_ERROR_RESOURCE);
    while (k > 1) {
        OK(VipDestroyPtag(e->nic, tags[--k]));
        WANT(VipDestroyPtag(e->nic, tags[k]), VIP_INVALID_PARAMETER);
    }
    OK(VipOpenNic("nic1", &other));
    OK(VipCreatePtag(other, &foreign));
    WANT(VipDestroyPtag(e->nic, foreign), VIP_INVALID_PARAMETER);

    /* Any address and length, and the same several times. */
    OK(VipRegisterMem(e->nic, bytes + 1, 77, &a, &h[0]));
    OK(VipRegisterMem(e->nic, bytes + 1, 5000, &a, &h[1]));
    CHECK(h[0] && h[1] && h[0] != h[1]);
    OK(VipQueryMem(e->nic, bytes + 1, h[0], &got));
    CHECK(got.Ptag == e->tag && got.EnableRdmaWrite == VIP_TRUE && got.EnableRdmaRead == VIP_FALSE);
    a.Ptag = tags[0];
    a.EnableRdmaRead = VIP_TRUE;
    OK(VipSetMemAttributes(e->nic, bytes + 1, h[0], &a));
    OK(VipQueryMem(e->nic, bytes + 1, h[0], &got));
    CHECK(got.Ptag == tags[0] && got.EnableRdmaRead == VIP_TRUE);
    WANT(VipDestroyPtag(e->nic, tags[0]), VIP_ERROR_RESOURCE);

    a.Ptag = foreign;
    WANT(VipRegisterMem(e->nic, bytes, 8, &a, &h[1]), VIP_INVALID_PTAG);
    WANT(VipSetMemAttributes(e->nic, bytes + 1, h[0], &a), VIP_INVALID_PTAG);
    a.Ptag = NULL;
    WANT(VipRegisterMem(e->nic, bytes, 8, &a, &h[1]), VIP_INVALID_PTAG);
    a.Ptag = e->tag;
    WANT(VipRegisterMem(e->nic, bytes, 0, &a, &h[1]), VIP_INVALID_PARAMETER);
    WANT(VipRegisterMem(e->nic, NULL, 8, &a, &h[1]), VIP_INVALID_PARAMETER);
    WANT(VipRegisterMem(e->nic, bytes, ~(VIP_ULONG)0, &a, &h[1]), VIP_INVALID_PARAMETER);
    char *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(hole != MAP_FAILED && munmap(hole + 4096, 4096) == 0);
    WANT(VipRegisterMem(e->nic, hole, 4097, &a, &h[1]), VIP_INVALID_PARAMETER);

    WANT(VipDeregisterMem(e->nic, bytes, h[0]), VIP_INVALID_PARAMETER); /* it is at bytes + 1 */
    WANT(VipDeregisterMem(other, bytes + 1, h[0]), VIP_INVALID_PARAMETER);
    OK(VipDeregisterMem(e->nic, bytes + 1, h[0]));
    WANT(VipDeregisterMem(e->nic, bytes + 1, h[0]), VIP_INVALID_PARAMETER);
    WANT(VipQueryMem(e->nic, bytes + 1, h[0], &got), VIP_INVALID_PARAMETER);
    WANT(VipSetMemAttributes(e->nic, bytes + 1, h[0], &a), VIP_INVALID_PARAMETER);
    OK(VipDestroyPtag(e->nic, tags[0]));
    OK(VipCloseNic(other));
}

void vis(struct end *e) {
    VIP_VI_ATTRIBUTES a, b;
    VIP_VI_HANDLE vi;
    VIP_NIC_HANDLE other;
    VIP_PROTECTION_HANDLE foreign;
    VIP_CQ_HANDLE cq;
    VIP_DESCRIPTOR *d;
    VIP_BOOLEAN s, r;
    VIP_VI_STATE st;
    OK(VipOpenNic("nic1", &other));
    OK(VipCreatePtag(other, &foreign));
    OK(VipCreateCQ(other, 1, &cq));
    const struct {
        int level;
        VIP_ULONG transfer;
        VIP_QOS qos;
        VIP_PROTECTION_HANDLE tag;
        int read;
        VIP_RETURN code;
    } wrong[] = {
        {3, 64, NULL, e->tag, 0, VIP_INVALID_RELIABILITY_LEVEL},
        {0, 64, NULL, e->tag, 0, VIP_INVALID_RELIABILITY_LEVEL},
        {8, 64, NULL, e->tag, 0, VIP_INVALID_RELIABILITY_LEVEL},
        {2, (1 << 20) + 1, NULL, e->tag, 0, VIP_INVALID_MTU},
        {2, ~(VIP_ULONG)0, NULL, e->tag, 0, VIP_INVALID_MTU},
        {2, 64, &a, e->tag, 0, VIP_INVALID_QOS},
        {2, 64, NULL, NULL, 0, VIP_INVALID_PTAG},
        {2, 64, NULL, foreign, 0, VIP_INVALID_PTAG},
        {1, 64, NULL, e->tag, 1, VIP_INVALID_RDMAREAD},
    };
    OK(VipCreateVi(e->nic, (a = attributes(e, 2), &a), NULL, NULL, &vi));
    VIP_VI_HANDLE none;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        VIP_VI_ATTRIBUTES w = {(VIP_RELIABILITY_LEVEL)wrong[i].level, wrong[i].transfer,
                               wrong[i].qos, wrong[i].tag, VIP_FALSE, wrong[i].read};
        WANT(VipCreateVi(e->nic, &w, NULL, NULL, &none), wrong[i].code);
        WANT(VipSetViAttributes(vi, &w), wrong[i].code);
    }
    WANT(VipCreateVi(e->nic, &a, cq, NULL, &none), VIP_INVALID_PARAMETER);
    WANT(VipCreateVi(e->nic, &a, NULL, cq, &none), VIP_INVALID_PARAMETER);
    OK(VipQueryVi(vi, &st, &b, &s, &r));
    CHECK(st == VIP_STATE_IDLE && s && r && b.ReliabilityLevel == 2 && b.Ptag == e->tag);
    CHECK(b.MaxTransferSize == 1 << 20 && b.EnableRdmaWrite && b.EnableRdmaRead && !b.QoS);
    a.MaxTransferSize = 4096;
    OK(VipSetViAttributes(vi, &a));
    OK(VipQueryVi(vi, NULL, &b, NULL, NULL));
    CHECK(b.MaxTransferSize == 4096);

    /* An idle VI keeps receives, and flushes SENDs. It is destroyed when both queues are empty. */
    WANT(VipSendDone(vi, &d), VIP_DESCRIPTOR_ERROR);
    CHECK(!d);
    WANT(VipRecvWait(vi, 0, &d), VIP_DESCRIPTOR_ERROR);
    VIP_DESCRIPTOR *x = fill(e, NULL, 0, 0, 8), *y = fill(e, NULL, 0, 8, 8);
    OK(VipPostSend(vi, x, e->handle));
    CHECK(sent(vi, VIP_DESCRIPTOR_ERROR) == x);
    CHECK(x->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR | VIP_STATUS_OP_SEND));
    OK(VipPostRecv(vi, x, e->handle));
    OK(VipPostRecv(vi, y, e->handle));
    CHECK(x->CS.Next.Address == y && x->CS.NextHandle == e->handle && y->CS.Next.Address == NULL);
    WANT(VipRecvDone(vi, &d), VIP_NOT_DONE);
    WANT(VipRecvWait(vi, 10, &d), VIP_TIMEOUT);
    OK(VipQueryVi(vi, NULL, NULL, &s, &r));
    CHECK(s && !r);
    WANT(VipDestroyVi(vi), VIP_ERROR_RESOURCE);
    OK(VipDisconnect(vi));
    WANT(VipDestroyVi(vi), VIP_ERROR_RESOURCE);
    CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == x && received(vi, VIP_DESCRIPTOR_ERROR) == y);
    CHECK(y->CS.Status ==
          (VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR | VIP_STATUS_OP_RECEIVE));

    /* What the library owns was changed. */
    OK(VipPostRecv(vi, fill(e, x, 0, 0, 8), e->handle));
    x->CS.Next.Address = y;
    OK(VipDisconnect(vi));
    received(vi, VIP_DESCRIPTOR_ERROR);
    CHECK(await_error(VIP_ERROR_POST_DESC)->DescriptorPtr == x);
    forget_errors();

    VipSetUserData(vi, &a);
    CHECK(VipGetUserData(vi) == &a);
    OK(VipPostDeferredSends(vi, VIP_TRUE, &s));
    CHECK(!s);
    OK(VipDestroyVi(vi));
    CHECK(!VipGetUserData(vi));
    WANT(VipDestroyVi(vi), VIP_INVALID_PARAMETER);
    WANT(VipDisconnect(vi), VIP_INVALID_PARAMETER);
    WANT(VipPostRecv(vi, x, e->handle), VIP_INVALID_PARAMETER);
    WANT(VipRecvWait(vi, 1, &d), VIP_INVALID_PARAMETER);
    OK(VipCloseNic(other));
}

/* Descriptors that cannot be posted, and a queue that is full. */
void queues(struct end *e) {
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_DESCRIPTOR *d = fill(e, NULL, 0, 0, 8), *got;
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE outside;
    VIP_ERROR_DESCRIPTOR *x;
    static big alone;
    OK(VipCreatePtag(e->nic, &tag));
    VIP_MEM_ATTRIBUTES a = {tag, VIP_FALSE, VIP_FALSE};
    OK(VipRegisterMem(e->nic, &alone, sizeof alone, &a, &outside));
    struct {
        VIP_DESCRIPTOR *d;
        VIP_MEM_HANDLE h;
    } wrong[] = {
        {(VIP_DESCRIPTOR *)((char *)d + 8), e->handle}, /* not aligned */
        {d, 0},                                         /* no region */
        {d, e->handle + 1000},
        {d, outside},                                          /* in another region */
        {(VIP_DESCRIPTOR *)(e->mem + DATA + MANY * sizeof(big)), e->handle}, /* behind the region */
        {(VIP_DESCRIPTOR *)(e->mem - 64), e->handle},                        /* before it */
        {(VIP_DESCRIPTOR *)(void *)64, e->handle},
        {(VIP_DESCRIPTOR *)(((uintptr_t)&alone + 63) & ~(uintptr_t)63), outside}, /* other tag */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OK(VipPostRecv(vi, wrong[i].d, wrong[i].h));
        x = await_error(VIP_ERROR_POST_DESC);
        CHECK(x->DescriptorPtr == wrong[i].d && x->ViHandle == vi && x->NicHandle == e->nic);
        CHECK(x->ResourceCode == VIP_RESOURCE_DESCRIPTOR);
        forget_errors();
    }
    OK(VipPostRecv(vi, d, e->handle));
    OK(VipPostRecv(vi, d, e->handle)); /* posted twice */
    await_error(VIP_ERROR_POST_DESC);
    forget_errors();
    OK(VipDisconnect(vi));
    CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == d);
    WANT(VipRecvDone(vi, &got), VIP_DESCRIPTOR_ERROR);
    CHECK(!got);

    VIP_NIC_ATTRIBUTES n;
    OK(VipQueryNic(e->nic, &n));
    CHECK(n.MaxDescriptorsPerQueue + 2 < MANY);
    for (VIP_ULONG i = 0; i < n.MaxDescriptorsPerQueue; i++) {
        OK(VipPostRecv(vi, fill(e, i == 0 ? d : NULL, 0, 0, 8), e->handle));
    }
    CHECK(errors.n == 0);
    VIP_DESCRIPTOR *more = fill(e, NULL, 0, 0, 8);
    OK(VipPostRecv(vi, more, e->handle));
    x = await_error(VIP_ERROR_VI_OVERRUN);
    CHECK(x->ViHandle == vi && x->DescriptorPtr == more && x->ResourceCode == VIP_RESOURCE_VI);
    OK(VipDisconnect(vi));
    for (VIP_ULONG i = 0; i < n.MaxDescriptorsPerQueue; i++) {
        OK(VipRecvDone(vi, &got) == VIP_DESCRIPTOR_ERROR ? VIP_SUCCESS : VIP_NOT_DONE);
        CHECK(got && got != more && got->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
    }
    OK(VipDestroyVi(vi));

    /* A region that ends before its descriptor is taken: nothing is written there. */
    static big *pages;
    VIP_MEM_HANDLE h;
    pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    a.Ptag = e->tag;
    vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    OK(VipRegisterMem(e->nic, pages, 8192, &a, &h));
    fill(e, &pages->d, 0, 0, 8);
    OK(VipPostRecv(vi, &pages->d, h));
    OK(VipDeregisterMem(e->nic, pages, h));
    CHECK(mprotect(pages, 8192, PROT_NONE) == 0);
    OK(VipDisconnect(vi));
    CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == &pages->d);
    CHECK(await_error(VIP_ERROR_COMP_PROT)->DescriptorPtr == &pages->d);
    OK(VipDestroyVi(vi));
    forget_errors();

    /* Descriptors whose memory is taken away while it is registered. */
    for (int prot = 0; prot <= PROT_READ; prot += PROT_READ) {
        pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
        OK(VipRegisterMem(e->nic, pages, 8192, &a, &h));
        d = &pages->d;
        VIP_DESCRIPTOR *second = (VIP_DESCRIPTOR *)((char *)pages + 4096);
        fill(e, second, 0, 0, 8);
        OK(VipPostRecv(vi, fill(e, d, 0, 0, 8), h));
        CHECK(mprotect(pages, 4096, prot) == 0);
        OK(VipPostRecv(vi, second, h)); /* Next of the first one cannot be written */
        CHECK(errors.n == 0);
        OK(VipDisconnect(vi));
        CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == d);
        CHECK(await_error(VIP_ERROR_COMP_PROT)->DescriptorPtr == d);
        CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == second);
        CHECK(error_count(VIP_ERROR_COMP_PROT) == 1);
        CHECK(second->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
        forget_errors();
        CHECK(mprotect(second, 4096, prot) == 0);
        OK(VipPostRecv(vi, second, h));
        CHECK(await_error(VIP_ERROR_POST_DESC)->DescriptorPtr == second);
        WANT(VipRecvDone(vi, &got), VIP_DESCRIPTOR_ERROR);
        CHECK(!got);
        OK(VipDestroyVi(vi));
        OK(VipDeregisterMem(e->nic, pages, h));
        forget_errors();
    }
}

void names(struct end *e) {
    address a, b;
    char name[256], small[1];
    VIP_ULONG n = sizeof name;
    VIP_NIC_ATTRIBUTES q;
    VIP_NIC_HANDLE other;
    OK(VipQueryNic(e->nic, &q));
    memset(&a, 0, sizeof a);
    a.a.HostAddressLen = 6;
    memcpy(a.room + 4, q.LocalNicAddress, 6);
    OK(VipNSGetHostByAddr(e->nic, &a.a, name, &n));
    CHECK(n == strlen(name) && n > 0);
    memset(&b, 0xAA, sizeof b);
    b.a.DiscriminatorLen = 5;
    OK(VipNSGetHostByName(e->nic, name, &b.a, 0));
    CHECK(b.a.HostAddressLen == 6 && memcmp(a.room + 4, b.room + 4, 6) == 0);
    CHECK(b.a.DiscriminatorLen == 5 && b.room[10] == 0xAA);
    WANT(VipNSGetHostByName(e->nic, name, &b.a, 1), VIP_ERROR_NAMESERVICE);
    WANT(VipNSGetHostByName(e->nic, "no-such-node", &b.a, 0), VIP_ERROR_NAMESERVICE);
    n = sizeof small;
    WANT(VipNSGetHostByAddr(e->nic, &a.a, small, &n), VIP_INVALID_PARAMETER);
    CHECK(n == strlen(name));
    a.room[4] ^= 1;
    n = sizeof name;
    WANT(VipNSGetHostByAddr(e->nic, &a.a, name, &n), VIP_ERROR_NAMESERVICE);
    OK(VipOpenNic("nic1", &other));
    WANT(VipNSGetHostByName(other, name, &b.a, 0), VIP_ERROR_NAMESERVICE); /* not initialised */
    OK(VipNSInit(other, NULL));
    OK(VipNSGetHostByName(other, name, &b.a, 0));
    OK(VipNSShutdown(other));
    WANT(VipNSShutdown(other), VIP_INVALID_PARAMETER);
    OK(VipCloseNic(other));
}

/* Calls that wait, while other calls are made, and when their NIC is closed. */
static struct {
    VIP_NIC_HANDLE nic;
    VIP_VI_HANDLE vi;
    VIP_CQ_HANDLE cq;
    address here;
    int begun;
} waiting;

static void *wait_receive(void *result) {
    VIP_DESCRIPTOR *d;
    __atomic_fetch_add(&waiting.begun, 1, __ATOMIC_SEQ_CST);
    *(VIP_RETURN *)result = VipRecvWait(waiting.vi, VIP_INFINITE, &d);
    return d;
}

static void *wait_completion(void *result) {
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    __atomic_fetch_add(&waiting.begun, 1, __ATOMIC_SEQ_CST);
    *(VIP_RETURN *)result = VipCQWait(waiting.cq, VIP_INFINITE, &vi, &recv);
    return NULL;
}

static void *wait_request(void *result) {
    address from;
    VIP_VI_ATTRIBUTES a;
    VIP_CONN_HANDLE c;
    __atomic_fetch_add(&waiting.begun, 1, __ATOMIC_SEQ_CST);
    *(VIP_RETURN *)result =
        VipConnectWait(waiting.nic, &waiting.here.a, 0xFFFFFFFFul, &from.a, &a, &c);
    return NULL;
}

void waits(struct end *e) {
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE h;
    VIP_DESCRIPTOR *d = fill(e, NULL, 0, 0, 8), *got;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    VIP_RETURN results[3];
    void *descriptor_of;
    pthread_t id[3];
    OK(VipOpenNic("nic0", &waiting.nic));
    OK(VipCreatePtag(waiting.nic, &tag));
    VIP_MEM_ATTRIBUTES ma = {tag, VIP_FALSE, VIP_FALSE};
    OK(VipRegisterMem(waiting.nic, e->mem, DATA + MANY * sizeof(big), &ma, &h));
    VIP_VI_ATTRIBUTES va = attributes(e, VIP_SERVICE_RELIABLE_DELIVERY);
    va.Ptag = tag;
    OK(VipCreateVi(waiting.nic, &va, NULL, NULL, &waiting.vi));
    OK(VipCreateCQ(waiting.nic, 4, &waiting.cq));
    address_of(e, &waiting.here, NULL, "waits");
    d->DS[0].Local.Handle = h;
    OK(VipPostRecv(waiting.vi, d, h));
    CHECK(pthread_create(&id[0], NULL, wait_receive, &results[0]) == 0);
    CHECK(pthread_create(&id[1], NULL, wait_completion, &results[1]) == 0);
    CHECK(pthread_create(&id[2], NULL, wait_request, &results[2]) == 0);
    while (__atomic_load_n(&waiting.begun, __ATOMIC_SEQ_CST) < 3) {
        nap();
    }
    for (int i = 0; i < 20; i++) { /* Done does not wait for Wait */
        WANT(VipRecvDone(waiting.vi, &got), VIP_NOT_DONE);
        WANT(VipCQDone(waiting.cq, &vi, &recv), VIP_NOT_DONE);
        nap();
    }
    OK(VipCloseNic(waiting.nic));
    CHECK(pthread_join(id[0], &descriptor_of) == 0);
    CHECK(pthread_join(id[1], NULL) == 0 && pthread_join(id[2], NULL) == 0);
    CHECK(results[0] == VIP_DESCRIPTOR_ERROR && descriptor_of == d);
    CHECK(d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
    CHECK(results[1] == VIP_INVALID_PARAMETER && results[2] == VIP_INVALID_PARAMETER);

    /* A child of fork has an error, and no hang. */
    pid_t child = fork();
    if (child == 0) {
        VIP_NIC_ATTRIBUTES n;
        VIP_NIC_HANDLE nic;
        VIP_DESCRIPTOR *x;
        int fine = VipQueryNic(e->nic, &n) == VIP_ERROR_RESOURCE &&
                   VipOpenNic("nic0", &nic) == VIP_ERROR_RESOURCE &&
                   VipRecvWait(waiting.vi, VIP_INFINITE, &x) == VIP_ERROR_RESOURCE &&
                   VipErrorCallback(e->nic, NULL, NULL) == VIP_ERROR_RESOURCE;
        _exit(fine ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Handlers that run while their object ends. */
static struct {
    int begun, ended, ends_it; /* ends_it: 1: the handler destroys the VI, 2: it closes the NIC */
} slow;

static void on_slow(void *context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    (void)context, (void)d;
    __atomic_fetch_add(&slow.begun, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 100; i++) {
        nap();
    }
    if (slow.ends_it == 1) {
        OK(VipDestroyVi(vi));
    } else if (slow.ends_it == 2) {
        OK(VipCloseNic(n));
    }
    __atomic_fetch_add(&slow.ended, 1, __ATOMIC_SEQ_CST);
}

static int await_count(int *count, int n) {
    for (int i = 0; i < LIMIT && __atomic_load_n(count, __ATOMIC_SEQ_CST) < n; i++) {
        nap();
    }
    return __atomic_load_n(count, __ATOMIC_SEQ_CST) == n;
}

/* No handler of an object runs, or begins, when the call that ends the object has returned. */
void handlers(struct end *e) {
    VIP_MEM_ATTRIBUTES ma = {NULL, VIP_FALSE, VIP_FALSE};
    for (int k = 0; k < 4; k++) {
        struct end o = *e;
        VIP_VI_HANDLE vi;
        OK(VipOpenNic("nic0", &o.nic));
        OK(VipCreatePtag(o.nic, &o.tag));
        ma.Ptag = o.tag;
        OK(VipRegisterMem(o.nic, o.mem, DATA + MANY * sizeof(big), &ma, &o.handle));
        vi = new_vi(&o, VIP_SERVICE_UNRELIABLE);
        slow.begun = slow.ended = 0;
        slow.ends_it = k < 2 ? 0 : k - 1;
        for (int i = 0; i < 2; i++) { /* the VI is not connected: a SEND is complete at once */
            VIP_DESCRIPTOR *d = fill(&o, NULL, 0, 0, 8);
            OK(VipPostSend(vi, d, o.handle));
            OK(VipSendNotify(vi, NULL, on_slow));
        }
        CHECK(await_count(&slow.begun, 1));
        if (k == 0) {
            OK(VipDestroyVi(vi));
        } else if (k == 1) {
            OK(VipCloseNic(o.nic));
        } else { /* the handler does it, and is not waited for */
            CHECK(await_count(&slow.ended, 1));
        }
        CHECK(__atomic_load_n(&slow.ended, __ATOMIC_SEQ_CST) == 1);
        for (int i = 0; i < 50; i++) {
            nap();
        }
        CHECK(__atomic_load_n(&slow.begun, __ATOMIC_SEQ_CST) == 1);
        if (k % 2 == 0) {
            OK(VipCloseNic(o.nic));
        }
    }
}

/* A NIC that closes while another thread makes things of it. */
static struct {
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_HANDLE vis[1024];
    VIP_CQ_HANDLE cqs[1024];
    int n, m, begun;
} making;

static void *make_things(void *end) {
    VIP_VI_ATTRIBUTES a = attributes(end, VIP_SERVICE_UNRELIABLE);
    a.Ptag = making.tag;
    while (making.n < 1024 && VipCreateVi(making.nic, &a, NULL, NULL, &making.vis[making.n]) == 0) {
        making.n++;
        __atomic_store_n(&making.begun, 1, __ATOMIC_SEQ_CST);
        if (VipCreateCQ(making.nic, 1, &making.cqs[making.m]) != VIP_SUCCESS) {
            break;
        }
        making.m++;
    }
    __atomic_store_n(&making.begun, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* No handle outlives the NIC that it is of. */
void closes(struct end *e) {
    for (int k = 0; k < 300; k++) {
        VIP_VI_STATE s;
        VIP_VI_HANDLE vi;
        VIP_BOOLEAN recv;
        pthread_t id;
        memset(&making, 0, sizeof making);
        OK(VipOpenNic("nic0", &making.nic));
        OK(VipCreatePtag(making.nic, &making.tag));
        CHECK(pthread_create(&id, NULL, make_things, e) == 0);
        while (!__atomic_load_n(&making.begun, __ATOMIC_SEQ_CST)) {
            sched_yield();
        }
        OK(VipCloseNic(making.nic));
        CHECK(pthread_join(id, NULL) == 0 && making.n > 0);
        for (int i = 0; i < making.n; i++) {
            WANT(VipQueryVi(making.vis[i], &s, NULL, NULL, NULL), VIP_INVALID_PARAMETER);
        }
        for (int i = 0; i < making.m; i++) {
            WANT(VipCQDone(making.cqs[i], &vi, &recv), VIP_INVALID_PARAMETER);
        }
    }
}
