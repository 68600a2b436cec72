/* Processes (pages 42, 46 and 54). */
#include <vmmc.h>

vmmc_result_t start_everywhere(char *program, vmmc_pid_t *pids, uint32 room, uint32 *started);
int is_spawned(void);

/* Page 54: argv[0] is the library's own to choose, and the list ends with NULL. */
vmmc_result_t start_everywhere(char *program, vmmc_pid_t *pids, uint32 room, uint32 *started)
{
    static char name[] = "worker", option[] = "--peer";
    char *argv[3];
    vmmc_node_t *nodes;
    uint32 n;
    vmmc_result_t res = vmmc_SessionHosts(&n, &nodes);

    argv[0] = name;
    argv[1] = option;
    argv[2] = (char *)0;
    for (*started = 0; res == vmmc_Success && *started < n && *started < room; (*started)++) {
        res = vmmc_Spawn(program, argv, nodes[*started], &pids[*started]);
        if (res != vmmc_Success)
            break;
    }
    return res;
}

/* Page 46: a process that a shell has started has no parent. */
int is_spawned(void)
{
    vmmc_node_t node;
    vmmc_pid_t pid;

    return vmmc_Parent(&node, &pid) != vmmcErr_NoParent;
}
