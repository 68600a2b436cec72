/*
 * Programs of the tests that look inside of the library: they are linked with its objects. It is
 * the mapped path that they use: what it must not do is enter Go.
 */
#include "../prog.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "core.h"

/* How often C has entered Go, or asked its threads. */
static uint32_t entries(void) {
    return __atomic_load_n(&vmmc_shared->now_calls, __ATOMIC_SEQ_CST) +
           __atomic_load_n(&vmmc_shared->queued, __ATOMIC_SEQ_CST);
}

/* Reports whether any thread may be in a transfer. */
static int inside(void) {
    uint32_t used = __atomic_load_n(&vmmc_shared->epochs_used, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < used; i++) {
        if (__atomic_load_n(&vmmc_shared->epochs[i].now, __ATOMIC_SEQ_CST) & 1) {
            return 1;
        }
    }
    return 0;
}

/* An export of this process, and its import by itself. */
struct both {
    int32 *buf, *proxy;
    uint32 n;
    vmmc_exphandle_t ex;
    vmmc_imphandle_t im;
};

static void import_own(struct both *b, int id) {
    uint32 n;
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), (uint32)id, &b->im, &b->proxy, &n), 0);
    CHECK(n == b->n);
}

static struct both make(uint32 nwords, int id) {
    struct both b = {.n = nwords};
    b.buf = vmmcx_alloc((size_t)nwords * 4);
    CHECK(b.buf);
    memset(b.buf, 0, (size_t)nwords * 4);
    WANT(vmmc_ExportRecvBuf(b.buf, nwords, (uint32)id, NULL, BUF_READWRITE | BUF_GLOBAL_SPACE, 0,
                            &b.ex),
         0);
    import_own(&b, id);
    return b;
}

static _Atomic int handled;
static _Atomic int over;
static _Atomic unsigned long succeeded;

static void count_handled(int32 *at, int32 value) {
    (void)at;
    (void)value;
    handled++;
}

static void await_handled(int n) {
    for (int i = 0; handled < n && i < 60000; i++) {
        usleep(1000);
    }
    CHECK(handled == n);
}

/* An export with a handler, and its import by this process. */
static struct both with_handler(vmmc_callback_t f, int id) {
    struct both h = {.n = 1024, .buf = vmmcx_alloc(4096)};
    WANT(vmmc_ExportRecvBuf(h.buf, h.n, (uint32)id, f, BUF_READWRITE, 0, &h.ex), 0);
    import_own(&h, id);
    return h;
}

static uint32_t levels_now(void) {
    return __atomic_load_n(&vmmc_shared->levels, __ATOMIC_SEQ_CST);
}

/* Block and Unblock enter Go not once. A level holds back handlers, of a later export too. */
static void levels(void) {
    vmmc_MyNode();
    uint32_t before = entries();
    for (int i = 0; i < 3; i++) {
        vmmc_BlockNotifications();
    }
    for (int i = 0; i < 2; i++) {
        WANT(vmmc_UnblockNotifications(), 0);
    }
    CHECK(entries() == before);
    int32 v = 1;
    struct both h = with_handler(count_handled, 20);
    WANT(vmmc_SendDataNotify(&v, h.proxy, 1), 0);
    usleep(20000);
    CHECK(handled == 0);
    before = entries();
    vmmc_BlockNotifications();
    WANT(vmmc_UnblockNotifications(), 0);
    CHECK(handled == 0);
    CHECK(vmmc_UnblockNotifications() > 0);
    CHECK(vmmc_UnblockNotifications() > 0); /* there is none to take */
    CHECK(entries() == before);
    await_handled(1);
    /* The first level and the last, after a handler has run. The handlers' thread may still tell Go
       that it has returned. */
    while (__atomic_load_n(&vmmc_shared->running, __ATOMIC_SEQ_CST) != VMMCB_IDLE) {
        sched_yield();
    }
    before = entries();
    for (int i = 0; i < 1000; i++) {
        vmmc_BlockNotifications();
        CHECK(vmmc_UnblockNotifications() > 0);
    }
    CHECK(entries() == before);
    vmmc_BlockNotifications();
    WANT(vmmc_SendDataNotify(&v, h.proxy, 1), 0);
    usleep(20000);
    CHECK(handled == 1);
    WANT(vmmc_UnexportRecvBuf(h.ex), vmmcErr_BlockedNotifications);
    CHECK(vmmc_UnblockNotifications() > 0);
    await_handled(2);
    WANT(vmmc_UnimportRecvBuf(h.im), 0);
    WANT(vmmc_UnexportRecvBuf(h.ex), 0);
}

static _Atomic int handler_may_return, in_a_handler, blocks_left;

static void slow_handler(int32 *at, int32 value) {
    (void)at;
    (void)value;
    in_a_handler = 1;
    while (!handler_may_return) {
        usleep(100);
    }
    in_a_handler = 0;
    handled++;
}

/* Lets the handler return when a Block waits for it. */
static void *release_handler(void *unused) {
    (void)unused;
    while (__atomic_load_n(&vmmc_shared->running, __ATOMIC_SEQ_CST) != VMMCB_AWAITED) {
        usleep(100);
    }
    handler_may_return = 1;
    return NULL;
}

static void *block_and_unblock(void *unused) {
    (void)unused;
    vmmc_BlockNotifications();
    CHECK(in_a_handler == 0);
    CHECK(vmmc_UnblockNotifications() >= 0);
    return NULL;
}

