/*
 * vmmcx.h: what the manual does not have. Names begin with vmmcx_.
 */
#ifndef VMMCX_H
#define VMMCX_H

#include <stddef.h>

#include "vmmc.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Zeroed memory in whole pages of its own, which importers on the same node map when it is exported
 * whole; NULL where vmmcx_last_error says why. The size is in bytes, a multiple of the word. A
 * child of fork has no such memory: its first access ends it.
 */
void *vmmcx_alloc(size_t bytes);

/* Gives memory of vmmcx_alloc back. vmmcErr_BadRbufState while it is exported. */
vmmc_result_t vmmcx_free(void *memory);

/*
 * Why the calling thread's last failed call failed: what was tried, on what, and with which result.
 * "" if none has. The string changes with the thread's next failed call.
 */
const char *vmmcx_last_error(void);

/*
 * Reports whether errCode is kind, or one of the library's own values that belongs to the manual's
 * value kind: vmmcErr_Revoked is also vmmcErr_BadIbufState.
 */
int vmmcx_error_is(int errCode, int kind);

#ifdef __cplusplus
}
#endif

#endif
