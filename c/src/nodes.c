/* Nodes, processes, and what needs no node. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "core.h"

static vmmc_node_t node_of(uint64_t number) { return (vmmc_node_t){number}; }

API int vmmc_WordSize(void) { return 4; }

API int vmmc_PageSize(void) {
    long n = sysconf(_SC_PAGESIZE);
    return n > 4096 ? (int)n : 4096;
}

API void vmmc_Version(uint32 *major, uint32 *minor) {
    if (major) {
        *major = VMMC_MAJOR_VERSION;
    }
    if (minor) {
        *minor = VMMC_MINOR_VERSION;
    }
}

API int vmmc_EqualNodes(vmmc_node_t node1, vmmc_node_t node2) {
    return node1.vmmc_opaque != 0 && node1.vmmc_opaque == node2.vmmc_opaque;
}

/* Begins a call: *t and *r are set when it returns 0. */
static int begin(uint32_t op, size_t data, struct thread **t, struct vmmcb_record **r) {
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    *t = vmmc_thread();
    *r = *t ? vmmc_begin(*t, op, data) : NULL;
    return *r ? 0 : vmmc_fail(vmmcErr_NoMem, "call vmmc: no memory for a record");
}

/* What vmmc_MyNode, vmmc_MyPid and vmmc_MyHostName give. It does not change. */
struct self {
    vmmc_node_t node;
    vmmc_pid_t pid;
    char *host;
};

static _Atomic(struct self *) known;

static struct self get_self(void) {
    struct self me = {{0}, 0, NULL}, *k = atomic_load_explicit(&known, memory_order_acquire);
    struct thread *t;
    struct vmmcb_record *r;
    if (vmmc_ready() != 0) {
        return me; /* a child of fork is no process of its own */
    }
    if (k) {
        return *k;
    }
    if (begin(VMMCB_SELF, 0, &t, &r) != 0) {
        return me;
    }
    if (vmmc_queue(t, r) == 0) {
        me.node = node_of(r->out[0]);
        me.pid = (vmmc_pid_t)r->out[1];
        me.host = vmmc_keep(r->data, r->data_len);
        k = me.host ? vmmc_keep(&me, sizeof me) : NULL;
        if (k) {
            atomic_store_explicit(&known, k, memory_order_release);
        }
    }
    vmmc_end(t, r);
    return me;
}

API vmmc_node_t vmmc_MyNode(void) { return get_self().node; }

API vmmc_pid_t vmmc_MyPid(void) { return get_self().pid; }

API char *vmmc_MyHostName(void) { return get_self().host; }

/* A list of nodes that stays: the first that was fetched. */
struct hosts {
    uint32_t n;
    vmmc_node_t *nodes;
};

static _Atomic(struct hosts *) hosts[2];

static int get_hosts(int session, uint32 *nhosts, vmmc_node_t **nodes) {
    if (!nhosts || !nodes) {
        return vmmc_fail(vmmcErr_BadArg, "list hosts: an address for the result is NULL");
    }
    *nhosts = 0;
    *nodes = NULL;
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    struct hosts *h = atomic_load_explicit(&hosts[session], memory_order_acquire);
    uint64_t all = 0, got = 0;
    vmmc_node_t *list = NULL;
    while (!h) {
        struct thread *t;
        struct vmmcb_record *r;
        code = begin(VMMCB_HOSTS, 0, &t, &r);
        if (code != 0) {
            return code;
        }
        r->in[0] = (uint64_t)session;
        r->in[1] = got;
        code = vmmc_queue(t, r);
        if (code == 0 && !list) {
            all = r->out[0];
            list = all <= UINT32_MAX ? vmmc_map(all * sizeof *list + 1) : NULL;
            if (!list) {
                code = r->code = vmmcErr_NoMem;
            }
        }
        if (code == 0) {
            uint64_t n = r->data_len / sizeof *list;
            n = n < all - got ? n : all - got;
            memcpy(list + got, r->data, n * sizeof *list);
            got += n;
        }
        vmmc_end(t, r);
        if (code != 0) {
            return code;
        }
        if (got == all) {
            struct hosts fresh = {(uint32_t)all, list}, *none = NULL;
            h = vmmc_keep(&fresh, sizeof fresh);
            if (!h) {
                return vmmc_fail(vmmcErr_NoMem, "list hosts: no memory");
            }
            if (!atomic_compare_exchange_strong(&hosts[session], &none, h)) {
                h = none;
            }
        }
    }
    *nhosts = h->n;
    *nodes = h->nodes;
    return 0;
}

