/* What the test programs of libvipl share: two processes, or one, that check VIPL's rules. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vipl.h"

const char *vmmcx_last_error(void);
void *vmmcx_alloc(size_t bytes);
int vmmcx_free(void *memory);

/* Ends the program, with a line that says where, unless the call has the result. */
#define WANT(call, code) want((long)(call), (code), #call, __FILE__, __LINE__)
#define OK(call) WANT(call, VIP_SUCCESS)
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void want(long got, long code, const char *call, const char *file, int line) {
    if (got != code) {
        fprintf(stderr, "%s:%d: %s: got %ld (%s), want %ld\n", file, line, call, got,
                vmmcx_last_error(), code);
        exit(1);
    }
}

#define LIMIT 60000 /* milliseconds: longer than any wait of a test that passes */
#define MANY 1100   /* descriptors of a space */
#define SEGMENTS 260

/* A descriptor with room for more segments than the two of the header, and aligned. */
typedef union {
    VIP_DESCRIPTOR d;
    unsigned char room[32 + 16 * SEGMENTS + 32];
} big;

/* An address with room for a host and a discriminator. */
typedef union {
    VIP_NET_ADDRESS a;
    unsigned char room[64];
} address;

/* One of two processes that check something together, or the only one. */
struct end {
    int server;
    const char *host, *test;
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_HANDLE control; /* for barrier and swap */
    unsigned char *mem;    /* registered: data, then descriptors */
    VIP_MEM_HANDLE handle;
    size_t data;
    size_t used; /* descriptors */
};

#define DATA ((size_t)4 << 20)

/* What the error handler was told, in order. */
extern struct errors {
    VIP_ERROR_DESCRIPTOR list[256];
    int n;
} errors;

void open_end(struct end *e);
void pair_up(struct end *e);
void barrier(struct end *e);
void swap(struct end *e, const void *mine, void *theirs, size_t n);
VIP_VI_ATTRIBUTES attributes(struct end *e, int level);
VIP_VI_HANDLE new_vi(struct end *e, int level);
void address_of(struct end *e, address *a, const char *host, const char *discriminator);
void connect_vi(struct end *e, VIP_VI_HANDLE vi, const char *discriminator);
VIP_DESCRIPTOR *descriptor(struct end *e);
VIP_DESCRIPTOR *fill(struct end *e, VIP_DESCRIPTOR *d, int control, size_t off, size_t n);
VIP_DESCRIPTOR *sent(VIP_VI_HANDLE vi, VIP_RETURN code);
VIP_DESCRIPTOR *received(VIP_VI_HANDLE vi, VIP_RETURN code);
VIP_VI_STATE state(VIP_VI_HANDLE vi);
VIP_ERROR_DESCRIPTOR *await_error(VIP_ERROR_CODE code);
VIP_ERROR_DESCRIPTOR *await_error_of(VIP_ERROR_CODE code, VIP_VI_HANDLE vi);
int error_count(VIP_ERROR_CODE code);
void forget_errors(void);
void nap(void);

struct test {
    const char *name;
    void (*run)(struct end *);
    int pair; /* reports whether it takes two processes */
};
extern const struct test tests[];

void nic(struct end *e);
void memory(struct end *e);
void vis(struct end *e);
void queues(struct end *e);
void names(struct end *e);
void bad_arguments(struct end *e);
void pingpong(struct end *e);
void data(struct end *e);
void order(struct end *e);
void faults(struct end *e);
void connects(struct end *e);
void rdma(struct end *e);
void completions(struct end *e);
void notifies(struct end *e);
void ends(struct end *e);
void killed(struct end *e);
void crowd(struct end *e);
void pages(struct end *e);
void gone(struct end *e);
void handlers(struct end *e);
void closes(struct end *e);
void peers(struct end *e);
void waits(struct end *e);
void threads(struct end *e);
