/*
 * Programs that look inside of libvipl and libvmmc: they are linked with the objects of both. What
 * an empty poll must not do is enter Go.
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "../prog.h"
#include "core.h"

/* How often C has entered Go, or asked its threads. */
static uint32_t entries(void) {
    return __atomic_load_n(&vmmc_shared->now_calls, __ATOMIC_SEQ_CST) +
           __atomic_load_n(&vmmc_shared->queued, __ATOMIC_SEQ_CST);
}

/* How often C has polled the NIC of a completion queue. */
static uint32_t polls_of(VIP_CQ_HANDLE cq) {
    const struct vmmcb_vip_poll *p =
        vmmc_shared->vip_cqs[(uintptr_t)cq & (VMMCB_IMPORTS - 1)];
    return __atomic_load_n(&p->news->polls, __ATOMIC_SEQ_CST);
}

static VIP_NIC_HANDLE open_nic(void) {
    VIP_NIC_HANDLE nic;
    OK(VipOpenNic("nic0", &nic));
    return nic;
}

/* A NIC of this process with two pages of registered memory. */
struct side {
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE handle;
    VIP_VI_HANDLE vi;
    unsigned char *mem;
};

static void ignore(void *context, VIP_ERROR_DESCRIPTOR *e) {
    (void)context;
    (void)e;
}

static struct side open_side(VIP_CQ_HANDLE *cq) {
    struct side s = {.nic = open_nic()};
    OK(VipErrorCallback(s.nic, NULL, ignore));
    OK(VipCreatePtag(s.nic, &s.tag));
    s.mem = aligned_alloc(4096, 8192);
    CHECK(s.mem);
    memset(s.mem, 0, 8192);
    VIP_MEM_ATTRIBUTES m = {s.tag, VIP_FALSE, VIP_FALSE};
    OK(VipRegisterMem(s.nic, s.mem, 8192, &m, &s.handle));
    if (cq) {
        OK(VipCreateCQ(s.nic, 16, cq));
    }
    VIP_VI_ATTRIBUTES a = {
        .ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY, .MaxTransferSize = 4096, .Ptag = s.tag};
    OK(VipCreateVi(s.nic, &a, NULL, cq ? *cq : NULL, &s.vi));
    return s;
}

/* The descriptor in the second page, of 64 bytes of the first. */
static VIP_DESCRIPTOR *message(struct side *s) {
    VIP_DESCRIPTOR *d = (void *)(s->mem + 4096);
    memset(d, 0, sizeof *d);
    d->CS.SegCount = 1;
    d->CS.Length = 64;
    d->DS[0].Local.Data.Address = s->mem;
    d->DS[0].Local.Handle = s->handle;
    d->DS[0].Local.Length = 64;
    return d;
}

/* Requests what the other side requests, too. */
static void request(struct side *s, const char *own, const char *other) {
    VIP_NIC_ATTRIBUTES n;
    address from = {0}, to = {0};
    OK(VipQueryNic(s->nic, &n));
    from.a.HostAddressLen = to.a.HostAddressLen = n.NicAddressLen;
    memcpy(from.room + 4, n.LocalNicAddress, n.NicAddressLen);
    memcpy(to.room + 4, n.LocalNicAddress, n.NicAddressLen);
    from.a.DiscriminatorLen = (VIP_UINT16)strlen(own);
    to.a.DiscriminatorLen = (VIP_UINT16)strlen(other);
    memcpy(from.room + 4 + n.NicAddressLen, own, strlen(own));
    memcpy(to.room + 4 + n.NicAddressLen, other, strlen(other));
    OK(VipConnectPeerRequest(s->vi, &from.a, &to.a, LIMIT));
}

static void join(struct side *a, struct side *b) {
    VIP_VI_ATTRIBUTES got;
    request(a, "one", "two");
    request(b, "two", "one");
    OK(VipConnectPeerWait(a->vi, &got));
    OK(VipConnectPeerWait(b->vi, &got));
}

static void send_message(struct side *s) {
    VIP_DESCRIPTOR *d;
    OK(VipPostSend(s->vi, message(s), s->handle));
    OK(VipSendWait(s->vi, LIMIT, &d));
}

