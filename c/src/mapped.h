/* The mapped path: stores and loads in an exporter's pages, as internal/link has them in Go. */
#ifndef VMMC_MAPPED_H
#define VMMC_MAPPED_H

#include "boundary.h"

/* What vmmc_mapped_send and vmmc_mapped_get return. */
enum {
    VMMC_MAPPED_DONE,
    VMMC_MAPPED_SLOW,  /* nothing was stored: Go must take it */
    VMMC_MAPPED_FINISH /* the message is stored, or a part of it: Go ends the send. A get: repeat it */
};

int vmmc_mapped_send(const struct vmmcb_path *p, uint64_t off, const void *src, uint64_t n,
                     unsigned lane);
int vmmc_mapped_get(const struct vmmcb_path *p, uint64_t off, void *dst, uint64_t n, unsigned lane);

#endif