static sigjmp_buf out_of_block;

static void leave_block(int sig) {
    (void)sig;
    CHECK(vmmc_self->current && vmmc_self->current->op == VMMCB_BLOCK && levels_now() == 1);
    siglongjmp(out_of_block, 1);
}

static void end_in_block(int sig) {
    (void)sig;
    CHECK(vmmc_self->current && vmmc_self->current->op == VMMCB_BLOCK);
    pthread_exit(NULL);
}

static void *block_for_ever(void *unused) {
    (void)unused;
    vmmc_BlockNotifications();
    return NULL;
}

static void start_handler(struct both *h) {
    int32 v = 1;
    handler_may_return = 0;
    WANT(vmmc_SendDataNotify(&v, h->proxy, 1), 0);
    while (!in_a_handler) {
        usleep(100);
    }
}

static void await_sleep_in_block(void) {
    while (__atomic_load_n(&vmmc_shared->running, __ATOMIC_SEQ_CST) != VMMCB_AWAITED) {
        usleep(100);
    }
}

/* A Block waits for the handler that runs. One that is left meanwhile leaves no level behind. */
static void levels_wait(void) {
    pthread_t t, beside[4];
    struct both h = with_handler(slow_handler, 21);
    for (int i = 1; i <= 20; i++) {
        start_handler(&h);
        CHECK(pthread_create(&t, NULL, release_handler, NULL) == 0);
        for (int k = 0; k < 4; k++) {
            CHECK(pthread_create(&beside[k], NULL, block_and_unblock, NULL) == 0);
        }
        vmmc_BlockNotifications();
        CHECK(in_a_handler == 0 && handled == i);
        CHECK(vmmc_UnblockNotifications() >= 0);
        for (int k = 0; k < 4; k++) {
            pthread_join(beside[k], NULL);
        }
        pthread_join(t, NULL);
        CHECK(levels_now() == 0);
    }
    signal(SIGALRM, leave_block);
    start_handler(&h);
    if (sigsetjmp(out_of_block, 1) == 0) {
        struct itimerval soon = {{0, 0}, {0, 50000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        vmmc_BlockNotifications();
        CHECK(0);
    }
    CHECK(vmmc_UnblockNotifications() > 0); /* there is none to take */
    CHECK(levels_now() == 0 && in_a_handler == 1);
    signal(SIGUSR1, end_in_block);
    CHECK(pthread_create(&t, NULL, block_for_ever, NULL) == 0);
    await_sleep_in_block();
    while (levels_now() == 0) {
        usleep(100);
    }
    usleep(20000); /* in the kernel */
    pthread_kill(t, SIGUSR1);
    pthread_join(t, NULL);
    CHECK(levels_now() == 0 && in_a_handler == 1);
    handler_may_return = 1;
    await_handled(21);
    start_handler(&h);
    handler_may_return = 1;
    await_handled(22);
}

/*
 * Threads block and unblock while notifications come without a pause: no handler runs while one has
 * a level, and none is forgotten.
 */
static int32 blocked_state; /* only handlers, and threads with a level, change it and read it */

static void change_state(int32 *at, int32 value) {
    (void)at;
    (void)value;
    int32 v = ++blocked_state;
    sched_yield();
    CHECK(blocked_state == v);
    handled++;
    if (value % 7 == 0) { /* levels that it leaves are the program's */
        vmmc_BlockNotifications();
        blocks_left++;
    }
}

static void *block_often(void *times) {
    for (int i = 0; i < *(int *)times; i++) {
        vmmc_BlockNotifications();
        int32 v = __atomic_load_n(&blocked_state, __ATOMIC_RELAXED);
        if (i % 16 == 0) {
            sched_yield();
        }
        CHECK(__atomic_load_n(&blocked_state, __ATOMIC_RELAXED) == v);
        CHECK(vmmc_UnblockNotifications() >= 0);
    }
    return NULL;
}

/* Takes away what handlers have left. */
static void *unblock_often(void *unused) {
    (void)unused;
    while (!over) {
        int n = blocks_left;
        while (n > 0 && __atomic_load_n(&vmmc_shared->running, __ATOMIC_SEQ_CST) != VMMCB_IDLE) {
            sched_yield(); /* the levels are the program's when the handler has returned */
        }
        if (n > 0 && atomic_compare_exchange_strong(&blocks_left, &n, n - 1)) {
            CHECK(vmmc_UnblockNotifications() >= 0);
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void levels_storm(int times) {
    pthread_t t[3], u;
    struct both h = with_handler(change_state, 22);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&t[i], NULL, block_often, &times) == 0);
    }
    CHECK(pthread_create(&u, NULL, unblock_often, NULL) == 0);
    int32 n = times / 10;
    for (int32 v = 1; v <= n; v++) {
        WANT(vmmc_SendDataNotify(&v, h.proxy, 1), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
    }
    await_handled(n);
    while (blocks_left > 0) {
        sched_yield();
    }
    over = 1;
    pthread_join(u, NULL);
    CHECK(levels_now() == 0);
}

/*
 * A wait for an event is left while it has the event already, or is about to get it: the next call
 * gets it, and only that one.
 */
static sigjmp_buf out_of_wait;
static struct both *closing_now;

static void close_and_leave(int sig) {
    (void)sig;
    struct vmmcb_record *r = vmmc_self->current; /* of the call that this interrupts */
    CHECK(r && r->op == VMMCB_EVENT);
    WANT(vmmc_UnexportRecvBuf(closing_now->ex), 0);
    while (__atomic_load_n(&r->word, __ATOMIC_ACQUIRE) == VMMCB_PENDING) {
        usleep(100);
    }
    siglongjmp(out_of_wait, 1);
}

static void leave_wait(int sig) {
    (void)sig;
    siglongjmp(out_of_wait, 1);
}

static void events_left(void) {
    enum { TIMES = 200 };
    static volatile int got;
    vmmcx_event_t e;
    WANT(vmmcx_next_event(0, &e), vmmcErr_Timeout);
    for (volatile int i = 0; i < TIMES; i++) {
        struct both b = make(1024, 30);
        closing_now = &b;
        struct itimerval soon = {{0, 0}, {0, 2000}};
        signal(SIGALRM, i % 2 ? leave_wait : close_and_leave);
        if (sigsetjmp(out_of_wait, 1) == 0) {
            if (i % 2) {
                soon.it_value.tv_usec = 100 + 5 * i;
                setitimer(ITIMER_REAL, &soon, NULL);
                WANT(vmmc_UnexportRecvBuf(b.ex), 0);
            } else {
                setitimer(ITIMER_REAL, &soon, NULL);
            }
            WANT(vmmcx_next_event(60000, &e), 0);
            got++;
        }
        struct itimerval never = {{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &never, NULL);
        vmmc_UnexportRecvBuf(b.ex); /* the jump may have come before it */
        if (got == i) {
            WANT(vmmcx_next_event(60000, &e), 0);
            CHECK(e.kind == VMMCX_IMPORT_REVOKED);
            CHECK(e.imported.vmmc_opaque == b.im.vmmc_opaque);
            got++;
        }
        WANT(vmmc_UnimportRecvBuf(b.im), 0);
    }
    WANT(vmmcx_next_event(100, &e), vmmcErr_Timeout);
}

/* Reports whether Go has told C that a request is over. */
static int in_go_over(vmmc_async_handle_t *q) {
    uint64_t n = q->vmmc_opaque[0];
    CHECK(n != 0 && n >> 63 == 0);
    return __atomic_load_n(&vmmc_shared->requests[n % VMMCB_REQUESTS], __ATOMIC_ACQUIRE) == n;
}

/* The status of a long request on mapped memory that has ended does not enter Go. */
static void status_in_c(void) {
    enum { WORDS = 1 << 18, ROUNDS = 20 };
    static int32 src[WORDS], dst[WORDS];
    struct both b = make(WORDS, 31);
    for (int32 i = 1; i <= ROUNDS; i++) {
        vmmc_async_handle_t q[2], forged;
        for (int k = 0; k < WORDS; k++) {
            src[k] = i + k;
        }
        WANT(vmmc_SendDataAsync(src, b.proxy, WORDS, &q[0]), 0);
        WANT(vmmc_GetDataAsync(dst, b.proxy, WORDS, &q[1]), 0);
        WANT(vmmcx_fence(b.proxy), 0); /* the send */
        CHECK(in_go_over(&q[0]));
        while (!in_go_over(&q[1])) {
            usleep(50);
        }
        uint32_t before = entries();
        WANT(vmmc_AsyncStatus(&q[1]), 0);
        WANT(vmmc_AsyncStatus(&q[0]), 0);
        CHECK(memcmp(src, b.buf, sizeof src) == 0 && memcmp(src, dst, sizeof dst) == 0);
        forged = q[0];
        forged.vmmc_opaque[0]++;
        WANT(vmmc_AsyncStatus(&forged), vmmcErr_BadAsyncHandle);
        CHECK(entries() == before);
    }
    WANT(vmmc_UnimportRecvBuf(b.im), 0);
    WANT(vmmc_UnexportRecvBuf(b.ex), 0);
}

/* Sends and gets of all lengths up to 64 words, and of long ones, enter Go not once. */
static void probe(void) {
    enum { MOST = 1 << 19 };
    static int32 src[MOST], dst[MOST + 1];
    static const uint32 longer[] = {127,   1024,  8191,   8192,   65535,
                                    65536, 65537, 131072, 200001, MOST};
    struct both b = make(MOST, 1);
    for (int i = 0; i < MOST; i++) {
        src[i] = i * 7 + 1;
    }
    WANT(vmmc_SendData(src, b.proxy, 1), 0); /* the first has the thread's entry made */
    uint32_t before = entries();
    for (uint32 k = 1; k <= 64 + sizeof longer / sizeof *longer; k++) {
        uint32 n = k <= 64 ? k : longer[k - 65];
        for (uint32 at = 0; at < 20 && at + n <= MOST; at++) {
            memset(b.buf, 0, (n + 24) * 4 < MOST * 4 ? (n + 24) * 4 : MOST * 4);
            WANT(vmmc_SendData(src + at / 2, b.proxy + at, n), 0);
            CHECK(memcmp(b.buf + at, src + at / 2, n * 4) == 0);
            CHECK((at == 0 || b.buf[at - 1] == 0) && (at + n == MOST || b.buf[at + n] == 0));
            dst[n] = 77;
            WANT(vmmc_GetData(dst, b.proxy + at, n), 0);
            CHECK(memcmp(dst, src + at / 2, n * 4) == 0 && dst[n] == 77);
            if (n > 70000 && at == 2) {
                break;
            }
        }
    }
    /* Asynchronous ones that Go would copy within the call, and their status. */
    static const uint32 lengths[] = {1, 2, 3, 64, 1000, 16384};
    vmmc_async_handle_t q[2], bad;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        uint32 n = lengths[k];
        memset(b.buf, 0, (n + 1) * 4);
        dst[n] = 77;
        WANT(vmmc_SendDataAsync(src + k, b.proxy, n, &q[0]), 0);
        WANT(vmmc_GetDataAsync(dst, b.proxy, n, &q[1]), 0);
        CHECK(memcmp(b.buf, src + k, n * 4) == 0 && b.buf[n] == 0);
        CHECK(memcmp(dst, src + k, n * 4) == 0 && dst[n] == 77);
        for (int i = 0; i < 4; i++) {
            WANT(vmmc_AsyncStatus(&q[i % 2]), 0);
        }
    }
    CHECK(entries() == before);
    CHECK(!inside());
    /* A handle that no call has given is none, also one that looks as these do. */
    for (int bit = 0; bit < 256; bit++) {
        bad = q[0];
        bad.vmmc_opaque[bit / 64] ^= (uint64_t)1 << bit % 64;
        WANT(vmmc_AsyncStatus(&bad), vmmcErr_BadAsyncHandle);
    }
    /* Longer ones are Go's, which copies them later. */
    before = entries();
    WANT(vmmc_SendDataAsync(src, b.proxy, 16385, &q[0]), 0);
    while (vmmc_AsyncStatus(&q[0]) == vmmcErr_InProgress) {
        sched_yield();
    }
    WANT(vmmc_AsyncStatus(&q[0]), 0);
    CHECK(entries() > before && memcmp(b.buf, src, 16385 * 4) == 0);
    /* What the path does not allow, Go refuses. */
    CHECK(vmmc_SendData(src, b.proxy + MOST - 1, 2) == vmmcErr_BadProxyAddr);
    WANT(vmmc_UnimportRecvBuf(b.im), 0);
    CHECK(vmmc_SendData(src, b.proxy, 1) == vmmcErr_BadProxyAddr);
    /* Rights are those of the export. */
    static const int rights[] = {BUF_READ_ONLY, BUF_WRITE_ONLY};
    for (int i = 0; i < 2; i++) {
        struct both r = {.n = 1024, .buf = vmmcx_alloc(4096)};
        WANT(vmmc_ExportRecvBuf(r.buf, r.n, 2 + (uint32)i, NULL, rights[i], 0, &r.ex), 0);
        import_own(&r, 2 + i);
        WANT(vmmc_SendData(src, r.proxy, 3), i == 0 ? vmmcErr_NoRights : 0);
        WANT(vmmc_GetData(dst, r.proxy, 3), i == 1 ? vmmcErr_NoRights : 0);
    }
    printf("entries 0\n");
}

/* Exports a redirectable buffer, and imports it. */
static struct both make_redirectable(int id) {
    struct both r = {.n = 1024, .buf = vmmcx_alloc(4096)};
    WANT(vmmc_ExportRecvBuf(r.buf, r.n, (uint32)id, NULL, BUF_READWRITE | BUF_REDIRECTABLE, 0,
                            &r.ex),
         0);
    import_own(&r, id);
    return r;
}

/* Sends, and waits for the words; `at` has another value there. */
static void put(struct both *r, uint32 at, uint32 n, int32 v) {
    int32 words[16];
    for (uint32 i = 0; i < n; i++) {
        words[i] = v;
    }
    WANT(vmmc_SendData(words, r->proxy + at, n), 0);
    await(r->buf + at + n - 1, v);
    while (vmmc_DataEnd(r->ex) != (int)(at + n - 1)) { /* stored after the message */
        sched_yield();
    }
}

/*
 * Of the calls that read and clear the end of data, the first one and the first after a change of
 * the importer enter Go.
 */
static void ends(void) {
    struct both r = make_redirectable(1), plain = make(1024, 2);
    CHECK(vmmc_DataEnd(r.ex) == vmmcErr_NoSuchError);
    CHECK(vmmc_DataEnd(plain.ex) == vmmcErr_NoSuchError);
    int32 v = 1;
    for (int round = 0; round < 3; round++) {
        for (uint32 at = 0; at < 1024 - 16; at += 77) {
            for (uint32 n = 1; n <= 16; n += 3) {
                put(&r, at, n, v++);
                uint32_t before = entries();
                CHECK(vmmc_DataEnd(r.ex) == (int)(at + n - 1));
                if (at % 2) {
                    vmmc_ClearDataEnd(r.ex);
                    CHECK(vmmc_DataEnd(r.ex) == vmmcErr_NoSuchError);
                    vmmc_ClearDataEnd(r.ex);
                    CHECK(vmmc_DataEnd(r.ex) == vmmcErr_NoSuchError);
                }
                CHECK(vmmc_DataEnd(plain.ex) == vmmcErr_NoSuchError);
                CHECK(entries() == before && !inside());
            }
        }
        /* The end outlives the importer, and the next one's messages have theirs. */
        put(&r, 5, 2, v++);
        WANT(vmmc_UnimportRecvBuf(r.im), 0);
        CHECK(vmmc_DataEnd(r.ex) == 6);
        import_own(&r, 1);
        CHECK(vmmc_DataEnd(r.ex) == 6);
        if (round == 1) {
            vmmc_ClearDataEnd(r.ex);
            CHECK(vmmc_DataEnd(r.ex) == vmmcErr_NoSuchError);
        }
    }
    /* A handle that has ended or was never given reads nothing, also of the entry's next export. */
    vmmc_exphandle_t old = r.ex, forged = r.ex;
    forged.vmmc_opaque ^= (uint64_t)1 << 40;
    CHECK(vmmc_DataEnd(forged) == vmmcErr_BadRbufState);
    WANT(vmmc_UnimportRecvBuf(r.im), 0);
    WANT(vmmc_UnexportRecvBuf(r.ex), 0);
    CHECK(vmmc_DataEnd(old) == vmmcErr_BadRbufState);
    struct both next = make_redirectable(1);
    CHECK(vmmc_DataEnd(next.ex) == vmmcErr_NoSuchError);
    put(&next, 7, 1, 99);
    CHECK(vmmc_DataEnd(old) == vmmcErr_BadRbufState && vmmc_DataEnd(next.ex) == 7);
    printf("entries 0\n");
}

/* Threads read and clear the end of data while importers, and whole exports, come and go. */
static vmmc_exphandle_t _Atomic end_of;

static void *read_ends(void *clears) {
    while (!atomic_load(&over)) {
        vmmc_exphandle_t h = atomic_load(&end_of);
        int end = vmmc_DataEnd(h);
        CHECK(end == vmmcErr_NoSuchError || end == vmmcErr_BadRbufState ||
              (end >= 100 && end % 100 < 10));
        if (clears) {
            vmmc_ClearDataEnd(h);
        }
        succeeded += end >= 0;
    }
    return NULL;
}

static void ends_closing(int rounds) {
    pthread_t t[3];
    int32 v = 1;
    struct both r = make_redirectable(1);
    atomic_store(&end_of, r.ex);
    for (uintptr_t i = 0; i < 3; i++) {
        CHECK(pthread_create(&t[i], NULL, read_ends, i == 2 ? &over : NULL) == 0);
    }
    for (int i = 0; i < rounds; i++) {
        for (uint32 k = 0; k < 10; k++) {
            WANT(vmmc_SendData(&v, r.proxy + 100 * (k % 5 + 1) + k, 1), 0);
        }
        WANT(vmmc_UnimportRecvBuf(r.im), 0);
        if (i % 4 == 3) {
            WANT(vmmc_UnexportRecvBuf(r.ex), 0);
            vmmcx_free(r.buf);
            r = make_redirectable(1);
            atomic_store(&end_of, r.ex);
        } else {
            import_own(&r, 1);
        }
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
    }
    CHECK(succeeded > 0);
    /* Nothing is cleared any more: the end is the last message's. */
    WANT(vmmc_SendData(&v, r.proxy + 900, 1), 0);
    while (vmmc_DataEnd(r.ex) != 900) {
        sched_yield();
    }
    vmmc_ClearDataEnd(r.ex);
    CHECK(vmmc_DataEnd(r.ex) == vmmcErr_NoSuchError);
}

/* Reads the end of data, and checks that this enters Go not once. */
static int end_without_go(vmmc_exphandle_t ex) {
    uint32_t before = entries();
    int end = vmmc_DataEnd(ex);
    CHECK(entries() == before);
    return end;
}

/*
 * A redirectable buffer for an importer of another process, which says in lines what it has done.
 * "end N" and "none": the end of data is the word N, or there is none. "clear": it is cleared.
 * "changed": the importer is another one, of which C hears by entering Go once. "follow N": it
 * sends messages whose ends rise to N meanwhile.
 */
static void ends_of_another(void) {
    int32 *buf = vmmcx_alloc(4096);
    vmmc_exphandle_t ex;
    CHECK(buf);
    WANT(vmmc_ExportRecvBuf(buf, 1024, 1, NULL, BUF_READWRITE | BUF_REDIRECTABLE, 0, &ex), 0);
    printf("%u\n", vmmc_MyPid());
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        int n = 0;
        if (sscanf(line, "end %d", &n) == 1) {
            CHECK(end_without_go(ex) == n);
        } else if (strcmp(line, "none\n") == 0) {
            CHECK(end_without_go(ex) == vmmcErr_NoSuchError);
        } else if (strcmp(line, "clear\n") == 0) {
            uint32_t before = entries();
            vmmc_ClearDataEnd(ex);
            CHECK(entries() == before);
        } else if (strcmp(line, "changed\n") == 0) {
            uint32_t before = entries();
            vmmc_DataEnd(ex);
            CHECK(entries() == before + 1);
        } else if (sscanf(line, "follow %d", &n) == 1) {
            int last = -1;
            printf("follows\n");
            fflush(stdout);
            while (last != n) {
                int end = end_without_go(ex);
                CHECK(end >= last && end <= n);
                last = end;
            }
        } else {
            CHECK(!"a line that is known");
        }
        printf("done\n");
        fflush(stdout);
    }
}

/* Lengths of imports of 16 GiB and more are as long as the type can say. */
static void lengths(void) {
    CHECK(vmmc_words(0) == 0 && vmmc_words(4096) == 1024);
    CHECK(vmmc_words((1ull << 34) - 4) == UINT32_MAX);
    CHECK(vmmc_words(1ull << 34) == UINT32_MAX && vmmc_words((1ull << 34) + 4096) == UINT32_MAX);
}

/* Poll mode that cannot have a descriptor leaves no memory behind. */
static void no_descriptor(void) {
    char text[256];
    unsigned long before = 0, after = 0;
    vmmc_MyNode(); /* joins the node, which takes descriptors */
    int statm = open("/proc/self/statm", O_RDONLY);
    struct rlimit was, none;
    CHECK(statm >= 0 && getrlimit(RLIMIT_NOFILE, &was) == 0);
    none = was;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int i = 0; i < 1000; i++) {
        if (i == 1) {
            CHECK(pread(statm, text, sizeof text, 0) > 0);
            before = strtoul(text, NULL, 10);
        }
        CHECK(vmmcx_poll_fd() == vmmcErr_NoMem);
    }
    CHECK(pread(statm, text, sizeof text, 0) > 0);
    after = strtoul(text, NULL, 10);
    CHECK(after < before + 500); /* pages; each call would leave one */
    CHECK(setrlimit(RLIMIT_NOFILE, &was) == 0);
    CHECK(vmmcx_poll_fd() >= 0);
}

/*
 * A thread that finds no epoch left enters Go, and looks at none of those of others: the pages of
 * all but the first ones are not there.
 */
static struct both crowded;

static void *send_without_epoch(void *unused) {
    int32 v[3] = {7, 8, 9};
    uint32_t before = entries();
    WANT(vmmc_SendData(v, crowded.proxy, 3), 0);
    CHECK(entries() == before + 1 && crowded.buf[2] == 9);
    return unused;
}

static void crowd(void) {
    static struct thread others[VMMCB_EPOCHS];
    crowded = make(1024, 1);
    int32 v = 1;
    pthread_t t;
    WANT(vmmc_SendData(&v, crowded.proxy, 1), 0); /* this thread takes the first one */
    uint32_t n = 0;
    while (n < VMMCB_EPOCHS && vmmc_take_epoch(&others[n])) {
        n++;
    }
    CHECK(n == VMMCB_EPOCHS - 1);
    char *rest = (char *)vmmc_shared->epochs + 4096;
    size_t size = VMMCB_EPOCHS * sizeof *vmmc_shared->epochs - 4096;
    CHECK(mprotect(rest, size, PROT_NONE) == 0);
    CHECK(pthread_create(&t, NULL, send_without_epoch, NULL) == 0);
    pthread_join(t, NULL);
    CHECK(mprotect(rest, size, PROT_READ | PROT_WRITE) == 0);
    vmmc_drop_epoch(&others[40000]); /* one that is given back is found */
    CHECK(vmmc_take_epoch(&others[40000]) && !vmmc_take_epoch(&others[n]));
}

/* Has the kernel refuse membarrier, as a seccomp filter of a container may. */
static void without_membarrier(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
    vmmc_MyNode();
    CHECK(vmmc_shared->barriers == 1);
}

/*
 * Runs the paths whose instructions internal/instrcount counts in its parent, which traces this
 * thread from one mark to the next one.
 */
static void mark(void) {
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 40 /* unix.Thread.Mark */);
}

