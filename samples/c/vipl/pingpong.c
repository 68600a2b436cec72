/*
 * Sends a message to and fro, and prints how long one way takes:
 *
 *     pingpong server
 *     pingpong NODE BYTES TIMES
 *
 * Both sides post a receive before the message that is for it can come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define MOST (1 << 20)

enum { RECEIVE, SEND, DESCRIPTORS };

static void post_receive(struct side *s) {
    TRY(VipPostRecv(s->vi, prepare(s, RECEIVE, 0, MOST), s->handle));
}

static void send_message(struct side *s, size_t n) {
    VIP_DESCRIPTOR *d;
    TRY(VipPostSend(s->vi, prepare(s, SEND, MOST, n), s->handle));
    TRY(VipSendWait(s->vi, VIP_INFINITE, &d));
}

/*
 * Answers each message with one of the same length, until the client disconnects. The client ends
 * first: what is in flight when a NIC is closed may be lost.
 */
static void answer(struct side *s) {
    VIP_DESCRIPTOR *d;
    while ((d = receive(s)) != NULL) {
        size_t n = d->CS.Length;
        memcpy(s->memory + MOST, s->memory, n);
        post_receive(s);
        send_message(s, n);
    }
}

static void measure(struct side *s, size_t n, long times) {
    VIP_DESCRIPTOR *d;
    double begin;
    long i;
    begin = seconds();
    for (i = 0; i < times; i++) {
        memset(s->memory + MOST, (int)i, n);
        send_message(s, n);
        d = receive(s);
        if (!d || d->CS.Length != n || s->memory[0] != (unsigned char)i ||
            s->memory[n - 1] != (unsigned char)i) {
            fprintf(stderr, "message %ld is not what was sent\n", i);
            exit(1);
        }
        post_receive(s);
    }
    printf("%lu bytes: %.2f us one way, %ld messages checked\n", (unsigned long)n,
           (seconds() - begin) / (double)times / 2 * 1e6, times);
}

int main(int argc, char **argv) {
    struct side s;
    long n = argc == 4 ? atol(argv[2]) : 0, times = argc == 4 ? atol(argv[3]) : 0;
    int server = argc == 2 && strcmp(argv[1], "server") == 0;
    if (!server && (argc != 4 || n < 1 || n > MOST || times < 1)) {
        fprintf(stderr, "usage: pingpong server\n       pingpong NODE BYTES TIMES\n");
        return 2;
    }
    open_side(&s, 2 * MOST, DESCRIPTORS);
    new_vi(&s);
    post_receive(&s);
    if (server) {
        serve(&s, "pingpong");
        answer(&s);
    } else {
        request(&s, argv[1], "pingpong");
        measure(&s, (size_t)n, times);
    }
    close_side(&s);
    return 0;
}
