/* Automatic update, and events. */
#include <stdio.h>

#include <vmmc.h>
#include <vmmcx.h>

int update_store(int32 *memory, int32 *remote, uint32 nwords);
int update_until_gone(vmmc_pid_t pid);

/* Stores that have arrived when the call returns. */
int update_store(int32 *memory, int32 *remote, uint32 nwords)
{
    uint32 i;
    int r = vmmcx_map(memory, remote, nwords, 0);
    if (r != 0)
        return r;
    for (i = 0; i < nwords; i++)
        memory[i]++;
    r = vmmcx_flush(memory);
    if (r != 0)
        fprintf(stderr, "%s\n", vmmcx_last_error());
    return vmmcx_unmap(memory);
}

/* Waits until a process has ended. */
int update_until_gone(vmmc_pid_t pid)
{
    vmmcx_event_t event;
    int r;
    do {
        r = vmmcx_next_event(-1, &event);
    } while (r == 0 && (event.kind != VMMCX_PEER_GONE || event.pid != pid));
    return r;
}
