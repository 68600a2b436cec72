/* Checks VIPL's rules: `prog TEST`, or `prog TEST server` and `prog TEST client HOST`. */
#include "prog.h"

const struct test tests[] = {
    {"nic", nic, 0},           {"memory", memory, 0},       {"vis", vis, 0},
    {"queues", queues, 0},     {"names", names, 0},         {"bad", bad_arguments, 0},
    {"pingpong", pingpong, 1}, {"data", data, 1},           {"order", order, 1},
    {"faults", faults, 1},     {"connects", connects, 1},   {"rdma", rdma, 1},
    {"completions", completions, 1}, {"notifies", notifies, 1}, {"ends", ends, 1},
    {"killed", killed, 1},     {"crowd", crowd, 1},       {"peers", peers, 1},
    {"waits", waits, 0},       {"threads", threads, 1},   {"pages", pages, 1},
    {"gone", gone, 1},         {"handlers", handlers, 0}, {"closes", closes, 0},
    {NULL, NULL, 0},
};

struct errors errors;
static pthread_mutex_t errors_mu = PTHREAD_MUTEX_INITIALIZER;

void nap(void) {
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

static void on_error(void *context, VIP_ERROR_DESCRIPTOR *e) {
    (void)context;
    pthread_mutex_lock(&errors_mu);
    CHECK(errors.n < 256);
    errors.list[errors.n++] = *e;
    pthread_mutex_unlock(&errors_mu);
}

static int count(VIP_ERROR_CODE code, VIP_VI_HANDLE vi, VIP_ERROR_DESCRIPTOR **first) {
    int n = 0;
    pthread_mutex_lock(&errors_mu);
    for (int i = 0; i < errors.n; i++) {
        if (errors.list[i].ErrorCode != code || (vi && errors.list[i].ViHandle != vi)) {
            continue;
        }
        if (n++ == 0 && first) {
            *first = &errors.list[i];
        }
    }
    pthread_mutex_unlock(&errors_mu);
    return n;
}

int error_count(VIP_ERROR_CODE code) { return count(code, NULL, NULL); }

VIP_ERROR_DESCRIPTOR *await_error(VIP_ERROR_CODE code) { return await_error_of(code, NULL); }

/* Waits until the error handler has been called with the code, for a VI unless that is NULL. */
VIP_ERROR_DESCRIPTOR *await_error_of(VIP_ERROR_CODE code, VIP_VI_HANDLE vi) {
    VIP_ERROR_DESCRIPTOR *e = NULL;
    for (int i = 0; i < LIMIT && count(code, vi, &e) == 0; i++) {
        nap();
    }
    if (!e) {
        fprintf(stderr, "no asynchronous error %d has come\n", code);
        exit(1);
    }
    return e;
}

void forget_errors(void) {
    pthread_mutex_lock(&errors_mu);
    errors.n = 0;
    pthread_mutex_unlock(&errors_mu);
}

void open_end(struct end *e) {
    VIP_MEM_ATTRIBUTES a = {NULL, VIP_TRUE, VIP_TRUE};
    size_t n = DATA + MANY * sizeof(big);
    void *p;
    OK(VipOpenNic("nic0", &e->nic));
    OK(VipErrorCallback(e->nic, NULL, on_error));
    OK(VipNSInit(e->nic, NULL));
    OK(VipCreatePtag(e->nic, &e->tag));
    CHECK(posix_memalign(&p, 4096, n) == 0);
    memset(p, 0, n);
    e->mem = p;
    a.Ptag = e->tag;
    OK(VipRegisterMem(e->nic, p, n, &a, &e->handle));
    CHECK(e->handle != 0);
}

VIP_VI_ATTRIBUTES attributes(struct end *e, int level) {
    VIP_VI_ATTRIBUTES a = {(VIP_RELIABILITY_LEVEL)level, 1 << 20, NULL, e->tag, VIP_TRUE,
                           level != VIP_SERVICE_UNRELIABLE};
    return a;
}

VIP_VI_HANDLE new_vi(struct end *e, int level) {
    VIP_VI_ATTRIBUTES a = attributes(e, level);
    VIP_VI_HANDLE vi;
    OK(VipCreateVi(e->nic, &a, NULL, NULL, &vi));
    return vi;
}

/* The address of a discriminator on a host, or on the NIC's own. */
void address_of(struct end *e, address *a, const char *host, const char *discriminator) {
    VIP_NIC_ATTRIBUTES n;
    memset(a, 0, sizeof *a);
    if (host) {
        OK(VipNSGetHostByName(e->nic, (char *)host, &a->a, 0));
    } else {
        OK(VipQueryNic(e->nic, &n));
        a->a.HostAddressLen = n.NicAddressLen;
        memcpy(a->room + 4, n.LocalNicAddress, n.NicAddressLen);
    }
    a->a.DiscriminatorLen = (VIP_UINT16)strlen(discriminator);
    memcpy(a->room + 4 + a->a.HostAddressLen, discriminator, strlen(discriminator));
}

void connect_vi(struct end *e, VIP_VI_HANDLE vi, const char *discriminator) {
    address local, remote;
    VIP_VI_ATTRIBUTES a;
    address_of(e, &local, NULL, discriminator);
    if (e->server) {
        VIP_CONN_HANDLE c;
        OK(VipConnectWait(e->nic, &local.a, LIMIT, &remote.a, &a, &c));
        OK(VipConnectAccept(c, vi));
        return;
    }
    address_of(e, &remote, e->host, discriminator);
    VIP_RETURN code;
    int tries = 0;
    while ((code = VipConnectRequest(vi, &local.a, &remote.a, LIMIT, &a)) == VIP_NO_MATCH &&
           tries++ < LIMIT) {
        nap();
    }
    OK(code);
}

#define OUT (DATA - 4096)
#define IN (DATA - 2048)

/* The receive of the next swap, which is always posted before the other process can send. */
static VIP_DESCRIPTOR *next_swap;

/* Connects the two processes, so that they can wait for each other. */
void pair_up(struct end *e) {
    char name[32];
    snprintf(name, sizeof name, "control %s", e->test);
    e->control = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    next_swap = fill(e, NULL, 0, IN, 2048);
    OK(VipPostRecv(e->control, next_swap, e->handle));
    connect_vi(e, e->control, name);
}

VIP_DESCRIPTOR *descriptor(struct end *e) {
    CHECK(e->used < MANY);
    return &((big *)(void *)(e->mem + DATA))[e->used++].d;
}

/* Makes a descriptor of n bytes of the registered memory, from off on; a new one if d is NULL. */
VIP_DESCRIPTOR *fill(struct end *e, VIP_DESCRIPTOR *d, int control, size_t off, size_t n) {
    CHECK(off + n <= DATA);
    if (!d) {
        d = descriptor(e);
    }
    memset(d, 0, sizeof *d);
    d->CS.Control = (VIP_UINT16)control;
    d->CS.SegCount = 1;
    d->CS.Length = (VIP_UINT32)n;
    d->DS[0].Local.Data.Address = e->mem + off;
    d->DS[0].Local.Handle = e->handle;
    d->DS[0].Local.Length = (VIP_UINT32)n;
    return d;
}

VIP_DESCRIPTOR *sent(VIP_VI_HANDLE vi, VIP_RETURN code) {
    VIP_DESCRIPTOR *d;
    WANT(VipSendWait(vi, LIMIT, &d), code);
    return d;
}

VIP_DESCRIPTOR *received(VIP_VI_HANDLE vi, VIP_RETURN code) {
    VIP_DESCRIPTOR *d;
    WANT(VipRecvWait(vi, LIMIT, &d), code);
    return d;
}

VIP_VI_STATE state(VIP_VI_HANDLE vi) {
    VIP_VI_STATE s;
    OK(VipQueryVi(vi, &s, NULL, NULL, NULL));
    return s;
}

/* Gives the other process n bytes, and gets its n bytes. The last page of data is for that. */
void swap(struct end *e, const void *mine, void *theirs, size_t n) {
    static VIP_DESCRIPTOR *send;
    CHECK(n <= 2048);
    if (e->server) {
        CHECK(received(e->control, VIP_SUCCESS)->CS.Length == n);
    }
    memcpy(e->mem + OUT, mine, n);
    if (e->server) {
        memcpy(theirs, e->mem + IN, n);
        OK(VipPostRecv(e->control, fill(e, next_swap, 0, IN, 2048), e->handle));
    }
    send = fill(e, send, 0, OUT, n);
    OK(VipPostSend(e->control, send, e->handle));
    sent(e->control, VIP_SUCCESS);
    if (!e->server) {
        CHECK(received(e->control, VIP_SUCCESS)->CS.Length == n);
        memcpy(theirs, e->mem + IN, n);
        OK(VipPostRecv(e->control, fill(e, next_swap, 0, IN, 2048), e->handle));
    }
}

void barrier(struct end *e) {
    char c = 0;
    swap(e, &c, &c, 1);
}

int main(int argc, char **argv) {
    struct end e = {0};
    if (argc < 2) {
        return 2;
    }
    e.test = argv[1];
    for (const struct test *t = tests; t->name; t++) {
        if (strcmp(t->name, e.test) != 0) {
            continue;
        }
        open_end(&e);
        if (t->pair) {
            e.server = strcmp(argv[2], "server") == 0;
            e.host = argc > 3 ? argv[3] : NULL;
            pair_up(&e);
        }
        t->run(&e);
        if (e.server) {
            /* What is in flight when a NIC closes may be lost: the client closes first. */
            for (int i = 0; i < LIMIT && state(e.control) != VIP_STATE_ERROR; i++) {
                nap();
            }
            CHECK(state(e.control) == VIP_STATE_ERROR);
        }
        OK(VipCloseNic(e.nic));
        return 0;
    }
    fprintf(stderr, "no test %s\n", e.test);
    return 2;
}
