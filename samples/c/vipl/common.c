#define _GNU_SOURCE
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE 60000 /* milliseconds */

/* An address with room for a host and a discriminator of the NIC. */
union address {
    VIP_NET_ADDRESS a;
    unsigned char room[64];
};

void try(VIP_RETURN code, const char *call) {
    if (code != VIP_SUCCESS) {
        fprintf(stderr, "%s: VIPL code %d\n", call, code);
        exit(1);
    }
}

/* The end of a connection is no error here: one side ends first. */
static void on_error(void *context, VIP_ERROR_DESCRIPTOR *e) {
    (void)context;
    if (e->ErrorCode != VIP_ERROR_CONN_LOST) {
        fprintf(stderr, "asynchronous error %d\n", e->ErrorCode);
    }
}

void open_side(struct side *s, size_t n, int descriptors) {
    VIP_MEM_ATTRIBUTES a = {NULL, VIP_TRUE, VIP_TRUE};
    size_t all;
    void *p;
    s->data = (n + 63) & ~(size_t)63;
    all = s->data + (size_t)descriptors * sizeof(VIP_DESCRIPTOR);
    if (posix_memalign(&p, VIP_DESCRIPTOR_ALIGNMENT, all) != 0) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    memset(p, 0, all);
    s->memory = p;
    TRY(VipOpenNic("nic0", &s->nic));
    TRY(VipErrorCallback(s->nic, NULL, on_error));
    TRY(VipNSInit(s->nic, NULL));
    TRY(VipCreatePtag(s->nic, &s->tag));
    a.Ptag = s->tag;
    TRY(VipRegisterMem(s->nic, p, all, &a, &s->handle));
}

VIP_DESCRIPTOR *descriptor(struct side *s, int i) {
    return (VIP_DESCRIPTOR *)(void *)(s->memory + s->data) + i;
}

VIP_DESCRIPTOR *prepare(struct side *s, int i, size_t from, size_t n) {
    VIP_DESCRIPTOR *d = descriptor(s, i);
    memset(d, 0, sizeof *d);
    d->CS.Control = VIP_CONTROL_OP_SENDRECV;
    d->CS.SegCount = 1;
    d->CS.Length = (VIP_UINT32)n;
    d->DS[0].Local.Data.Address = s->memory + from;
    d->DS[0].Local.Handle = s->handle;
    d->DS[0].Local.Length = (VIP_UINT32)n;
    return d;
}

void new_vi(struct side *s) {
    VIP_VI_ATTRIBUTES a = {VIP_SERVICE_RELIABLE_DELIVERY, 1 << 20, NULL, NULL, VIP_TRUE, VIP_TRUE};
    a.Ptag = s->tag;
    TRY(VipCreateVi(s->nic, &a, NULL, NULL, &s->vi));
}

/* The name service gives the host's bytes. The discriminator lies behind them. */
static void find(struct side *s, union address *to, const char *node, const char *discriminator) {
    memset(to, 0, sizeof *to);
    TRY(VipNSGetHostByName(s->nic, (char *)node, &to->a, 0));
    to->a.DiscriminatorLen = (VIP_UINT16)strlen(discriminator);
    memcpy(to->room + 4 + to->a.HostAddressLen, discriminator, strlen(discriminator));
}

void serve(struct side *s, const char *discriminator) {
    union address here, there;
    VIP_VI_ATTRIBUTES a;
    VIP_CONN_HANDLE c;
    find(s, &here, "", discriminator);
    TRY(VipConnectWait(s->nic, &here.a, PATIENCE, &there.a, &a, &c));
    TRY(VipConnectAccept(c, s->vi));
}

void request(struct side *s, const char *node, const char *discriminator) {
    union address here, there;
    VIP_VI_ATTRIBUTES a;
    VIP_RETURN code;
    int i;
    find(s, &here, "", discriminator);
    find(s, &there, node, discriminator);
    for (i = 0; i < PATIENCE; i++) { /* the server may begin later */
        struct timespec soon = {0, 1000000};
        code = VipConnectRequest(s->vi, &here.a, &there.a, PATIENCE, &a);
        if (code != VIP_NO_MATCH) {
            break;
        }
        nanosleep(&soon, NULL);
    }
    TRY(code);
}

VIP_DESCRIPTOR *receive(struct side *s) {
    VIP_DESCRIPTOR *d;
    VIP_RETURN code = VipRecvWait(s->vi, VIP_INFINITE, &d);
    if (code == VIP_DESCRIPTOR_ERROR && d && d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR) {
        return NULL;
    }
    TRY(code);
    return d;
}

void close_side(struct side *s) {
    TRY(VipCloseNic(s->nic));
    free(s->memory);
}

double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
