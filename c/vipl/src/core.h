/* What the files of libvipl share. */
#ifndef VIPL_CORE_H
#define VIPL_CORE_H

#include <string.h>

#include "private.h"
#include "vipl.h"

#define API __attribute__((visibility("default")))

#define BITS(handle) ((uint64_t)(uintptr_t)(handle))
#define HANDLE(bits) ((VIP_PVOID)(uintptr_t)(bits))

/*
 * Runs an operation in Go. What libvmmc itself refuses, as there is no daemon or the process was
 * forked, is VIP_ERROR_RESOURCE.
 */
static inline VIP_RETURN vipl_run(struct vmmcp_call *c) {
    return vmmcp_call(c) != 0 ? VIP_ERROR_RESOURCE : (VIP_RETURN)c->out[0];
}

/* Go knows milliseconds of 63 bits, and all ones. */
static inline uint64_t vipl_limit(VIP_ULONG ms) {
    return ms == VIP_INFINITE || ms == 0xFFFFFFFFul || ms > (VIP_ULONG)1 << 40 ? UINT64_MAX : ms;
}

/* events.c */
int vipl_start_thread(unsigned stream);
uint64_t vipl_in_handler(void); /* 1 on the threads of handlers */

#endif
