/*
 * Calls in four threads while signals interrupt them, whose handlers have large frames and no
 * SA_ONSTACK. Half of the handlers are installed before the library is loaded.
 */
#include "prog.h"

#define FRAME 32768
#define KINDS 6

static int over;

static int is_over(void) { return __atomic_load_n(&over, __ATOMIC_ACQUIRE); }

static int32 counts[KINDS];
static int kinds[KINDS];

static void handler(int sig) {
    volatile char frame[FRAME];
    int saved = errno;
    for (size_t i = 0; i < sizeof frame; i += 256) {
        frame[i] = (char)sig;
    }
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i] == sig) {
            __atomic_fetch_add(&counts[i], 1, __ATOMIC_RELAXED);
        }
    }
    errno = saved;
}

static void install(int i) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = handler;
    a.sa_flags = SA_RESTART;
    CHECK(sigaction(kinds[i], &a, NULL) == 0);
}

static void *send_signals(void *unused) {
    sigset_t all;
    (void)unused;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (!is_over()) {
        struct timespec ms = {0, 1000000};
        nanosleep(&ms, NULL);
        kill(getpid(), SIGCHLD);
        kill(getpid(), SIGURG);
        kill(getpid(), kinds[4]);
    }
    return NULL;
}

struct work {
    int k;
    int32 *far, *near;
    int32 done;
};

/* Each thread has 256 words of the buffer. */
static void *work(void *arg) {
    struct work *w = arg;
    int32 *far = w->far + 256 * w->k, *near = w->near ? w->near + 256 * w->k : NULL;
    int32 src[128], back[128];
    static char small[8192];
    stack_t own = {.ss_sp = small, .ss_size = sizeof small}, now;
    if (w->k == 1) { /* too small for Go, which must not get it */
        CHECK(sigaltstack(&own, NULL) == 0);
    }
    for (int32 i = 1; !is_over(); i++) {
        vmmc_async_handle_t q;
        for (int j = 0; j < 128; j++) {
            src[j] = i;
        }
        WANT(vmmc_SendData(src, far, 16), 0);
        WANT(vmmc_SendDataAsync(src + 16, far + 16, 112, &q), 0);
        int r;
        while ((r = vmmc_AsyncStatus(&q)) == vmmcErr_InProgress) {
            sched_yield();
        }
        WANT(r, 0);
        if (near) {
            CHECK(load(near) == i && load(near + 127) == i);
        }
        WANT(vmmc_GetData(back, far, 128), 0);
        CHECK(memcmp(back, src, sizeof back) == 0);
        if (i % 4 == 0) {
            WANT(vmmc_SendDataNotify(src, far + 128, 8), 0);
            CHECK(vmmc_MyPid() != 0);
        }
        if (i % 16 == 0) {
            vmmc_imphandle_t h;
            int32 *p;
            uint32 n;
            vmmc_BlockNotifications();
            CHECK(vmmc_UnblockNotifications() >= 0);
            WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 1, &h, &p, &n), 0);
            WANT(vmmc_UnimportRecvBuf(h), 0);
        }
        w->done = i;
    }
    if (w->k == 1) {
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == small);
        own.ss_flags = SS_DISABLE;
        CHECK(sigaltstack(&own, NULL) == 0);
    }
    return NULL;
}

static int32 notified;

static void count_notification(int32 *at, int32 v) {
    (void)at;
    (void)v;
    __atomic_fetch_add(&notified, 1, __ATOMIC_SEQ_CST);
}

/* With a node, the buffer is that of another process, which a Go program has exported. */
void storm(const char *node, int pid, int seconds) {
    int all[KINDS] = {SIGALRM, SIGPROF, SIGCHLD, SIGURG, SIGRTMIN, SIGVTALRM};
    memcpy(kinds, all, sizeof kinds);
    for (int i = 0; i < KINDS; i += 2) {
        install(i);
    }
    int32 *buf = vmmcx_alloc(4096), *far;
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 n;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 1, count_notification, BUF_READWRITE, 0, &h), 0);
    if (*node) {
        WANT(vmmc_ImportRecvBuf(vmmc_NameToNode((char *)node), (vmmc_pid_t)pid, 1, &im, &far, &n),
             0);
    } else {
        WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 1, &im, &far, &n), 0);
    }
    struct sigaction now;
    for (int i = 0; i < KINDS; i += 2) { /* loading has left them as they were */
        CHECK(sigaction(kinds[i], NULL, &now) == 0);
        CHECK(now.sa_handler == handler && !(now.sa_flags & SA_ONSTACK));
    }
    for (int i = 1; i < KINDS; i += 2) {
        install(i);
    }
    struct work w[4];
    pthread_t t[4], s;
    for (int k = 0; k < 4; k++) {
        w[k] = (struct work){k, far, *node ? NULL : buf, 0};
        CHECK(pthread_create(&t[k], NULL, work, &w[k]) == 0);
    }
    CHECK(pthread_create(&s, NULL, send_signals, NULL) == 0);
    struct itimerval tick = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &tick, NULL);
    setitimer(ITIMER_PROF, &tick, NULL);
    setitimer(ITIMER_VIRTUAL, &tick, NULL);
    struct timespec end, t0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &t0);
    } while (t0.tv_sec < end.tv_sec);
    __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
    int32 notes = 0, done = 0;
    for (int k = 0; k < 4; k++) {
        pthread_join(t[k], NULL);
        notes += w[k].done / 4;
        done += w[k].done;
    }
    struct itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &off, NULL);
    setitimer(ITIMER_PROF, &off, NULL);
    setitimer(ITIMER_VIRTUAL, &off, NULL);
    pthread_join(s, NULL);
    if (!*node) {
        while (__atomic_load_n(&notified, __ATOMIC_SEQ_CST) != notes) {
            sched_yield();
        }
    }
    printf("rounds %d handlers", done);
    for (int i = 0; i < KINDS; i++) {
        printf(" %d", counts[i]);
        CHECK(counts[i] > 0);
    }
    printf("\n");
}
