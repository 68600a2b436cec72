/* The nodes of the cluster and of the session (Programming Model 2; pages 26, 32, 40 to 44, 52). */
#include <stdio.h>
#include <vmmc.h>

void print_session(void);
int is_in_session(vmmc_node_t node);
int find_node(char *name, vmmc_node_t *node);
void print_myself(void);

/* Pages 52 and 44: the arrays and the names belong to the library, and are only read. */
void print_session(void)
{
    vmmc_node_t *ids;
    uint32 i, n;
    vmmc_result_t res = vmmc_SessionHosts(&n, &ids);

    if (res != vmmc_Success) {
        vmmc_Error(res, (char *)"the nodes of the session");
        return;
    }
    for (i = 0; i < n; i++) {
        char *name = vmmc_NodeToName(ids[i]);
        printf("%s%s\n", name == NULL ? "?" : name,
               vmmc_EqualNodes(ids[i], vmmc_MyNode()) ? " (this one)" : "");
    }
}

/* Pages 26 and 32: a node is looked for by vmmc_EqualNodes, as the type is opaque. */
int is_in_session(vmmc_node_t node)
{
    vmmc_node_t *all, *ids;
    uint32 i, n, known = 0;

    if (vmmc_AllHosts(&n, &all) != vmmc_Success)
        return 0;
    for (i = 0; i < n; i++)
        known += vmmc_EqualNodes(all[i], node) != 0;
    if (known == 0 || vmmc_SessionHosts(&n, &ids) != vmmc_Success)
        return 0;
    for (i = 0; i < n; i++)
        if (vmmc_EqualNodes(ids[i], node))
            return 1;
    return 0;
}

/* Page 43: a name that is no node's gives a node whose name is NULL. */
int find_node(char *name, vmmc_node_t *node)
{
    *node = vmmc_NameToNode(name);
    return vmmc_NodeToName(*node) != NULL;
}

/* Programming Model 2: a process is identified by its node and its pid. */
void print_myself(void)
{
    char *node = vmmc_NodeToName(vmmc_MyNode());

    printf("process %lu of node %s, on machine %s\n", (unsigned long)vmmc_MyPid(),
           node == NULL ? "?" : node, vmmc_MyHostName());
}