/* The tracer holds a thread that sleeps like this. One of an idle Go part does not. */
static void *sleep_on(void *unused) {
    while (!unused) {
        struct timespec t = {0, 1000000};
        syscall(SYS_nanosleep, &t, NULL);
    }
    return NULL;
}

static void count_instructions(void) {
    enum { ROUNDS = 11, PATHS = 7 };
    int32 v[16] = {0};
    char traced;
    pthread_t t;
    CHECK(pthread_create(&t, NULL, sleep_on, NULL) == 0);
    struct both b = make(1024, 1);
    printf("{\"Thread\":%ld,\"Rounds\":%d,\"Paths\":[\"nothing\",\"vmmc_SendData 4\","
           "\"vmmc_SendData 8\",\"vmmc_SendData 64\",\"vmmc_GetData 4\",\"vmmc_GetData 8\","
           "\"vmmc_GetData 64\"]}\n",
           syscall(SYS_gettid), ROUNDS);
    fflush(stdout);
    WANT(vmmc_SendData(v, b.proxy, 16), 0);
    WANT(vmmc_GetData(v, b.proxy, 16), 0);
    CHECK(read(STDIN_FILENO, &traced, 1) == 1);
    for (int path = 0; path < PATHS; path++) {
        uint32 n = path % 3 == 1 ? 1 : path % 3 == 2 ? 2 : 16;
        for (int i = 0; i < ROUNDS; i++) {
            int code = 0;
            mark();
            if (path > 3) {
                code = vmmc_GetData(v, b.proxy, n);
            } else if (path > 0) {
                code = vmmc_SendData(v, b.proxy, n);
            }
            mark();
            WANT(code, 0);
        }
    }
    mark(); /* the tracer lets the thread go here */
}

