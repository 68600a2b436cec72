/* Programs of the tests: prog NAME ARG... */
#include "prog.h"

/* Names and nodes. */
static void names(void) {
    uint32 n, m, major, minor;
    vmmc_node_t *all, *again, *session, parent;
    vmmc_pid_t pid;
    vmmc_Version(&major, &minor);
    printf("version %u %u word %d page %d\n", major, minor, vmmc_WordSize(), vmmc_PageSize());
    printf("host %s\n", vmmc_MyHostName());
    printf("node %s\n", vmmc_NodeToName(vmmc_MyNode()));
    WANT(vmmc_AllHosts(&n, &all), 0);
    WANT(vmmc_AllHosts(&m, &again), 0);
    CHECK(n == m && all == again);
    printf("all");
    for (uint32 i = 0; i < n; i++) {
        printf(" %s", vmmc_NodeToName(all[i]));
        CHECK(vmmc_NodeToName(all[i]) == vmmc_NodeToName(all[i]));
        CHECK(vmmc_EqualNodes(all[i], vmmc_NameToNode(vmmc_NodeToName(all[i]))));
    }
    WANT(vmmc_SessionHosts(&n, &session), 0);
    printf("\nsession");
    for (uint32 i = 0; i < n; i++) {
        printf(" %s", vmmc_NodeToName(session[i]));
    }
    printf("\n");
    CHECK(!vmmc_EqualNodes(vmmc_NameToNode((char *)"no such node"), vmmc_MyNode()));
    CHECK(strlen(vmmcx_last_error()) > 0);
    CHECK(!vmmc_EqualNodes((vmmc_node_t){0}, (vmmc_node_t){0}));
    WANT(vmmc_Parent(&parent, &pid), vmmcErr_NoParent);
    printf("pid %u\n", vmmc_MyPid());
}

/* What each call says without a daemon, or where the library cannot be loaded. */
static void refused(int code) {
    uint32 n;
    vmmc_node_t *all;
    vmmc_exphandle_t h;
    static int32 buf[4];
    WANT(vmmc_AllHosts(&n, &all), code);
    CHECK(vmmc_MyPid() == 0);
    CHECK(vmmc_MyHostName() == NULL);
    WANT(vmmc_ExportRecvBuf(buf, 4, 1, NULL, BUF_READWRITE, 0, &h), code);
    vmmc_BlockNotifications();
    CHECK(vmmc_UnblockNotifications() == code);
    WANT(vmmc_AllHosts(&n, &all), code);
    printf("%s\n", vmmcx_last_error());
}

/* A spawned program tells its parent its own pid. */
static void spawned(void) {
    vmmc_node_t node;
    vmmc_pid_t pid;
    vmmc_imphandle_t h;
    int32 *proxy, me;
    uint32 n;
    WANT(vmmc_Parent(&node, &pid), 0);
    WANT(vmmc_ImportRecvBuf(node, pid, 7, &h, &proxy, &n), 0);
    me = (int32)vmmc_MyPid();
    WANT(vmmc_SendData(&me, proxy, 1), 0);
}

static void spawn(char *self, const char *on) {
    char *argv[] = {self, (char *)"spawned", NULL};
    vmmc_exphandle_t h;
    vmmc_pid_t pid;
    int32 *buf = vmmcx_alloc(4096);
    CHECK(buf);
    WANT(vmmc_ExportRecvBuf(buf, 1024, 7, NULL, BUF_READWRITE | BUF_GLOBAL_SPACE, 0, &h), 0);
    vmmc_node_t node = vmmc_NameToNode((char *)on);
    WANT(vmmc_Spawn(self, argv, node, &pid), 0);
    await(buf, (int32)pid);
    WANT(vmmc_Spawn((char *)"/no/such/program", argv, node, &pid), vmmcErr_BadArg);
}

/* Kinds of memory for exports. */
static int32 *memory(const char *kind, uint32 nwords, int32 *stack) {
    static int32 fixed[1 << 16];
    if (strcmp(kind, "alloc") == 0) {
        return vmmcx_alloc((size_t)nwords * 4);
    }
    if (strcmp(kind, "malloc") == 0) {
        return malloc((size_t)nwords * 4);
    }
    if (strcmp(kind, "static") == 0) {
        return fixed + 3;
    }
    return stack + 3;
}

