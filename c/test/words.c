/* Atomic operations, the fence, and waits for words. */
#include "prog.h"

static vmmc_imphandle_t import_own(uint32 id, int32 **p) {
    vmmc_imphandle_t h;
    uint32 n;
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), id, &h, p, &n), 0);
    return h;
}

static void change_each(int32 *p) {
    int32 old;
    int64_t old64;
    WANT(vmmcx_swap(p, 5, NULL), 0);
    WANT(vmmcx_fetch_add(p, -7, &old), 0);
    CHECK(old == 5);
    WANT(vmmcx_swap(p, 100, &old), 0);
    CHECK(old == -2);
    WANT(vmmcx_compare_and_swap(p, 99, 1, &old), 0);
    CHECK(old == 100);
    WANT(vmmcx_compare_and_swap(p, 100, 1, &old), 0);
    CHECK(old == 100);
    WANT(vmmcx_swap64(p + 2, 1ll << 40, NULL), 0);
    WANT(vmmcx_fetch_add64(p + 2, -(1ll << 41), &old64), 0);
    CHECK(old64 == 1ll << 40);
    WANT(vmmcx_compare_and_swap64(p + 2, 0, 9, &old64), 0);
    CHECK(old64 == -(1ll << 40));
    WANT(vmmcx_compare_and_swap64(p + 2, -(1ll << 40), 9, &old64), 0);
    WANT(vmmcx_swap64(p + 2, 10, &old64), 0);
    CHECK(old64 == 9);
    WANT(vmmcx_fetch_add64(p + 1, 1, NULL), vmmcErr_BadAlignment);
}

struct later {
    int32 *from, *to;
    vmmc_exphandle_t ends;
};

static void *send_later(void *arg) {
    struct later *l = arg;
    usleep(20000);
    WANT(vmmc_SendData(l->from, l->to, 1), 0);
    return NULL;
}

static void *unexport_later(void *arg) {
    struct later *l = arg;
    usleep(20000);
    WANT(vmmc_UnexportRecvBuf(l->ends), 0);
    return NULL;
}

static int32 *waited, wait_code;

static void wait_in_handler(int32 *at, int32 value) {
    (void)at;
    wait_code = vmmcx_wait_word(waited, 12345, 0, NULL);
    (void)value;
    __atomic_store_n(waited, 77, __ATOMIC_SEQ_CST);
}

static sigjmp_buf out;

static void jump_out(int sig) {
    (void)sig;
    siglongjmp(out, 1);
}

static void alarms(int how) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGALRM);
    CHECK(pthread_sigmask(how, &s, NULL) == 0);
}

