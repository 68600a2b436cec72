/*
 * The sender in C whose stores TestMappedTracesInC of internal/link looks at, one instruction at a
 * time. It is linked with src/mapped.c alone. The file of traces that it is given is that test's.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mapped.h"

/* The exporter's page: shmlayout.Process. */
#define SLEEPERS 64
#define STATES 4096
#define STATE_SIZE 64
#define PROCESS (STATES + 16 * STATE_SIZE)

#define MARK 40 /* unix.Thread.Mark */

static long thread;

static void mark(void) { syscall(SYS_tgkill, getpid(), thread, MARK); }

/* The tracer holds a thread that sleeps like this, as one of each Go program does. */
static void *sleep_on(void *unused) {
    while (!unused) {
        struct timespec t = {0, 1000000};
        syscall(SYS_nanosleep, &t, NULL);
    }
    return NULL;
}

static void *pages(size_t n) {
    void *p = aligned_alloc(4096, (n + 4095) & ~(size_t)4095);
    if (!p) {
        exit(1);
    }
    return memset(p, 0, (n + 4095) & ~(size_t)4095);
}

struct words {
    int32_t pending;
    uint64_t last_seq, acked_seq;
    uint32_t link_ended, import_ended, closed;
};

static void set(struct words *w, const char *name, unsigned long v) {
    if (strcmp(name, "last_seq") == 0) {
        w->last_seq = v;
    } else if (strcmp(name, "acked_seq") == 0) {
        w->acked_seq = v;
    } else if (strcmp(name, "pending") == 0) {
        w->pending = (int32_t)v;
    } else if (strcmp(name, "link_ended") == 0) {
        w->link_ended = (uint32_t)v;
    } else if (strcmp(name, "import_ended") == 0) {
        w->import_ended = (uint32_t)v;
    } else if (strcmp(name, "closed") == 0) {
        w->closed = (uint32_t)v;
    } else {
        fprintf(stderr, "unknown word %s\n", name);
        exit(1);
    }
}

static int after(char *to, size_t size, const char *name, uint64_t v, int any) {
    if (v == 0) {
        return 0;
    }
    return snprintf(to, size, "%s\"after %s %lu\"", any ? "," : "", name, (unsigned long)v);
}

/* Makes one call. Returns 0 at the end of the file. */
static int run(FILE *in) {
    char op[32], name[32];
    unsigned size, slot, alive, off, n, puts, words;
    unsigned long address, v;
    if (fscanf(in, "%31s %u %u %u %lu %u %u %u %u", op, &size, &slot, &alive, &address, &off, &n,
               &puts, &words) != 9) {
        return 0;
    }
    unsigned char *export = pages(size), *process = pages(PROCESS), *buffer = pages(n),
                  *src = pages(n);
    for (unsigned i = 0; i < n; i++) {
        src[i] = (unsigned char)(1 + i % 200);
    }
    uint32_t *state = (uint32_t *)(void *)(process + STATES + slot * STATE_SIZE);
    *state = alive;
    for (; puts > 0; puts--) {
        unsigned at, len, b;
        if (fscanf(in, "%31s %u %u ", name, &at, &len) != 3) {
            exit(1);
        }
        unsigned char *area = name[0] == 'e' ? export : name[0] == 'p' ? process : buffer;
        for (unsigned i = 0; i < len; i++) {
            if (fscanf(in, "%2x", &b) != 1) {
                exit(1);
            }
            area[at + i] = (unsigned char)b;
        }
    }
    struct words w = {0};
    for (; words > 0; words--) {
        if (fscanf(in, "%31s %lu", name, &v) != 2) {
            exit(1);
        }
        set(&w, name, v);
    }
    static uint64_t lanes[VMMCB_LANES][VMMCB_COUNTERS];
    memset(lanes, 0, sizeof lanes);
    struct vmmcb_path p = {
        .size = size,
        .rights = VMMCB_EXPORT_READ | VMMCB_EXPORT_WRITE,
        .alive = alive,
        .mem = export,
        .address = address,
        .state = state,
        .sleepers = (uint32_t *)(void *)(process + SLEEPERS),
        .sleepers_any = (uint32_t *)(void *)(process + SLEEPERS + 4),
        .sleepers_at = (uint64_t *)(void *)(process + SLEEPERS + 8),
        .pending = &w.pending,
        .last_seq = &w.last_seq,
        .acked_seq = &w.acked_seq,
        .link_ended = &w.link_ended,
        .import_ended = &w.import_ended,
        .closed = &w.closed,
        .lanes = lanes,
    };
    printf(
        "{\"Areas\":{\"export\":{\"Addr\":%lu,\"Size\":%u},\"process\":{\"Addr\":%lu,\"Size\":%u},"
        "\"buffer\":{\"Addr\":%lu,\"Size\":%u}},\"Socket\":-1}\n",
        (unsigned long)(uintptr_t) export, size, (unsigned long)(uintptr_t)process, PROCESS,
        (unsigned long)(uintptr_t)buffer, n);
    fflush(stdout);
    int get = strcmp(op, "get") == 0, result;
    mark();
    if (get) {
        result = vmmc_mapped_get(&p, off, buffer, n, 3);
    } else {
        result = vmmc_mapped_send(&p, off, src, n, 3);
    }
    mark();
    char lines[512] = "";
    static const struct {
        int number;
        const char *name;
    } counters[] = {{VMMCB_MESSAGES, "messages"}, {VMMCB_BYTES, "bytes"}, {VMMCB_GETS, "gets"},
                    {VMMCB_GET_BYTES, "get_bytes"}};
    int at = 0;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        at += after(lines + at, sizeof lines - (size_t)at, counters[i].name,
                    lanes[3][counters[i].number], at > 0);
    }
    printf("{\"Result\":\"%s\",\"After\":[%s]}\n",
           result == VMMC_MAPPED_DONE   ? "ok"
           : result == VMMC_MAPPED_SLOW ? "slow"
                                        : "finish",
           lines);
    fflush(stdout);
    return 1;
}

int main(int argc, char **argv) {
    pthread_t t;
    char traced;
    FILE *in = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!in || pthread_create(&t, NULL, sleep_on, NULL) != 0) {
        return 1;
    }
    thread = syscall(SYS_gettid);
    printf("%ld\n", thread);
    fflush(stdout);
    if (read(STDIN_FILENO, &traced, 1) != 1) {
        return 1;
    }
    while (run(in)) {
    }
    mark(); /* the tracer lets the thread go here */
    return 0;
}
