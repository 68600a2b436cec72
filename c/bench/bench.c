/*
 * Both ends of what "vmmc bench c" measures of the C library. Each end has an export whose first
 * page says what is to be done, and whose rest takes the messages.
 *
 *   bench-c serve PATH HOST  prints a line with its address, and answers one client until its
 *                            standard input ends
 *   bench-c ping ADDRESS     for each line "BYTES N AT" of its standard input sends so many
 *                            messages there and back, one after another, at an offset, and prints
 *                            how many nanoseconds each took, as an array of JSON
 *   bench-c burst ADDRESS    for each line "BYTES N" sends so many messages to successive
 *                            addresses, one call each, and prints how many nanoseconds each took,
 *                            as an array of one number: the mean until the last one had arrived
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vmmc.h"
#include "vmmcx.h"

enum {
    /* Words of the first page. */
    COMMAND = 0, /* of a client: how many it has given; what one is lies before it */
    VERB = 1,
    WORDS = 2,
    COUNT = 3,
    AT = 4,
    FLAG = 16,   /* all messages of a burst were sent */
    ANSWER = 32, /* of a server */
    PEER = 48,   /* of a client, once: its pid, and the name of its node */
    NODE = 49,
    NODE_BYTES = 256,
    DATA = 1024, /* where messages go */
    MOST = (4 << 20) / 4,
    ALL = DATA + MOST,
    RING = (64 << 10) / 4, /* addresses of a burst's messages, as vmmc bench rate has them */
    EXPORT = 1
};

enum { PING = 1, BURST = 2 };

static int32 *own, *far;
static int32 src[MOST];
static int remote;

static void must(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "bench-c: %s: %s: %s\n", what, vmmc_ErrorStr(code), vmmcx_last_error());
        exit(1);
    }
}

static void end(const char *why) {
    fprintf(stderr, "bench-c: %s\n", why);
    exit(1);
}

static int32 load(const int32 *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

/*
 * Waits until a word is v. On one node the far end stores it into this memory, so that a program
 * finds it there without a call; between nodes only a call finds what has arrived.
 */
static void await(int32 *word, int32 v) {
    for (int i = 1; !remote && i < 1 << 18; i++) {
        if (load(word) == v) {
            return;
        }
        if (i % 256 == 0) {
            sched_yield(); /* the far end may be on the same processor */
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    for (int32 now; (now = load(word)) != v;) {
        must(vmmcx_wait_word(word, now, -1, NULL), "wait for the far end");
    }
}

static void export_own(void) {
    vmmc_exphandle_t h;
    own = vmmcx_alloc(ALL * 4);
    if (!own) {
        end(vmmcx_last_error());
    }
    memset(src, 1, sizeof src); /* pages that were never written are all one page */
    must(vmmc_ExportRecvBuf(own, ALL, EXPORT, NULL, BUF_READWRITE | BUF_GLOBAL_SPACE, 0, &h),
         "export");
}

static void import_far(char *node, vmmc_pid_t pid) {
    vmmc_imphandle_t h;
    uint32 n;
    must(vmmc_ImportRecvBuf(vmmc_NameToNode(node), pid, EXPORT, &h, &far, &n), "import");
    remote = !vmmc_EqualNodes(vmmc_NameToNode(node), vmmc_MyNode());
}

/*
 * On one node each end's thread has a processor of its own, if there are two: the ends in Go settle
 * on two before each round, and a program that polls its own memory would keep the other end from
 * it. Threads that were made before stay where they are.
 */
static void take_processor(int which) {
    cpu_set_t all, one;
    if (remote || sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) {
        return;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all) && which-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            if (sched_setaffinity(0, sizeof one, &one) != 0) {
                end("a thread cannot choose its processor");
            }
            return;
        }
    }
}

static void send_word(int32 *to, int32 v) { must(vmmc_SendData(&v, to, 1), "send a word"); }

static int64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What a reading of the clock takes: it is in each time that two of them measure. */
static int64_t clock_cost(void) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < 1000; i++) {
        int64_t start = clock_now(), took = clock_now() - start;
        least = took < least ? took : least;
    }
    return least;
}

static void *until_input_ends(void *unused) {
    char b[64];
    while (read(0, b, sizeof b) > 0) {
    }
    _exit(0);
    return unused;
}