/*
 * Exports memory between two guards and tells its pid. Word 0 of the buffer is a flag: the sender
 * stores n in it when it has stored n in all others; this program answers on its export 2.
 */
static void receive(const char *kind, int rounds) {
    int32 stack[1 << 12];
    uint32 n = 1 << 10;
    vmmc_exphandle_t h, answers;
    int32 *buf = memory(kind, n, stack), *answer = vmmcx_alloc(4096);
    int exact = strcmp(kind, "static") == 0 || strcmp(kind, "stack") == 0;
    CHECK(buf && answer);
    memset(buf, 0, n * 4);
    if (exact) {
        buf[-1] = buf[n] = 0x5a5a5a5a;
    }
    WANT(vmmc_ExportRecvBuf(buf, n, 1, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ExportRecvBuf(answer, 1024, 2, NULL, BUF_READWRITE | BUF_GLOBAL_SPACE, 0, &answers),
         0);
    printf("%u\n", vmmc_MyPid());
    fflush(stdout);
    for (int32 i = 1; i <= rounds; i++) {
        await(&buf[n - 1], i);
        for (uint32 j = 0; j < n; j++) {
            CHECK(load(&buf[j]) == i);
        }
        __atomic_store_n(answer, i, __ATOMIC_SEQ_CST);
    }
    if (exact) {
        CHECK(buf[-1] == 0x5a5a5a5a && buf[n] == 0x5a5a5a5a);
    }
    CHECK(strcmp(line(), "end") == 0);
    WANT(vmmc_UnexportRecvBuf(h), 0);
    WANT(vmmc_UnexportRecvBuf(h), vmmcErr_BadRbufState);
    if (strcmp(kind, "malloc") == 0) {
        free(buf);
    }
    if (strcmp(kind, "alloc") == 0) {
        WANT(vmmcx_free(buf), 0);
        WANT(vmmcx_free(answer), vmmcErr_BadRbufState);
    }
}

static void wait_request(vmmc_async_handle_t *h) {
    int r;
    while ((r = vmmc_AsyncStatus(h)) == vmmcErr_InProgress) {
        sched_yield();
    }
    WANT(r, 0);
    WANT(vmmc_AsyncStatus(h), 0);
}

/* The other side of receive. */
static void sender(const char *node, int pid, int rounds) {
    vmmc_imphandle_t h, ha;
    int32 *proxy, *answers = NULL, src[1 << 10], back[1 << 10], answer;
    uint32 n, na = 0;
    vmmc_node_t at = vmmc_NameToNode((char *)node);
    WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, 1, &h, &proxy, &n), 0);
    WANT(vmmc_ImportRecvBufAsync(at, (vmmc_pid_t)pid, 2, &ha), 0);
    int r;
    while ((r = vmmc_ImportRecvBufStatus(&ha, &answers, &na)) == vmmcErr_InProgress) {
        sched_yield();
    }
    WANT(r, 0);
    int32 *const first = answers;
    const uint32 words = na;
    WANT(vmmc_ImportRecvBufStatus(&ha, &answers, &na), vmmcErr_StaleHandle);
    CHECK(first != NULL && answers == first && words != 0 && na == words);
    CHECK(n == 1024);
    WANT(vmmc_ImportRecvBufStatus(&h, &answers, &na), vmmcErr_StaleHandle);
    vmmc_imphandle_t twice;
    WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, 2, &twice, &answers, &na), 0);
    for (int32 i = 1; i <= rounds; i++) {
        vmmc_async_handle_t q;
        for (uint32 j = 0; j < n; j++) {
            src[j] = i;
        }
        switch (i % 4) {
        case 0:
            WANT(vmmc_SendData(src, proxy, n), 0);
            break;
        case 1:
            WANT(vmmc_SendDataAsync(src, proxy, n, &q), 0);
            wait_request(&q);
            break;
        case 2: /* in pieces, in order */
            for (uint32 j = 0; j < n; j += 64) {
                WANT(vmmc_SendData(src + j, proxy + j, 64), 0);
            }
            break;
        case 3:
            for (uint32 j = 0; j < n; j += 64) {
                WANT(vmmc_SendDataAsync(src + j, proxy + j, 64, &q), 0);
            }
            wait_request(&q);
        }
        do {
            WANT(vmmc_GetData(&answer, answers, 1), 0);
        } while (answer != i);
        memset(back, 0, sizeof back);
        if (i % 2) {
            WANT(vmmc_GetData(back, proxy, n), 0);
        } else {
            WANT(vmmc_GetDataAsync(back, proxy, n, &q), 0);
            wait_request(&q);
        }
        CHECK(memcmp(back, src, sizeof back) == 0);
    }
    WANT(vmmc_SendData(src, proxy + n - 1, 2), vmmcErr_BadProxyAddr);
    WANT(vmmc_SendData(src, proxy + n, 1), vmmcErr_BadProxyAddr);
    WANT(vmmc_SendData(proxy, proxy, 1), vmmcErr_BadArg);
    WANT(vmmc_UnimportRecvBuf(h), 0);
    WANT(vmmc_UnimportRecvBuf(h), vmmcErr_BadIbufState);
    WANT(vmmc_SendData(src, proxy, 1), vmmcErr_BadProxyAddr);
    WANT(vmmc_UnimportRecvBuf(ha), 0);
    WANT(vmmc_ImportRecvBufStatus(&ha, &answers, &na), vmmcErr_BadAsyncHandle);
    /* A request that is given up, and one that fails. */
    WANT(vmmc_ImportRecvBufAsync(at, (vmmc_pid_t)pid, 99, &ha), 0);
    WANT(vmmc_ImportRecvBufStatus(&ha, &answers, &na), vmmcErr_InProgress);
    WANT(vmmc_UnimportRecvBuf(ha), 0);
    WANT(vmmc_ImportRecvBuf(at, 0x7fffffff, 1, &h, &proxy, &n), vmmcErr_NoSuchProcess);
    printf("sent\n");
}

