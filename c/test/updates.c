/* Automatic update, and events. */
#include "prog.h"

#include "sbl.h"

enum { WORDS = 4096, PART = 2000, AT = 300 };

/* Gets from the import until its words are what is expected. */
static void until_there(int32 *proxy, const int32 *expected) {
    static int32 got[PART];
    do {
        sched_yield();
        WANT(vmmc_GetData(got, proxy, PART), 0);
    } while (memcmp(got, expected, sizeof got) != 0);
}

/* Exports 1 and 2 are of another process, which has handlers for both. */
void update(const char *node, int pid) {
    vmmc_imphandle_t h[2];
    int32 *p[2], *q, *mem = vmmcx_alloc(WORDS * 4), got[PART];
    uint32 n;
    vmmc_node_t at = vmmc_NameToNode((char *)(uintptr_t)node);
    CHECK(mem);
    for (uint32 i = 0; i < 2; i++) {
        WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, i + 1, &h[i], &p[i], &n), 0);
        CHECK(n == WORDS);
    }
    int32 *from = mem + 100;
    from[0] = 5; /* what is there before is not carried over */
    WANT(SBL_Map(from, p[0] + AT, PART, 0), 0);
    WANT(SBL_Map(from + 1, p[0], 10, 0), vmmcErr_OverlappedBufs);
    for (int32 i = 1; i <= 50; i++) {
        for (int32 k = 0; k < PART; k += i) {
            from[k] = i * 10000 + k;
        }
        if (i % 2) {
            WANT(vmmcx_flush(from), 0);
            WANT(vmmc_GetData(got, p[0] + AT, PART), 0);
            CHECK(memcmp(got, from, sizeof got) == 0);
        } else { /* by itself */
            until_there(p[0] + AT, from);
        }
    }
    WANT(vmmc_GetData(got, p[0] + AT - 1, 1), 0);
    CHECK(got[0] == 0);
    WANT(vmmc_GetData(got, p[0] + AT + PART, 1), 0);
    CHECK(got[0] == 0);
    /* What was stored before the end is carried over, and nothing that comes after. */
    from[7] = 1234567;
    WANT(SBL_Unmap(from), 0);
    WANT(SBL_Unmap(from), vmmcErr_BadArg);
    WANT(vmmcx_flush(from), vmmcErr_BadArg);
    from[8] = 7654321;
    /* The other way that the text of SBL has: each update notifies. */
    WANT(SBL_Map(mem + PART + 100, p[1] + AT, 64, 1), 0);
    for (int32 i = 1; i <= 20; i++) {
        mem[PART + 100 + i] = i;
        WANT(vmmcx_flush(mem + PART + 100), 0);
    }
    WANT(vmmc_GetData(got, p[0] + AT, PART), 0);
    CHECK(got[7] == 1234567 && got[8] != 7654321);
    /* The import's end ends it. The memory can be mapped again. */
    WANT(vmmc_UnimportRecvBuf(h[1]), 0);
    CHECK(vmmcx_flush(mem + PART + 100) < 0);
    WANT(SBL_Unmap(mem + PART + 100), 0);
    WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, 2, &h[1], &q, &n), 0);
    WANT(SBL_Map(mem + PART + 100, q, 64, 0), 0);
    WANT(SBL_Unmap(mem + PART + 100), 0);
    WANT(vmmcx_free(mem), 0);
}

/* Export 1 is of another process, which closes it when the line is there, and then ends. */
void events(const char *node, int pid) {
    vmmc_imphandle_t h;
    vmmcx_event_t e;
    int32 *p;
    uint32 n;
    vmmc_node_t at = vmmc_NameToNode((char *)(uintptr_t)node);
    WANT(vmmcx_next_event(0, &e), vmmcErr_Timeout);
    CHECK(e.kind == 0);
    WANT(vmmc_ImportRecvBuf(at, (vmmc_pid_t)pid, 1, &h, &p, &n), 0);
    WANT(vmmcx_next_event(10, &e), vmmcErr_Timeout);
    printf("ready\n");
    fflush(stdout);
    WANT(vmmcx_next_event(-1, &e), 0);
    CHECK(e.kind == VMMCX_IMPORT_REVOKED && e.imported.vmmc_opaque == h.vmmc_opaque);
    CHECK(e.code == vmmcErr_Revoked && e.name[0] == 0 && e.exported.vmmc_opaque == 0);
    printf("revoked\n");
    fflush(stdout);
    WANT(vmmcx_next_event(60000, &e), 0);
    CHECK(e.kind == VMMCX_PEER_GONE && e.pid == (vmmc_pid_t)pid && vmmc_EqualNodes(e.node, at));
    CHECK(e.code < 0 && e.imported.vmmc_opaque == 0);
}

static int32 held;

static void count_held(int32 *at, int32 value) {
    (void)at;
    held += value;
}

/*
 * An event comes while a handler that is before it may not run: handlers are blocked, or this
 * thread is the one that runs them.
 */
void events_held(const char *how) {
    int polling = strcmp(how, "polling") == 0;
    int32 *buf = vmmcx_alloc(4096);
    vmmc_exphandle_t h;
    vmmcx_event_t e;
    if (polling) {
        CHECK(vmmcx_poll_fd() >= 0);
    }
    WANT(vmmcx_next_event(0, &e), vmmcErr_Timeout);
    WANT(vmmc_ExportRecvBuf(buf, 1024, 1, count_held, BUF_READWRITE, 0, &h), 0);
    if (!polling) {
        vmmc_BlockNotifications();
    }
    printf("%u\n", vmmc_MyPid());
    fflush(stdout);
    WANT(vmmcx_next_event(-1, &e), 0);
    CHECK(e.kind == VMMCX_PEER_GONE && held == 0);
    if (polling) {
        while (held == 0) {
            CHECK(vmmcx_run_handlers() >= 0);
        }
    } else {
        CHECK(vmmc_UnblockNotifications() > 0);
        await(&held, 7);
    }
    CHECK(held == 7);
}