API vmmc_result_t vmmc_AllHosts(uint32 *nhosts, vmmc_node_t **nodes) {
    return get_hosts(0, nhosts, nodes);
}

API vmmc_result_t vmmc_SessionHosts(uint32 *nhosts, vmmc_node_t **nodes) {
    return get_hosts(1, nhosts, nodes);
}

API vmmc_node_t vmmc_NameToNode(char *hostname) {
    struct thread *t;
    struct vmmcb_record *r;
    vmmc_node_t node = {0};
    if (!hostname) {
        vmmc_fail(vmmcErr_BadArg, "find a node: the name is NULL");
        return node;
    }
    size_t n = strlen(hostname);
    if (begin(VMMCB_FIND_NODE, n, &t, &r) != 0) {
        return node;
    }
    memcpy(r->data, hostname, n);
    r->data_len = (uint32_t)n;
    if (vmmc_queue(t, r) == 0) {
        node = node_of(r->out[0]);
    }
    vmmc_end(t, r);
    return node;
}

/* Names that vmmc_NodeToName has returned: they stay. */
struct name {
    uint64_t node;
    char *text;
    struct name *next;
};

static _Atomic(struct name *) names;

API char *vmmc_NodeToName(vmmc_node_t node) {
    struct thread *t;
    struct vmmcb_record *r;
    if (vmmc_ready() != 0) {
        return NULL;
    }
    for (struct name *n = atomic_load_explicit(&names, memory_order_acquire); n; n = n->next) {
        if (n->node == node.vmmc_opaque) {
            return n->text;
        }
    }
    if (begin(VMMCB_NODE_NAME, 0, &t, &r) != 0) {
        return NULL;
    }
    r->in[0] = node.vmmc_opaque;
    char *text = NULL;
    if (vmmc_queue(t, r) == 0) {
        text = vmmc_keep(r->data, r->data_len);
    }
    vmmc_end(t, r);
    struct name fresh = {node.vmmc_opaque, text, NULL},
                *n = text ? vmmc_keep(&fresh, sizeof fresh) : NULL;
    if (n) {
        n->next = atomic_load(&names);
        while (!atomic_compare_exchange_weak(&names, &n->next, n)) {
        }
    }
    return text;
}

API vmmc_result_t vmmc_Parent(vmmc_node_t *parentNode, vmmc_pid_t *parentPid) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!parentNode || !parentPid) {
        return vmmc_fail(vmmcErr_BadArg, "find the parent: an address for the result is NULL");
    }
    int code = begin(VMMCB_PARENT, 0, &t, &r);
    if (code != 0) {
        return code;
    }
    if (vmmc_queue(t, r) == 0) {
        *parentNode = node_of(r->out[0]);
        *parentPid = (vmmc_pid_t)r->out[1];
    }
    return vmmc_end(t, r);
}

API vmmc_result_t vmmc_Spawn(char *execfile, char **argv, vmmc_node_t node, vmmc_pid_t *pid) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!execfile || !argv || !pid) {
        return vmmc_fail(vmmcErr_BadArg, "spawn: the file, the arguments or the address for the "
                                         "pid is NULL");
    }
    size_t size = strlen(execfile) + 1;
    for (char **a = argv[0] ? argv + 1 : argv; *a; a++) {
        size += strlen(*a) + 1;
    }
    if (size > 1 << 20) {
        return vmmc_fail(vmmcErr_BadArg, "spawn: the arguments have more than 1 MiB");
    }
    int code = begin(VMMCB_SPAWN, size, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = node.vmmc_opaque;
    unsigned char *to = r->data;
    to = (unsigned char *)stpcpy((char *)to, execfile) + 1;
    for (char **a = argv[0] ? argv + 1 : argv; *a; a++) {
        to = (unsigned char *)stpcpy((char *)to, *a) + 1;
    }
    r->data_len = (uint32_t)(to - r->data);
    if (vmmc_queue(t, r) == 0) {
        *pid = (vmmc_pid_t)r->out[0];
    }
    return vmmc_end(t, r);
}

static _Atomic int debug_level;

API void vmmc_SetDebugLevel(int level) {
    struct thread *t;
    struct vmmcb_record *r;
    atomic_store(&debug_level, level);
    /* Before the Go part is loaded there is nothing to say: loading reads the level. */
    if (vmmc_loaded() && begin(VMMCB_DEBUG, 0, &t, &r) == 0) {
        r->in[0] = (uint64_t)(int64_t)level;
        vmmc_now(t, r);
        vmmc_end(t, r);
    }
}

int vmmc_debug_level(void) { return atomic_load(&debug_level); }