/* Redirection and the end of data, by one process that imports its own export. */
static void redirect(void) {
    int32 *buf = vmmcx_alloc(4096), *proxy, user[8] = {0}, src[16];
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 n, first, words;
    for (int i = 0; i < 16; i++) {
        src[i] = i + 1;
    }
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, NULL, BUF_READWRITE | BUF_REDIRECTABLE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &proxy, &n), 0);
    CHECK(vmmc_DataEnd(h) == vmmcErr_NoSuchError);
    WANT(vmmc_EndRedir(h, &words, &first), vmmcErr_BadRbufState);
    WANT(vmmc_PostRedir(h, 4, 8, user), 0);
    WANT(vmmc_PostRedir(h, 4, 8, user), vmmcErr_BadRbufState);
    WANT(vmmc_SendData(src, proxy + 6, 4), 0);
    while (vmmc_DataEnd(h) == vmmcErr_NoSuchError) {
        sched_yield();
    }
    CHECK(vmmc_DataEnd(h) == 9);
    WANT(vmmc_EndRedir(h, &words, &first), 0);
    CHECK(words == 4 && first == 2);
    CHECK(user[1] == 0 && user[2] == 1 && user[5] == 4 && user[6] == 0);
    CHECK(buf[6] == 0);
    vmmc_ClearDataEnd(h);
    CHECK(vmmc_DataEnd(h) == vmmcErr_NoSuchError);
    WANT(vmmc_SendData(src, proxy, 1), 0);
    await(buf, 1);
}

/* Notifications, by one process that imports its own export. */
static int32 *notified_at;
static int32 notified, in_handler_code, nested_code;
static int32 *own_proxy;

static void handle(int32 *at, int32 value) {
    vmmc_imphandle_t h;
    uint32 n;
    int32 *p, one = 100 + value;
    in_handler_code = vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &h, &p, &n);
    nested_code = vmmc_SendData(&one, own_proxy + 100, 1);
    vmmc_BlockNotifications();
    CHECK(vmmc_UnblockNotifications() == 0); /* the handler's own level is left */
    CHECK(vmmc_UnblockNotifications() == vmmcErr_NotInHandler);
    notified_at = at;
    __atomic_add_fetch(&notified, 1, __ATOMIC_SEQ_CST);
    if (value == 3) {
        pthread_exit(NULL);
    }
}

