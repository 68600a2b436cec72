/* What the test programs share. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vmmc.h"
#include "vmmcx.h"

/* Ends the program, with a line that says where, unless the call has the result. */
#define WANT(call, code) want((call), (code), #call, __FILE__, __LINE__)
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #cond,     \
                    vmmcx_last_error());                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void want(int got, int code, const char *call, const char *file, int line) {
    if (got != code) {
        fprintf(stderr, "%s:%d: %s: got %d (%s; %s), want %d\n", file, line, call, got,
                vmmc_ErrorStr(got), vmmcx_last_error(), code);
        exit(1);
    }
}

static inline int32 load(int32 *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

/* Polls a word of this process's own memory. */
static inline void await(int32 *p, int32 v) {
    while (load(p) != v) {
        sched_yield();
    }
}

/* The next line of standard input, without its end. */
static inline char *line(void) {
    static char buf[4096];
    if (!fgets(buf, sizeof buf, stdin)) {
        exit(0);
    }
    buf[strcspn(buf, "\n")] = 0;
    return buf;
}

void bad_arguments(void);
void words(void);
void publish(const char *name);
void import_named(const char *name);
void member(void);
void polling(void);
void polling_late(void);
void update(const char *node, int pid);
void events(const char *node, int pid);
void events_held(const char *how);
void change_words(const char *node, int pid);
void storm(const char *node, int pid, int seconds);
