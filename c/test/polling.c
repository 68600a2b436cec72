/* Handlers that the program runs itself. */
#include <poll.h>

#include "prog.h"

static int32 *proxy;
static int32 run_last, run_count;
static int32 in_handler[3];
static pthread_t run_by;
static sigjmp_buf past;

static void handle(int32 *at, int32 value) {
    vmmc_imphandle_t h;
    uint32 n;
    int32 *p, one = 100 + value;
    (void)at;
    in_handler[0] = vmmcx_run_handlers();
    in_handler[1] = vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &h, &p, &n);
    in_handler[2] = vmmc_SendData(&one, proxy + 100, 1);
    run_by = pthread_self();
    run_last = value;
    __atomic_add_fetch(&run_count, 1, __ATOMIC_SEQ_CST);
    if (value == 1000) {
        siglongjmp(past, 1);
    }
    if (value == 1001) {
        pthread_exit(NULL);
    }
}

static int readable(int fd, int milliseconds) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, milliseconds) == 1;
}

/* Runs handlers until one has been told the value. */
static void run_until(int fd, int32 value) {
    while (run_last != value) {
        CHECK(readable(fd, 60000));
        CHECK(vmmcx_run_handlers() >= 0);
    }
}

static void notify_self(int32 value) { WANT(vmmc_SendDataNotify(&value, proxy, 1), 0); }

static void *run_on_a_thread(void *fd) {
    run_until(*(int *)fd, 1001);
    return NULL;
}

static void *run_beside(void *fd) {
    while (load(&run_count) < 200) {
        (void)readable(*(int *)fd, 10);
        CHECK(vmmcx_run_handlers() >= 0);
    }
    return NULL;
}

void polling(void) {
    int32 *buf = vmmcx_alloc(4096);
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 n;
    WANT(vmmcx_run_handlers(), vmmcErr_BadConfig);
    int fd = vmmcx_poll_fd();
    CHECK(fd >= 0 && vmmcx_poll_fd() == fd && !readable(fd, 0));
    WANT(vmmcx_run_handlers(), 0);
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, handle, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &proxy, &n), 0);

    /* Nothing runs before the program says so, and then on its own thread. */
    notify_self(1);
    CHECK(readable(fd, 60000) && run_count == 0);
    WANT(vmmcx_run_handlers(), 1);
    CHECK(run_count == 1 && run_last == 1 && pthread_equal(run_by, pthread_self()));
    CHECK(in_handler[0] == vmmcErr_NotInHandler && in_handler[1] == vmmcErr_NotInHandler);
    CHECK(in_handler[2] == 0);
    await(buf + 100, 101);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &proxy, &n), 0); /* it is over */

    for (int32 i = 2; i < 50; i++) {
        notify_self(i);
    }
    run_until(fd, 49);
    CHECK(run_count == 49);

    /* Blocking runs what was given already. It does not wait for ever. */
    notify_self(50);
    CHECK(readable(fd, 60000));
    vmmc_BlockNotifications();
    int32 before = run_count;
    notify_self(51);
    CHECK(!readable(fd, 30) || vmmcx_run_handlers() == 0);
    CHECK(run_count == before);
    CHECK(vmmc_UnblockNotifications() > 0);
    run_until(fd, 51);
    CHECK(run_count == 51);

    /* A handler that is left, and one that ends its thread. */
    notify_self(1000);
    if (sigsetjmp(past, 1) == 0) {
        run_until(fd, -1);
    }
    CHECK(vmmcx_run_handlers() >= 0); /* after a jump the program says so that it is over */
    notify_self(52);
    run_until(fd, 52);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, run_on_a_thread, &fd) == 0);
    notify_self(1001);
    pthread_join(t, NULL);
    notify_self(53);
    run_until(fd, 53);

    /* Two threads: each notification is run once, by one of them. */
    pthread_t beside[2];
    __atomic_store_n(&run_count, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&beside[i], NULL, run_beside, &fd) == 0);
    }
    for (int32 i = 0; i < 200; i++) {
        notify_self(i);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(beside[i], NULL);
    }
    CHECK(run_count == 200 && run_last == 199);
    WANT(vmmc_UnexportRecvBuf(h), 0);
    WANT(vmmcx_run_handlers(), 0);
}

static void ignore(int32 *at, int32 value) {
    (void)at;
    (void)value;
}

/* The choice is made once. */
void polling_late(void) {
    int32 *buf = vmmcx_alloc(4096);
    vmmc_exphandle_t h;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, ignore, BUF_READWRITE, 0, &h), 0);
    WANT(vmmcx_poll_fd(), vmmcErr_BadConfig);
    WANT(vmmcx_run_handlers(), vmmcErr_BadConfig);
}