static void notify(void) {
    int32 *buf = vmmcx_alloc(4096), src[4] = {9, 8, 7, 1};
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    vmmc_async_handle_t q;
    uint32 n;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, handle, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &own_proxy, &n), 0);
    WANT(vmmc_SendDataNotify(src, own_proxy + 8, 4), 0);
    await(&notified, 1);
    CHECK(notified_at == buf + 11);
    CHECK(in_handler_code == vmmcErr_NotInHandler && nested_code == 0);
    await(buf + 100, 101);
    vmmc_BlockNotifications();
    vmmc_BlockNotifications();
    src[3] = 2;
    WANT(vmmc_SendDataNotify(src, own_proxy + 8, 4), 0);
    WANT(vmmc_UnexportRecvBuf(h), vmmcErr_BlockedNotifications);
    CHECK(load(&notified) == 1);
    CHECK(vmmc_UnblockNotifications() == 0);
    CHECK(vmmc_UnblockNotifications() > 0);
    CHECK(vmmc_UnblockNotifications() > 0);
    await(&notified, 2);
    src[3] = 3;
    WANT(vmmc_SendDataAsyncNotify(src, own_proxy, 4, &q), 0);
    wait_request(&q);
    await(&notified, 3);
    for (int32 i = 4; i < 300; i++) { /* the thread that has ended has a successor */
        src[3] = i;
        WANT(vmmc_SendDataNotify(src, own_proxy, 4), 0);
    }
    await(&notified, 299);
}

/* A thread's first calls: one that enters Go, among others. */
static int32 *shared_proxy;

static void *first_calls(void *arg) {
    int32 v = (int32)(intptr_t)arg + 1, got;
    CHECK(vmmc_MyPid() != 0);
    WANT(vmmc_SendData(&v, shared_proxy + (intptr_t)arg, 1), 0);
    WANT(vmmc_GetData(&got, shared_proxy + (intptr_t)arg, 1), 0);
    CHECK(got == v);
    return NULL;
}

/* With `load` the library is loaded by these threads too. */
static void *load_first(void *arg) {
    pthread_barrier_wait(arg);
    CHECK(vmmc_MyPid() != 0);
    return NULL;
}

static void threads(int n) {
    pthread_t *t = calloc((size_t)n, sizeof *t);
    pthread_attr_t a;
    pthread_barrier_t b;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 64 * 1024);
    pthread_barrier_init(&b, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        CHECK(pthread_create(&t[i], &a, load_first, &b) == 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
    }
    int32 *buf = vmmcx_alloc(1 << 16);
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 words;
    WANT(vmmc_ExportRecvBuf(buf, 1 << 14, 5, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &shared_proxy, &words), 0);
    for (int i = 0; i < n; i++) {
        CHECK(pthread_create(&t[i], &a, first_calls, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
    }
    free(t);
}

/* Each way to get a child, before and after the first call. */
static int in_child(int code) {
    uint32 n;
    vmmc_node_t *all;
    if (vmmc_AllHosts(&n, &all) != code) {
        fprintf(stderr, "in a child: %s\n", vmmcx_last_error());
        return 1;
    }
    if (code == 0) {
        return 0;
    }
    int32 v = 1;
    vmmc_exphandle_t h;
    vmmc_async_handle_t q;
    if (vmmc_SendData(&v, shared_proxy, 1) != code || vmmc_GetData(&v, shared_proxy, 1) != code ||
        vmmc_SendDataAsync(&v, shared_proxy, 1, &q) != code || vmmc_MyPid() != 0 ||
        vmmc_ExportRecvBuf(&v, 1, 9, NULL, BUF_READWRITE, 0, &h) != code ||
        !strstr(vmmcx_last_error(), "forked")) {
        return 2;
    }
    return 0;
}

static void join(pid_t pid) {
    int status;
    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int other_child(void *code) { return in_child((int)(intptr_t)code); }

static void forks(void) {
    pid_t pid = fork();
    if (pid == 0) {
        _exit(in_child(0));
    }
    join(pid);
    int32 *buf = vmmcx_alloc(4096);
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 words;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &shared_proxy, &words), 0);
    if ((pid = fork()) == 0) {
        _exit(in_child(vmmcErr_Closed));
    }
    join(pid);
    if ((pid = _Fork()) == 0) {
        _exit(in_child(vmmcErr_Closed));
    }
    join(pid);
    char *stack = malloc(1 << 18);
    join(clone(other_child, stack + (1 << 18), SIGCHLD, (void *)(intptr_t)vmmcErr_Closed));
    free(stack);
    /* A child has not this memory: its stores would reach the importers. */
    if ((pid = fork()) == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile int32 *)buf = 1;
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    int32 v = 42;
    WANT(vmmc_SendData(&v, shared_proxy, 1), 0);
    await(buf, 42);
}

/* What a program that is executed finds open and mapped. */
static void execs(char *self) {
    static char inherited[8192] = ",";
    for (int fd = 3; fd < 1024; fd++) { /* those of the parent of this program */
        if (fcntl(fd, F_GETFD) >= 0) {
            snprintf(inherited + strlen(inherited), 16, "%d,", fd);
        }
    }
    CHECK(vmmc_MyPid() != 0);
    int32 *buf = vmmcx_alloc(4096), *p;
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 n;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &p, &n), 0);
    char *argv[] = {self, (char *)"executed", inherited, NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        execv(self, argv);
        _exit(127);
    }
    join(pid);
    execv(self, argv);
    exit(127);
}

