/*
 * Writes to the memory of a server by RDMA, and prints how much a second:
 *
 *     bandwidth server
 *     bandwidth NODE BYTES TIMES
 *
 * The server tells its address and handle in a message. The last write has immediate data. It thus
 * consumes a receive, and the server knows that all of them have arrived.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define MOST (1 << 20)
#define AHEAD 16 /* writes that are posted and not complete */

enum { MESSAGE, WRITES, DESCRIPTORS = WRITES + AHEAD };

/* Where the client may write. */
struct place {
    VIP_UINT64 address;
    VIP_MEM_HANDLE handle;
};

/* Tells the place, and waits for the write that has immediate data. */
static int let_write(struct side *s) {
    struct place here;
    VIP_DESCRIPTOR *d;
    size_t i, n;
    here.address = (VIP_UINT64)(size_t)s->memory;
    here.handle = s->handle;
    memcpy(s->memory + MOST, &here, sizeof here);
    TRY(VipPostSend(s->vi, prepare(s, WRITES, MOST, sizeof here), s->handle));
    TRY(VipSendWait(s->vi, VIP_INFINITE, &d));
    TRY(VipRecvWait(s->vi, VIP_INFINITE, &d));
    n = d->CS.Length;
    for (i = 0; i < n; i++) {
        if (s->memory[i] != (unsigned char)d->CS.ImmediateData) {
            fprintf(stderr, "byte %lu was not written\n", (unsigned long)i);
            return 1;
        }
    }
    printf("%lu bytes are as they were written\n", (unsigned long)n);
    TRY(VipPostRecv(s->vi, prepare(s, MESSAGE, MOST, 4096), s->handle));
    return receive(s) != NULL; /* the client ends first */
}

static void write_once(struct side *s, int i, const struct place *to, size_t n, int last) {
    VIP_DESCRIPTOR *d = prepare(s, i, 0, n);
    d->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
    d->CS.SegCount = 2;
    d->DS[1].Local = d->DS[0].Local;
    d->DS[0].Remote.Data.AddressBits = to->address;
    d->DS[0].Remote.Handle = to->handle;
    d->DS[0].Remote.Reserved = 0;
    if (last) {
        d->CS.Control |= VIP_CONTROL_IMMEDIATE;
        d->CS.ImmediateData = s->memory[0];
    }
    TRY(VipPostSend(s->vi, d, s->handle));
}

static void write_all(struct side *s, size_t n, long times) {
    struct place there;
    VIP_DESCRIPTOR *d;
    double begin;
    long i;
    TRY(VipRecvWait(s->vi, VIP_INFINITE, &d));
    memcpy(&there, s->memory + MOST, sizeof there);
    memset(s->memory, 0x5A, n);
    begin = seconds();
    for (i = 0; i < times; i++) {
        if (i >= AHEAD) { /* completed in the order of the posts: the descriptor of this one */
            TRY(VipSendWait(s->vi, VIP_INFINITE, &d));
        }
        write_once(s, WRITES + (int)(i % AHEAD), &there, n, i == times - 1);
    }
    for (i = times < AHEAD ? times : AHEAD; i > 0; i--) {
        TRY(VipSendWait(s->vi, VIP_INFINITE, &d));
    }
    printf("%lu bytes: %.1f MB/s\n", (unsigned long)n,
           (double)n * (double)times / (seconds() - begin) / 1e6);
}

int main(int argc, char **argv) {
    struct side s;
    long n = argc == 4 ? atol(argv[2]) : 0, times = argc == 4 ? atol(argv[3]) : 0;
    int server = argc == 2 && strcmp(argv[1], "server") == 0, failed = 0;
    if (!server && (argc != 4 || n < 1 || n > MOST || times < 1)) {
        fprintf(stderr, "usage: bandwidth server\n       bandwidth NODE BYTES TIMES\n");
        return 2;
    }
    open_side(&s, MOST + 4096, DESCRIPTORS);
    new_vi(&s);
    TRY(VipPostRecv(s.vi, prepare(&s, MESSAGE, MOST, 4096), s.handle));
    if (server) {
        serve(&s, "bandwidth");
        failed = let_write(&s);
    } else {
        request(&s, argv[1], "bandwidth");
        write_all(&s, (size_t)n, times);
    }
    close_side(&s);
    return failed;
}
