/*
 * What libvmmc has for libvipl and libraries of MPI, which use the same Go part: two functions, in
 * a version of their own that no program may use.
 */
#ifndef VMMC_PRIVATE_H
#define VMMC_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "boundary.h"

/* On one of Go's threads; on this one, for what never waits; on this one unless it would wait. */
enum { VMMCP_QUEUE, VMMCP_NOW, VMMCP_TRY };

struct vmmcp_call {
    uint32_t op;
    uint32_t now; /* VMMCP_QUEUE, _NOW, _TRY: where it runs */
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

/*
 * Reports whether a poll of a queue is known to find nothing: something is outstanding, nothing is
 * complete, and nothing has arrived since Go last looked. It does not enter Go. It says no for all
 * that Go must look at: news, a handle that names nothing, an empty queue.
 */
enum { VMMCP_SENDS, VMMCP_RECEIVES, VMMCP_ENTRIES };
int vmmcp_idle(uint64_t handle, unsigned queue);

#endif