static void executed(const char *inherited) {
    char l[512];
    for (int fd = 3; fd < 1024; fd++) {
        char path[64], to[256], number[16];
        snprintf(number, sizeof number, ",%d,", fd);
        if (strstr(inherited, number)) {
            continue;
        }
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t k = readlink(path, to, sizeof to - 1);
        if (k > 0) {
            to[k] = 0;
            fprintf(stderr, "descriptor %d is open: %s\n", fd, to);
            exit(1);
        }
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(l, sizeof l, maps)) {
        CHECK(!strstr(l, "memfd") && !strstr(l, "libvmmc-go"));
    }
    fclose(maps);
}

/* Imports and ends imports, and says whether an address was used twice. */
static void space(int rounds) {
    int32 *buf = calloc(4 << 20, 4), *p, *first = NULL, v = 3;
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 n;
    int again = 0;
    WANT(vmmc_ExportRecvBuf(buf, 4 << 20, 5, NULL, BUF_READWRITE, 0, &h), 0);
    for (int i = 0; i < rounds; i++) {
        WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &p, &n), 0);
        first = first ? first : p;
        again |= i > 0 && p == first;
        WANT(vmmc_SendData(&v, p, 1), 0);
        WANT(vmmc_UnimportRecvBuf(im), 0);
    }
    WANT(vmmc_UnexportRecvBuf(h), 0);
    free(buf);
    printf("%s\n", again ? "again" : "other");
}

/* A program that touches DestSpace. */
static void touch(void) {
    int32 *buf = vmmcx_alloc(4096), *p;
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 n;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &p, &n), 0);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    *(volatile int32 *)(p + 1) = 1;
}

/* ^C ends a program that waits in an import. */
static void waiting(const char *timeout) {
    if (*timeout) {
        setenv("VMMC_IMPORT_TIMEOUT", timeout, 1);
    }
    vmmc_imphandle_t im;
    int32 *p;
    uint32 n;
    printf("%u\n", vmmc_MyPid());
    fflush(stdout);
    int r = vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 77, &im, &p, &n);
    printf("%d\n", r);
}

/* Jumps out of a wait, and ends threads in one. */
static sigjmp_buf home;

static void jump(int sig) {
    (void)sig;
    siglongjmp(home, 1);
}

static void leave(int sig) {
    (void)sig;
    pthread_exit(NULL);
}

static void *wait_for_ever(void *started) {
    vmmc_imphandle_t im;
    int32 *p;
    uint32 n;
    __atomic_store_n((int32 *)started, 1, __ATOMIC_SEQ_CST);
    vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 77, &im, &p, &n);
    return NULL;
}

static void jumps(void) {
    vmmc_imphandle_t im;
    int32 *p;
    uint32 n;
    CHECK(vmmc_MyPid() != 0);
    signal(SIGALRM, jump);
    for (volatile int i = 0; i < 200; i++) {
        if (sigsetjmp(home, 1) == 0) {
            struct itimerval soon = {{0, 0}, {0, 300 + i * 10}};
            setitimer(ITIMER_REAL, &soon, NULL);
            vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 77, &im, &p, &n);
            CHECK(0);
        }
        CHECK(vmmc_NameToNode(vmmc_NodeToName(vmmc_MyNode())).vmmc_opaque != 0);
    }
    signal(SIGUSR1, leave);
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        int32 started = 0;
        CHECK(pthread_create(&t, NULL, wait_for_ever, &started) == 0);
        await(&started, 1);
        sched_yield();
        pthread_kill(t, SIGUSR1);
        pthread_join(t, NULL);
    }
    /* All that was left is still usable. */
    int32 *buf = vmmcx_alloc(4096), v = 5;
    vmmc_exphandle_t h;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 77, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 77, &im, &p, &n), 0);
    WANT(vmmc_SendData(&v, p, 1), 0);
    await(buf, 5);
}