/* Polls that find nothing enter Go not once, and those for which there is something find it. */
static void probe(void) {
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    VIP_DESCRIPTOR *d;
    struct side a = open_side(NULL), b = open_side(&cq);
    OK(VipPostRecv(b.vi, message(&b), b.handle));
    join(&a, &b);
    for (int round = 0; round < 200; round++) {
        /* What the goroutines of the link still do is news for some polls. */
        uint32_t before;
        int tries = 0;
        do {
            CHECK(tries++ < LIMIT);
            before = entries();
            WANT(VipCQDone(cq, &vi, &recv), VIP_NOT_DONE);
            WANT(VipRecvDone(b.vi, &d), VIP_NOT_DONE);
        } while (entries() != before);
        uint32_t polls = polls_of(cq);
        for (int i = 0; i < 1000; i++) {
            WANT(VipCQDone(cq, &vi, &recv), VIP_NOT_DONE);
            d = (void *)&d;
            WANT(VipRecvDone(b.vi, &d), VIP_NOT_DONE);
            CHECK(d == NULL);
        }
        CHECK(entries() == before);
        CHECK(polls_of(cq) == polls + 2000); /* the links' goroutines see that */
        memset(a.mem, round + 1, 64);
        send_message(&a);
        VIP_RETURN code = VipCQDone(cq, &vi, &recv); /* the message is in b's ring since */
        OK(code);
        CHECK(vi == b.vi && recv == VIP_TRUE);
        OK(VipRecvDone(b.vi, &d));
        CHECK(d == (void *)(b.mem + 4096) && b.mem[0] == (unsigned char)(round + 1));
        WANT(VipRecvDone(b.vi, &d), VIP_DESCRIPTOR_ERROR); /* the queue is empty */
        CHECK(d == NULL);
        OK(VipPostRecv(b.vi, message(&b), b.handle));
    }
    /* Handles of the other kind, and NULL where a result goes. */
    WANT(VipRecvDone(cq, &d), VIP_INVALID_PARAMETER);
    WANT(VipCQDone(b.vi, &vi, &recv), VIP_INVALID_PARAMETER);
    WANT(VipCQDone(cq, NULL, &recv), VIP_INVALID_PARAMETER);
    WANT(VipRecvDone(b.vi, NULL), VIP_INVALID_PARAMETER);
    /* A handle that differs in any bit. */
    for (int i = 0; i < 64; i++) {
        WANT(VipRecvDone((VIP_VI_HANDLE)((uintptr_t)b.vi ^ (uintptr_t)1 << i), &d),
             VIP_INVALID_PARAMETER);
        WANT(VipCQDone((VIP_CQ_HANDLE)((uintptr_t)cq ^ (uintptr_t)1 << i), &vi, &recv),
             VIP_INVALID_PARAMETER);
    }
    /* The connection ends while nothing polls: the next poll finds the flushed descriptor. */
    OK(VipDisconnect(b.vi));
    OK(VipCQDone(cq, &vi, &recv));
    WANT(VipRecvDone(b.vi, &d), VIP_DESCRIPTOR_ERROR);
    CHECK(d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
    OK(VipDestroyVi(b.vi));
    WANT(VipRecvDone(b.vi, &d), VIP_INVALID_PARAMETER);
    WANT(VipSendDone(b.vi, &d), VIP_INVALID_PARAMETER);
    WANT(VipCQDone(cq, &vi, &recv), VIP_NOT_DONE);
    OK(VipDestroyCQ(cq));
    WANT(VipCQDone(cq, &vi, &recv), VIP_INVALID_PARAMETER);
    OK(VipCloseNic(a.nic));
    WANT(VipSendDone(a.vi, &d), VIP_INVALID_PARAMETER);
    OK(VipCloseNic(b.nic));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(VipCQDone(cq, &vi, &recv) == VIP_ERROR_RESOURCE ? 7 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static VIP_CQ_HANDLE cq_now;
static VIP_VI_HANDLE vi_now;
static _Atomic int over;
static _Atomic unsigned long empty;

/* Polls whatever there is. What it is ends meanwhile. */
static void *poll_all(void *unused) {
    while (!over) {
        VIP_VI_HANDLE vi = __atomic_load_n(&vi_now, __ATOMIC_SEQ_CST);
        VIP_CQ_HANDLE cq = __atomic_load_n(&cq_now, __ATOMIC_SEQ_CST);
        VIP_BOOLEAN recv;
        VIP_DESCRIPTOR *d;
        VIP_RETURN code = cq ? VipCQDone(cq, &vi, &recv) : VIP_NOT_DONE;
        CHECK(code == VIP_NOT_DONE || code == VIP_INVALID_PARAMETER);
        empty += code == VIP_NOT_DONE;
        vi = __atomic_load_n(&vi_now, __ATOMIC_SEQ_CST);
        code = vi ? VipRecvDone(vi, &d) : VIP_NOT_DONE;
        CHECK(code == VIP_NOT_DONE || code == VIP_INVALID_PARAMETER ||
              code == VIP_DESCRIPTOR_ERROR);
    }
    return unused;
}

static void start_pollers(pthread_t *t, int n) {
    for (int i = 0; i < n; i++) {
        CHECK(pthread_create(&t[i], NULL, poll_all, NULL) == 0);
    }
}

static void await_polls(void) {
    unsigned long was = empty;
    while (empty < was + 3) {
        sched_yield();
    }
}

/* Completion queues are made, resized and destroyed while two threads poll them. */
static void queues_end(int rounds) {
    pthread_t t[2];
    VIP_NIC_HANDLE nic = open_nic();
    start_pollers(t, 2);
    for (int i = 0; i < rounds; i++) {
        VIP_CQ_HANDLE cq;
        OK(VipCreateCQ(nic, 4, &cq));
        __atomic_store_n(&cq_now, cq, __ATOMIC_SEQ_CST);
        await_polls();
        OK(VipResizeCQ(cq, 8));
        await_polls();
        OK(VipDestroyCQ(cq));
    }
    over = 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
    }
    OK(VipCloseNic(nic));
}

/* Links end, with their pages, while two threads poll the queues of a NIC that has them. */
static void links_end(int rounds) {
    pthread_t t[2];
    VIP_CQ_HANDLE cq;
    start_pollers(t, 2);
    for (int i = 0; i < rounds; i++) {
        struct side a = open_side(NULL), b = open_side(NULL);
        OK(VipCreateCQ(b.nic, 4, &cq)); /* of no VI: it stays empty */
        OK(VipPostRecv(b.vi, message(&b), b.handle));
        join(&a, &b);
        __atomic_store_n(&cq_now, cq, __ATOMIC_SEQ_CST);
        __atomic_store_n(&vi_now, b.vi, __ATOMIC_SEQ_CST);
        await_polls();
        OK(VipCloseNic(a.nic)); /* b's link ends */
        await_polls();
        OK(VipCloseNic(b.nic));
        free(a.mem);
        free(b.mem);
    }
    over = 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
    }
}

static sigjmp_buf home;
static _Atomic int leave;

static void interrupt(int sig) {
    (void)sig;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    CHECK(VipCQDone(cq_now, &vi, &recv) == VIP_NOT_DONE);
    if (leave) {
        siglongjmp(home, 1);
    }
}

/* Signal handlers that poll in the middle of polls, and that leave them. */
static void leaving(void) {
    VIP_NIC_HANDLE nic = open_nic();
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    OK(VipCreateCQ(nic, 4, &cq_now));
    struct sigaction act = {.sa_handler = interrupt};
    CHECK(sigaction(SIGALRM, &act, NULL) == 0);
    for (volatile int i = 0; i < 300; i++) {
        leave = i % 2;
        struct itimerval after = {.it_value = {0, 100 + i % 50}}, none = {0};
        if (sigsetjmp(home, 1) == 0) {
            CHECK(setitimer(ITIMER_REAL, &after, NULL) == 0);
            for (int k = 0; k < 20000; k++) {
                CHECK(VipCQDone(cq_now, &vi, &recv) == VIP_NOT_DONE);
            }
        }
        CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
    }
    OK(VipDestroyCQ(cq_now));
    OK(VipCloseNic(nic));
}

static int64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Polls until the receive of a side is complete. */
static void await_message(struct side *s) {
    VIP_DESCRIPTOR *d;
    VIP_RETURN code;
    for (int i = 1; (code = VipRecvDone(s->vi, &d)) == VIP_NOT_DONE; i++) {
        if (i % 64 == 0) {
            sched_yield();
        }
    }
    OK(code);
}

/* Sends the 64 bytes. The receive has the descriptor of `message`, and this one lies behind it. */
static void answer(struct side *s) {
    VIP_DESCRIPTOR *d = (void *)(s->mem + 4096 + 256), *got;
    memcpy(d, message(s), 64);
    OK(VipPostRecv(s->vi, (void *)(s->mem + 4096), s->handle));
    OK(VipPostSend(s->vi, d, s->handle));
    VIP_RETURN code;
    while ((code = VipSendDone(s->vi, &got)) == VIP_NOT_DONE) {
    }
    OK(code);
}

static void *echo(void *side) {
    for (;;) {
        await_message(side);
        answer(side);
    }
    return NULL;
}

/*
 * For each line "polls N" or "pingpong N" of the standard input prints how many nanoseconds N empty
 * polls of a completion queue took, or N messages there and back between two threads.
 */
static void bench(void) {
    struct side a = open_side(NULL), b = open_side(NULL);
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    VIP_BOOLEAN recv;
    pthread_t t;
    char what[16];
    int n;
    OK(VipCreateCQ(a.nic, 16, &cq));
    OK(VipPostRecv(b.vi, message(&b), b.handle));
    join(&a, &b);
    CHECK(pthread_create(&t, NULL, echo, &b) == 0);
    while (scanf("%15s %d", what, &n) == 2) {
        int polls = strcmp(what, "polls") == 0;
        int64_t start = nanoseconds();
        for (int i = 0; i < n && polls; i++) {
            CHECK(VipCQDone(cq, &vi, &recv) == VIP_NOT_DONE);
        }
        for (int i = 0; i < n && !polls; i++) {
            answer(&a);
            await_message(&a);
        }
        printf("%lld\n", (long long)(nanoseconds() - start));
        fflush(stdout);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    int rounds = argc > 2 ? atoi(argv[2]) : 0;
    if (strcmp(name, "probe") == 0) {
        probe();
    } else if (strcmp(name, "queues") == 0) {
        queues_end(rounds);
    } else if (strcmp(name, "links") == 0) {
        links_end(rounds);
    } else if (strcmp(name, "leaving") == 0) {
        leaving();
    } else if (strcmp(name, "bench") == 0) {
        bench();
    } else {
        fprintf(stderr, "no program %s\n", name);
        return 2;
    }
    return 0;
}