static void serve(void) {
    pthread_t t;
    export_own();
    printf("%u@%s\n", vmmc_MyPid(), vmmc_NodeToName(vmmc_MyNode()));
    fflush(stdout);
    if (pthread_create(&t, NULL, until_input_ends, NULL) != 0) {
        end("no thread can be made");
    }
    for (int32 pid; (pid = load(own + PEER)) == 0;) {
        must(vmmcx_wait_word(own + PEER, 0, -1, NULL), "wait for a client");
    }
    import_far((char *)(own + NODE), (vmmc_pid_t)load(own + PEER));
    take_processor(1);
    for (int32 k = 1;; k++) {
        send_word(far + ANSWER, k); /* ready for the next command */
        await(own + COMMAND, k);
        int32 verb = own[VERB], words = own[WORDS], n = own[COUNT], at = DATA + own[AT];
        own[at + words - 1] = 0;     /* no value of an earlier command */
        send_word(far + ANSWER, -k); /* has read it */
        for (int32 v = 1; verb == PING && v <= n; v++) {
            await(own + at + words - 1, v);
            src[words - 1] = v;
            must(vmmc_SendData(src, far + at, (uint32)words), "send");
        }
        await(own + FLAG, k);
    }
}

/* Has the server begin, and returns when it has. */
static void begin(int32 k, int32 verb, int32 words, int32 n, int32 at) {
    int32 what[] = {verb, words, n, at};
    await(own + ANSWER, k);
    must(vmmc_SendData(what, far + VERB, 4), "send a command");
    send_word(far + COMMAND, k);
    await(own + ANSWER, -k);
}

static void ping(int32 k, int32 words, int32 n, int32 at) {
    int64_t *took = calloc((size_t)n, sizeof *took), cost = clock_cost();
    if (!took) {
        end("no memory for the times");
    }
    at += DATA;
    own[at + words - 1] = 0;
    begin(k, PING, words, n, at - DATA);
    for (int32 v = 1; v <= n; v++) {
        src[words - 1] = v;
        int64_t start = clock_now();
        must(vmmc_SendData(src, far + at, (uint32)words), "send");
        await(own + at + words - 1, v);
        took[v - 1] = clock_now() - start - cost;
    }
    send_word(far + FLAG, k);
    for (int32 i = 0; i < n; i++) {
        printf("%c%" PRId64, i == 0 ? '[' : ',', took[i] < 0 ? 0 : took[i]);
    }
    free(took);
}

static void burst(int32 k, int32 words, int32 n) {
    begin(k, BURST, words, n, 0);
    int32 span = (words < RING ? RING / words : 1) * words, off = 0;
    int64_t start = clock_now();
    for (int32 i = 0; i < n; i++) {
        must(vmmc_SendData(src, far + DATA + off, (uint32)words), "send");
        if ((off += words) == span) {
            off = 0;
        }
    }
    send_word(far + FLAG, k);
    await(own + ANSWER, k + 1);
    printf("[%" PRId64, (clock_now() - start) / n);
}

static void call(int verb, char *address) {
    char name[NODE_BYTES] = "";
    char line[256];
    char *node = strchr(address, '@');
    if (!node) {
        end("the address is not the line that serve has printed");
    }
    export_own();
    import_far(node + 1, (vmmc_pid_t)strtoul(address, NULL, 10));
    snprintf(name, sizeof name, "%s", vmmc_NodeToName(vmmc_MyNode()));
    must(vmmc_SendData((int32 *)(void *)name, far + NODE, NODE_BYTES / 4), "send a name");
    send_word(far + PEER, (int32)vmmc_MyPid());
    take_processor(0);
    for (int32 k = 1; fgets(line, sizeof line, stdin); k++) {
        int32 bytes = 0, n = 0, at = 0;
        if (sscanf(line, "%d %d %d", &bytes, &n, &at) < 2 || bytes < 4 || bytes % 4 != 0 ||
            bytes / 4 > MOST || n < 1 || at < 0 || at % 4 != 0 || at / 4 > MOST - bytes / 4) {
            end("a line wants the bytes of a message, whole words of at most 4 MiB, and a count");
        }
        if (verb == PING) {
            ping(k, bytes / 4, n, at / 4);
        } else {
            burst(k, bytes / 4, n);
        }
        printf("]\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "serve") == 0) {
        serve();
    } else if (argc == 3 && strcmp(argv[1], "ping") == 0) {
        call(PING, argv[2]);
    } else if (argc == 3 && strcmp(argv[1], "burst") == 0) {
        call(BURST, argv[2]);
    } else {
        fprintf(stderr, "bench-c: want serve PATH HOST, ping ADDRESS or burst ADDRESS\n");
        return 2;
    }
    return 0;
}
