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

/*
 * Returns when all that this process has sent to the exporter of the address has arrived there:
 * asynchronous sends too, and those to the exporter's other buffers.
 */
vmmc_result_t vmmcx_fence(int32 *remoteProxyAddr);

/*
 * Change a word of an import as one step for all that read or change it: add to it, put a value in
 * its place, or do so only if it has the expected value. *old is what the word was before; old may
 * be NULL. Words of 64 bits have an address that is a multiple of 8 in the exporter's memory.
 */
vmmc_result_t vmmcx_fetch_add(int32 *remoteProxyAddr, int32 value, int32 *old);
vmmc_result_t vmmcx_swap(int32 *remoteProxyAddr, int32 value, int32 *old);
vmmc_result_t vmmcx_compare_and_swap(int32 *remoteProxyAddr, int32 expected, int32 value,
                                     int32 *old);
vmmc_result_t vmmcx_fetch_add64(int32 *remoteProxyAddr, int64_t value, int64_t *old);
vmmc_result_t vmmcx_swap64(int32 *remoteProxyAddr, int64_t value, int64_t *old);
vmmc_result_t vmmcx_compare_and_swap64(int32 *remoteProxyAddr, int64_t expected, int64_t value,
                                       int64_t *old);

/*
 * Waits until a word of an export of this process is not old any more: at most so many
 * milliseconds, or without a limit if they are negative. With from, it also ends when that import
 * ends.
 */
vmmc_result_t vmmcx_wait_word(int32 *word, int32 old, int milliseconds, vmmc_imphandle_t *from);

/*
 * Names of exports: "queue" is the node's, "n1/queue" that of node n1, and "/queue" the cluster's.
 * An export may have several. Milliseconds bound a wait; a negative number does not.
 */
vmmc_result_t vmmcx_publish(vmmc_exphandle_t handle, const char *name);
vmmc_result_t vmmcx_unpublish(vmmc_exphandle_t handle, const char *name);
vmmc_result_t vmmcx_import_name(const char *name, int milliseconds, vmmc_imphandle_t *handle,
                                int32 **proxyBuf, uint32 *nwords);

/*
 * The group of programs that one "vmmc run -n" has started; a program alone is a group of one. The
 * first of these calls joins it. vmmcx_member waits until that member has joined, vmmcx_barrier
 * until all have called it, and vmmcx_leave ends the membership in order.
 */
vmmc_result_t vmmcx_group(int *rank, int *size);
vmmc_result_t vmmcx_member(int rank, int milliseconds, vmmc_node_t *node, vmmc_pid_t *pid);
vmmc_result_t vmmcx_barrier(int milliseconds);
vmmc_result_t vmmcx_leave(int milliseconds);

/*
 * Automatic update: plain stores to mapped memory appear in an import by themselves, within
 * microseconds while stores come. The memory is a piece of one allocation of vmmcx_alloc, mapped
 * once, and not exported; what is in it when it is mapped is not sent. Only words that change are
 * carried over, in any order. With notify, each carries a notification. vmmcx_flush returns when
 * all that was stored before has arrived. vmmcx_unmap does the same and ends it; so does the end of
 * the import, after which the memory stays taken until vmmcx_unmap. Both name the memory by the
 * address that was mapped.
 */
vmmc_result_t vmmcx_map(int32 *memory, int32 *remoteProxyAddr, uint32 nwords, int notify);
vmmc_result_t vmmcx_unmap(int32 *memory);
vmmc_result_t vmmcx_flush(int32 *memory);

/* What has happened outside of this process: kinds of events. */
#define VMMCX_PEER_GONE 1      /* a process with which imports joined this one has ended */
#define VMMCX_IMPORT_REVOKED 2 /* the exporter has closed the export of an import */
#define VMMCX_NODE_GONE 3      /* this node's daemon has ended; links go on */
#define VMMCX_LINK_DOWN 4      /* a connection has broken and is to be resumed */
#define VMMCX_LINK_RESUMED 5   /* it goes on, and nothing was lost */
#define VMMCX_NODE_BACK 6      /* another daemon has taken the place of the one that had ended */
#define VMMCX_EXPORT_FAULT 7   /* the memory of an export cannot be accessed any more */
#define VMMCX_NAME_LOST 8      /* an export could not keep a name: node and pid say who has it */

typedef struct {
    int kind;
    int code;         /* what calls return from now on, or the cause; 0 for none */
    vmmc_node_t node; /* the other process, if one is concerned */
    vmmc_pid_t pid;
    vmmc_imphandle_t imported; /* of VMMCX_IMPORT_REVOKED; 0 if it is closed by now */
    vmmc_exphandle_t exported; /* of VMMCX_EXPORT_FAULT and VMMCX_NAME_LOST */
    char name[400];            /* of VMMCX_NAME_LOST, otherwise "" */
} vmmcx_event_t;

/*
 * Takes the oldest event. If there is none it waits for one, for so many milliseconds at most, or
 * without a limit if they are negative. Events are kept from the first call on.
 */
vmmc_result_t vmmcx_next_event(int milliseconds, vmmcx_event_t *event);

/*
 * Poll mode, for programs that want handlers of notifications on threads of their own. Chosen by
 * the first call of vmmcx_poll_fd, which comes before the first export with a handler. It returns a
 * descriptor for poll(2), which is readable while a handler waits to be run, or a negative value.
 * The program neither reads nor closes it.
 */
int vmmcx_poll_fd(void);

/* Runs a handler that waits. 1 if one has run, 0 if none was there, or a negative value. */
int vmmcx_run_handlers(void);

#ifdef __cplusplus
}
#endif

#endif