/* Sends of 64 KiB to another node are made on the caller's thread, where the socket has room. */
static void long_sends(const char *node, int pid) {
    vmmc_imphandle_t im;
    int32 *far;
    uint32 n, queued = 0;
    WANT(vmmc_ImportRecvBuf(vmmc_NameToNode((char *)node), (vmmc_pid_t)pid, 1, &im, &far, &n), 0);
    CHECK(n >= 16384);
    int32 *v = calloc(16384, 4);
    CHECK(v);
    for (int32 i = 1; i <= 50; i++) {
        v[0] = v[16383] = i;
        uint32_t before = __atomic_load_n(&vmmc_shared->queued, __ATOMIC_SEQ_CST);
        WANT(vmmc_SendData(v, far, 16384), 0);
        queued += __atomic_load_n(&vmmc_shared->queued, __ATOMIC_SEQ_CST) != before;
        WANT(vmmcx_fence(far), 0); /* the socket is empty again */
    }
    CHECK(queued < 25); /* one that did not fit has up to 32 others queued */

    /* Without a pause the socket gets full. Each message has the words of its own time. */
    CHECK(n % 16384 == 0);
    for (uint32 i = 0; i < 400; i++) {
        for (uint32 k = 0; k < 16384; k++) {
            v[k] = (int32)i;
        }
        WANT(vmmc_SendData(v, far + i * 16384 % n, 16384), 0);
    }
    memset(v, 0xff, 65536);
    WANT(vmmcx_fence(far), 0);
}