/* The program's own handler of faults goes on working, installed before loading or after. */
static void caught(int sig, siginfo_t *info, void *context) {
    (void)sig;
    (void)context;
    siglongjmp(home, info->si_addr == (void *)64 ? 1 : 2);
}

static void faults(int before) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = caught;
    a.sa_flags = SA_SIGINFO;
    if (before) {
        CHECK(sigaction(SIGSEGV, &a, NULL) == 0);
    }
    int32 *buf = vmmcx_alloc(4096), *p, v = 5;
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    uint32 n;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 5, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ImportRecvBuf(vmmc_MyNode(), vmmc_MyPid(), 5, &im, &p, &n), 0);
    if (!before) {
        CHECK(sigaction(SIGSEGV, &a, NULL) == 0);
    }
    for (volatile int i = 0; i < 200; i++) {
        int how = sigsetjmp(home, 1);
        if (how == 0) {
            *(volatile int32 *)(uintptr_t)64 = 1;
        }
        CHECK(how == 1);
        WANT(vmmc_SendData(&v, p, 1), 0);
        CHECK(vmmc_NameToNode(vmmc_NodeToName(vmmc_MyNode())).vmmc_opaque != 0);
    }
}

static void usage(const char *name) {
    fprintf(stderr, "no program %s\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    const char *a2 = argc > 2 ? argv[2] : "", *a3 = argc > 3 ? argv[3] : "";
    const char *a4 = argc > 4 ? argv[4] : "";
    if (strcmp(name, "names") == 0) {
        names();
    } else if (strcmp(name, "refused") == 0) {
        refused(atoi(a2));
    } else if (strcmp(name, "spawn") == 0) {
        spawn(argv[0], a2);
    } else if (strcmp(name, "spawned") == 0) {
        spawned();
    } else if (strcmp(name, "receive") == 0) {
        receive(a2, atoi(a3));
    } else if (strcmp(name, "send") == 0) {
        sender(a2, atoi(a3), atoi(a4));
    } else if (strcmp(name, "redirect") == 0) {
        redirect();
    } else if (strcmp(name, "update") == 0) {
        update(a2, atoi(a3));
    } else if (strcmp(name, "events") == 0) {
        events(a2, atoi(a3));
    } else if (strcmp(name, "events_held") == 0) {
        events_held(a2);
    } else if (strcmp(name, "notify") == 0) {
        notify();
    } else if (strcmp(name, "threads") == 0) {
        threads(atoi(a2));
    } else if (strcmp(name, "forks") == 0) {
        forks();
    } else if (strcmp(name, "execs") == 0) {
        execs(argv[0]);
    } else if (strcmp(name, "executed") == 0) {
        executed(a2);
    } else if (strcmp(name, "space") == 0) {
        space(atoi(a2));
    } else if (strcmp(name, "faults") == 0) {
        faults(strcmp(a2, "before") == 0);
    } else if (strcmp(name, "touch") == 0) {
        touch();
    } else if (strcmp(name, "waiting") == 0) {
        waiting(a2);
    } else if (strcmp(name, "jumps") == 0) {
        jumps();
    } else if (strcmp(name, "polling") == 0) {
        polling();
    } else if (strcmp(name, "polling_late") == 0) {
        polling_late();
    } else if (strcmp(name, "publish") == 0) {
        publish(a2);
    } else if (strcmp(name, "import") == 0) {
        import_named(a2);
    } else if (strcmp(name, "member") == 0) {
        member();
    } else if (strcmp(name, "words") == 0) {
        words();
    } else if (strcmp(name, "change") == 0) {
        change_words(a2, atoi(a3));
    } else if (strcmp(name, "bad") == 0) {
        bad_arguments();
    } else if (strcmp(name, "storm") == 0) {
        storm(a2, atoi(a3), atoi(a4));
    } else {
        usage(name);
    }
    return 0;
}