static void waits(int32 *buf, int32 *p) {
    int32 v = 1;
    pthread_t t;
    struct later l = {&v, p, {0}};
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    int32 *other = vmmcx_alloc(4096), *q;
    *buf = 0;
    WANT(vmmcx_wait_word(buf, 1, -1, NULL), 0);
    /* The arguments are checked also where the word has changed already. */
    vmmc_imphandle_t none = {0}, stale;
    int32 *mine = vmmcx_alloc(4096);
    WANT(vmmcx_wait_word(mine, 1, -1, NULL), vmmcErr_BadArg);
    WANT(vmmc_ExportRecvBuf(mine, 1024, 9, NULL, BUF_READWRITE, 0, &h), 0);
    stale = import_own(9, &q);
    for (int i = 0; i < 2; i++) {
        WANT(vmmcx_wait_word(mine, 1, -1, NULL), 0);
        WANT(vmmcx_wait_word(mine, 1, -1, &stale), 0);
        WANT(vmmcx_wait_word(mine, 1, -1, &none), vmmcErr_BadArg);
    }
    WANT(vmmc_UnimportRecvBuf(stale), 0);
    WANT(vmmcx_wait_word(mine, 1, -1, NULL), 0);
    WANT(vmmcx_wait_word(mine, 1, -1, &stale), vmmcErr_BadIbufState);
    WANT(vmmc_UnexportRecvBuf(h), 0);
    WANT(vmmcx_wait_word(mine, 1, -1, NULL), vmmcErr_BadArg);
    WANT(vmmcx_free(mine), 0);
    WANT(vmmcx_wait_word(buf, 0, 0, NULL), vmmcErr_Timeout);
    WANT(vmmcx_wait_word(buf, 0, 20, NULL), vmmcErr_Timeout);
    for (; v < 6; v++) {
        CHECK(pthread_create(&t, NULL, send_later, &l) == 0);
        WANT(vmmcx_wait_word(buf, v - 1, v % 2 ? -1 : 60000, NULL), 0);
        CHECK(load(buf) == v);
        pthread_join(t, NULL);
    }
    /* The wait ends with the import that owes the word. */
    WANT(vmmc_ExportRecvBuf(other, 1024, 8, wait_in_handler, BUF_READWRITE, 0, &h), 0);
    im = import_own(8, &q);
    CHECK(pthread_create(&t, NULL, send_later, &l) == 0);
    WANT(vmmcx_wait_word(buf, 5, -1, &im), 0);
    pthread_join(t, NULL);
    WANT(vmmcx_wait_word(buf, 6, 5, &im), vmmcErr_Timeout);
    waited = buf;
    WANT(vmmc_SendDataNotify(&v, q, 1), 0);
    WANT(vmmcx_wait_word(other, 0, -1, NULL), 0);
    await(buf, 77);
    CHECK(wait_code == vmmcErr_NotInHandler);
    l.ends = h;
    CHECK(pthread_create(&t, NULL, unexport_later, &l) == 0);
    WANT(vmmcx_wait_word(buf, 77, -1, &im), vmmcErr_Revoked);
    pthread_join(t, NULL);
    WANT(vmmc_UnimportRecvBuf(im), 0);
    WANT(vmmcx_free(other), 0);
    /* A wait that is left leaves nothing behind. */
    signal(SIGALRM, jump_out);
    alarms(SIG_UNBLOCK);
    for (volatile int i = 0; i < 50; i++) {
        if (sigsetjmp(out, 1) == 0) {
            struct itimerval soon = {{0, 0}, {0, 300 + i * 10}};
            setitimer(ITIMER_REAL, &soon, NULL);
            vmmcx_wait_word(buf, 77, -1, NULL);
            CHECK(0);
        }
    }
    alarms(SIG_BLOCK);
    WANT(vmmcx_wait_word(buf, 77, 0, NULL), vmmcErr_Timeout);
}

/* By one process that imports its own exports: mapped memory, and memory that is not. */
void words(void) {
    static _Alignas(8) int32 plain[1024];
    int32 *mapped = vmmcx_alloc(4096), *p, sent[256], got;
    vmmc_exphandle_t h;
    vmmc_async_handle_t request;
    alarms(SIG_BLOCK); /* in the handlers' thread too, which must not jump into this one */
    for (int i = 0; i < 2; i++) {
        int32 *buf = i ? plain : mapped;
        WANT(vmmc_ExportRecvBuf(buf, 1024, (uint32)i, NULL, BUF_READWRITE, 0, &h), 0);
        vmmc_imphandle_t im = import_own((uint32)i, &p);
        change_each(p);
        CHECK(load(buf) == 1 && buf[2] == 10 && buf[3] == 0);
        for (int32 k = 0; k < 256; k++) {
            sent[k] = k;
        }
        for (int32 k = 1; k < 50; k++) {
            sent[255] = k;
            WANT(vmmc_SendDataAsync(sent, p + 512, 256, &request), 0);
            WANT(vmmcx_fence(p + 3), 0);
            CHECK(load(buf + 512 + 255) == k);
            WANT(vmmc_AsyncStatus(&request), 0);
        }
        waits(buf, p);
        WANT(vmmc_UnexportRecvBuf(h), 0);
        WANT(vmmc_GetData(&got, p, 1), vmmcErr_Revoked);
        WANT(vmmcx_fence(p), vmmcErr_Revoked);
        WANT(vmmcx_swap(p, 1, NULL), vmmcErr_Revoked);
        WANT(vmmc_UnimportRecvBuf(im), 0);
    }
}

/* Changes the words of another process: 1,000 times the first, and then the others once. */
void change_words(const char *node, int pid) {
    vmmc_imphandle_t h;
    int32 *p;
    uint32 n;
    vmmc_node_t at = vmmc_NameToNode((char *)(uintptr_t)node);
    WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, 1, &h, &p, &n), 0);
    for (int i = 0; i < 1000; i++) {
        WANT(vmmcx_fetch_add(p, 3, NULL), 0);
    }
    change_each(p + 4);
    WANT(vmmcx_swap(p + 1, 1, NULL), 0);
    WANT(vmmcx_fence(p), 0);
}