/*
 * Messages of the stream and asynchronous ones come before what is sent later on the mapped path.
 * Of another process: export 1 is mapped and has the flag in its last word, export 2 is not mapped.
 * That process answers in export 3 of this one.
 */
static void order(const char *node, int pid, int rounds) {
    vmmc_node_t at = vmmc_NameToNode((char *)node);
    vmmc_imphandle_t im;
    int32 *mapped, *stream;
    uint32 m, s;
    vmmc_exphandle_t ex;
    int32 *answer = vmmcx_alloc(4096);
    WANT(vmmc_ExportRecvBuf(answer, 1024, 3, NULL, BUF_READWRITE | BUF_GLOBAL_SPACE, 0, &ex), 0);
    printf("%u\n", vmmc_MyPid());
    fflush(stdout);
    WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, 1, &im, &mapped, &m), 0);
    WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, 2, &im, &stream, &s), 0);
    int32 *v = malloc(m * 4), *w = malloc(s * 4);
    CHECK(v && w);
    for (int32 i = 1; i <= rounds; i++) {
        vmmc_async_handle_t q;
        for (uint32 k = 0; k < m; k++) {
            v[k] = i;
        }
        for (uint32 k = 0; k < s; k++) {
            w[k] = i;
        }
        if (i % 2) {
            WANT(vmmc_SendData(w, stream, s), 0);
        } else { /* all but the flag */
            WANT(vmmc_SendDataAsync(v, mapped, m - 1, &q), 0);
        }
        WANT(vmmc_SendData(&i, mapped + m - 1, 1), 0);
        await(answer, i);
        if (i % 2 == 0) {
            while (vmmc_AsyncStatus(&q) == vmmcErr_InProgress) {
                sched_yield();
            }
        }
    }
}

