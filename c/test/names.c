/* Names of exports, and groups of programs. */
#include "prog.h"

/* Publishes a buffer, and waits for an answer in it. */
void publish(const char *name) {
    int32 *buf = vmmcx_alloc(4096);
    vmmc_exphandle_t h, other;
    static int32 more[4];
    WANT(vmmc_ExportRecvBuf(buf, 1024, 1, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmc_ExportRecvBuf(more, 4, 2, NULL, BUF_READWRITE, 0, &other), 0);
    WANT(vmmcx_publish(h, name), 0);
    WANT(vmmcx_publish(h, name), 0);
    WANT(vmmcx_publish(other, name), vmmcErr_NameTaken);
    printf("published\n");
    fflush(stdout);
    WANT(vmmcx_wait_word(buf + 7, 0, 60000, NULL), 0);
    CHECK(buf[7] == 42 && buf[6] == 41);
    WANT(vmmcx_unpublish(h, name), 0);
    WANT(vmmcx_unpublish(h, name), 0);
    printf("unpublished\n");
    fflush(stdout);
    line();
}

/* Imports by a name, and answers. */
void import_named(const char *name) {
    vmmc_imphandle_t h;
    int32 *p, two[2] = {41, 42};
    uint32 n;
    WANT(vmmcx_import_name(name, 60000, &h, &p, &n), 0);
    CHECK(n == 1024);
    WANT(vmmc_SendData(two, p + 6, 2), 0);
    WANT(vmmc_GetData(two, p + 6, 2), 0);
    CHECK(two[0] == 41 && two[1] == 42);
    WANT(vmmc_UnimportRecvBuf(h), 0);
}

/* A member of a group: each sends to the next one between two barriers. */
void member(void) {
    int32 *buf = vmmcx_alloc(4096), *p, v;
    vmmc_exphandle_t h;
    vmmc_imphandle_t im;
    vmmc_node_t node;
    vmmc_pid_t pid;
    uint32 n;
    int rank, size, again;
    WANT(vmmc_ExportRecvBuf(buf, 1024, 1, NULL, BUF_READWRITE, 0, &h), 0);
    WANT(vmmcx_group(&rank, &size), 0);
    WANT(vmmcx_group(&again, &size), 0);
    CHECK(again == rank);
    WANT(vmmcx_member(rank, 0, &node, &pid), 0);
    CHECK(pid == vmmc_MyPid() && vmmc_EqualNodes(node, vmmc_MyNode()));
    WANT(vmmcx_member(size, -1, &node, &pid), vmmcErr_BadArg);
    WANT(vmmcx_member((rank + 1) % size, 60000, &node, &pid), 0);
    WANT(vmmc_ImportRecvBuf(node, pid, 1, &im, &p, &n), 0);
    for (int32 round = 1; round < 20; round++) {
        v = round * 100 + rank;
        WANT(vmmc_SendData(&v, p + round, 1), 0);
        WANT(vmmcx_barrier(60000), 0);
        CHECK(load(buf + round) == round * 100 + (rank + size - 1) % size);
    }
    WANT(vmmcx_barrier(-1), 0);
    WANT(vmmcx_leave(60000), 0);
    WANT(vmmcx_barrier(-1), vmmcErr_Closed);
    printf("%d of %d\n", rank, size);
}
