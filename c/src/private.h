/*
 * What libvmmc has for libvipl, which uses the same Go part: one function, in a version of its own
 * that no program may use.
 */
#ifndef VMMC_PRIVATE_H
#define VMMC_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "boundary.h"

struct vmmcp_call {
    uint32_t op;
    uint32_t now; /* 1: on this thread, for what never waits; 0: on one of Go's threads */
    uint64_t in[7];
    uint64_t out[4];
    const void *data; /* what the operation is given, */
    size_t data_len;
    void *room; /* and where what it gives is stored, */
    size_t room_len;
    size_t got; /* of which there were so many bytes */
};

/* Runs an operation. Returns 0, or libvmmc's code if it could not be run. */
int vmmcp_call(struct vmmcp_call *c);

#endif