/* Threads send and get while the import is closed and made again. */
enum { WIDE = 1 << 16 };
static struct both shared_import;
static int32 *_Atomic proxy_now;

static int ended(int code) {
    return code == vmmcErr_BadProxyAddr || code == vmmcErr_OutcomeUnknown ||
           code == vmmcErr_Closed || code == vmmcErr_BadIbufState;
}

static void *use(void *arg) {
    unsigned which = (unsigned)(uintptr_t)arg, n = which * 5000 + 2;
    int32 *mem = malloc(n * 4);
    CHECK(mem);
    for (unsigned i = 0; !atomic_load(&over); i++) {
        int32 *p = atomic_load(&proxy_now) + which * (WIDE / 4); /* each thread has its part */
        for (unsigned k = 0; k < n; k++) {
            mem[k] = 0x11111111;
        }
        int code = (i + n) % 3 ? vmmc_SendData(mem, p, n) : vmmc_GetData(mem, p, n);
        CHECK(code == 0 || ended(code));
        succeeded += code == 0;
    }
    free(mem);
    return NULL;
}

static void closing(int rounds) {
    pthread_t t[4];
    shared_import = make(WIDE, 1);
    atomic_store(&proxy_now, shared_import.proxy);
    for (uintptr_t i = 0; i < 4; i++) {
        CHECK(pthread_create(&t[i], NULL, use, (void *)i) == 0);
    }
    for (int i = 0; i < rounds; i++) {
        unsigned long was = atomic_load(&succeeded);
        while (atomic_load(&succeeded) < was + 3) {
            sched_yield();
        }
        WANT(vmmc_UnimportRecvBuf(shared_import.im), 0);
        import_own(&shared_import, 1);
        atomic_store(&proxy_now, shared_import.proxy);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
    for (int i = 0; i < WIDE; i++) {
        CHECK(shared_import.buf[i] == 0 || shared_import.buf[i] == 0x11111111);
    }
    CHECK(!inside());
}

/* Sends until the import's exporter is gone, and then some more. */
static void until_gone(const char *node, int pid) {
    vmmc_imphandle_t im;
    int32 *p, v[512] = {0};
    uint32 n;
    WANT(vmmc_ImportRecvBuf(vmmc_NameToNode((char *)node), (vmmc_pid_t)pid, 1, &im, &p, &n), 0);
    WANT(vmmc_SendData(v, p, 512), 0);
    printf("sending\n");
    fflush(stdout);
    int code;
    while ((code = vmmc_SendData(v, p, 512)) == 0) {
    }
    CHECK(code == vmmcErr_PeerGone || code == vmmcErr_OutcomeUnknown);
    for (int i = 0; i < 100; i++) {
        WANT(vmmc_SendData(v, p, 1), vmmcErr_PeerGone);
        WANT(vmmc_GetData(v, p, 1), vmmcErr_PeerGone);
    }
    CHECK(!inside());
    WANT(vmmc_UnimportRecvBuf(im), 0);
}

/* Handlers that send themselves, leave by siglongjmp, or end the thread, in the middle of sends. */
static sigjmp_buf home;
static int32 *target;
static _Atomic int nested, how_to_leave;

static void interrupt(int sig) {
    (void)sig;
    int32 v[3] = {1, 2, 3};
    CHECK(vmmc_SendData(v, target + 64, 3) == 0 && vmmc_GetData(v, target + 64, 3) == 0);
    CHECK(v[0] == 1 && v[1] == 2 && v[2] == 3);
    nested++;
    if (how_to_leave == 1) {
        siglongjmp(home, 1);
    } else if (how_to_leave == 2) {
        pthread_exit(NULL);
    }
}

static void arm(int microseconds) {
    struct itimerval soon = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void *send_for_ever(void *started) {
    static __thread int32 mem[1 << 14];
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    __atomic_store_n((int32 *)started, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        CHECK(vmmc_SendData(mem, target, 1 << 14) == 0);
    }
}

static void leaving(void) {
    enum { N = 1 << 18 };
    static int32 mem[N];
    struct both b = make(N, 1);
    target = b.proxy;
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = interrupt;
    sigaction(SIGALRM, &a, NULL);
    sigaction(SIGUSR1, &a, NULL);
    WANT(vmmc_SendData(mem, b.proxy, N), 0);
    for (int i = 0; i < 200; i++) { /* the handler returns */
        int was = nested;
        arm(100 + i);
        while (nested == was) {
            WANT(vmmc_SendData(mem, b.proxy, N), 0);
        }
        CHECK(!inside());
    }
    how_to_leave = 1;
    volatile int left_inside = 0;
    for (volatile int i = 0; i < 300; i++) {
        if (sigsetjmp(home, 1) == 0) {
            arm(100 + i);
            for (;;) {
                WANT(vmmc_SendData(mem, b.proxy, N), 0);
            }
        }
        left_inside += inside();
        /* The next call leaves what that one had entered. */
        WANT(vmmc_SendData(mem, b.proxy, 5), 0);
        CHECK(!inside());
    }
    CHECK(left_inside > 0);
    how_to_leave = 2;
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        int32 started = 0;
        CHECK(pthread_create(&t, NULL, send_for_ever, &started) == 0);
        await(&started, 1);
        usleep(200);
        CHECK(pthread_kill(t, SIGUSR1) == 0);
        CHECK(pthread_join(t, NULL) == 0);
        CHECK(!inside());
    }
    WANT(vmmc_UnimportRecvBuf(b.im), 0);
}

/* A child that is forked in the middle of a send stores nothing, and ends. */
static _Atomic int forked, child_was_inside;

static void fork_now(int sig) {
    (void)sig;
    int was = inside();
    pid_t pid = fork();
    if (pid == 0) { /* the child returns into what its parent does */
        forked = -1;
        return;
    }
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
          (WIFEXITED(status) && WEXITSTATUS(status) == 7));
    child_was_inside += was && WIFSIGNALED(status);
    forked = 1;
}

static void forking(void) {
    enum { N = 1 << 20 };
    static int32 mem[N];
    struct both b = make(N, 1);
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGALRM, fork_now);
    for (int i = 0; i < 30 || (!child_was_inside && i < 1000); i++) {
        forked = 0;
        arm(100 + i * 7);
        while (forked == 0) {
            int code = vmmc_SendData(mem, b.proxy, N);
            if (forked < 0) {
                _exit(code == vmmcErr_Closed || vmmc_SendData(mem, b.proxy, 1) == vmmcErr_Closed
                          ? 7
                          : 1);
            }
            CHECK(code == 0);
        }
    }
    CHECK(child_was_inside > 0);
    WANT(vmmc_SendData(mem, b.proxy, N), 0);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "", *a2 = argc > 2 ? argv[2] : "";
    if (strcmp(name, "unfenced") == 0) {
        without_membarrier();
        return main(argc - 1, argv + 1);
    }
    int a3 = argc > 3 ? atoi(argv[3]) : 0, a4 = argc > 4 ? atoi(argv[4]) : 0;
    if (strcmp(name, "probe") == 0) {
        probe();
    } else if (strcmp(name, "ends") == 0) {
        ends();
    } else if (strcmp(name, "ends-closing") == 0) {
        ends_closing(atoi(a2));
    } else if (strcmp(name, "ends-of-another") == 0) {
        ends_of_another();
    } else if (strcmp(name, "levels-wait") == 0) {
        levels_wait();
    } else if (strcmp(name, "levels-storm") == 0) {
        levels_storm(atoi(a2));
    } else if (strcmp(name, "status") == 0) {
        status_in_c();
    } else if (strcmp(name, "events-left") == 0) {
        events_left();
    } else if (strcmp(name, "levels") == 0) {
        levels();
    } else if (strcmp(name, "lengths") == 0) {
        lengths();
    } else if (strcmp(name, "descriptor") == 0) {
        no_descriptor();
    } else if (strcmp(name, "crowd") == 0) {
        crowd();
    } else if (strcmp(name, "count") == 0) {
        count_instructions();
    } else if (strcmp(name, "long") == 0) {
        long_sends(a2, a3);
    } else if (strcmp(name, "order") == 0) {
        order(a2, a3, a4);
    } else if (strcmp(name, "closing") == 0) {
        closing(atoi(a2));
    } else if (strcmp(name, "gone") == 0) {
        until_gone(a2, a3);
    } else if (strcmp(name, "leaving") == 0) {
        leaving();
    } else if (strcmp(name, "forking") == 0) {
        forking();
    } else {
        fprintf(stderr, "no program %s\n", name);
        return 2;
    }
    return 0;
}
