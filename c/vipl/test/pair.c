/* What two processes check, on one node or on two. */
#include "prog.h"

static const int levels[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
                             VIP_SERVICE_RELIABLE_RECEPTION};

static VIP_VI_HANDLE connected(struct end *e, int level) {
    static int n;
    char name[32];
    snprintf(name, sizeof name, "%s %d", e->test, n++);
    VIP_VI_HANDLE vi = new_vi(e, level);
    connect_vi(e, vi, name);
    CHECK(state(vi) == VIP_STATE_CONNECTED);
    return vi;
}

static void set(unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) {
        p[i] = (unsigned char)(i * 7 + i / 256 + seed);
    }
}

static int is(const unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] != (unsigned char)(i * 7 + i / 256 + seed)) {
            return 0;
        }
    }
    return 1;
}

/* A message to and fro: by polling on one side, by waiting on the other. Giganet's spelling. */
void pingpong(struct end *e) {
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_DESCRIPTOR *recv = fill(e, NULL, 0, 0, 64), *send = descriptor(e), *got;
    char text[256];
    VIP_NIC_ATTRIBUTES n;
    OK(VipPostRecv(vi, recv, e->handle));
    connect_vi(e, vi, "pingpong");
    WANT(VipQueryNic(vi, &n), VIP_INVALID_PARAMETER);
    snprintf(text, sizeof text, "%s", vmmcx_last_error());
    CHECK(strstr(text, "query a NIC"));
    for (unsigned i = 0; i < 1000; i++) {
        if (e->server) {
            VIP_RETURN code;
            while ((code = VipRecvDone(vi, &got)) == VIP_NOT_DONE) {
                sched_yield();
            }
            OK(code);
        } else {
            set(e->mem + 64, 64, i);
            memset(send, 0, sizeof *send);
            send->Control.Control = VIP_CONTROL_OP_SENDRECV;
            send->Control.SegCount = 1;
            send->Control.Length = 64;
            send->Data[0].Data.Address = e->mem + 64;
            send->Data[0].Handle = e->handle;
            send->Data[0].Length = 64;
            OK(VipPostSend(vi, send, e->handle));
            CHECK(sent(vi, VIP_SUCCESS) == send);
            CHECK(send->Control.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_SEND));
            got = received(vi, VIP_SUCCESS);
        }
        CHECK(got == recv && recv->CS.Length == 64 && is(e->mem, 64, i));
        CHECK(recv->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE));
        OK(VipPostRecv(vi, recv, e->handle));
        if (e->server) {
            memcpy(e->mem + 64, e->mem, 64);
            OK(VipPostSend(vi, fill(e, send, 0, 64, 64), e->handle));
            CHECK(sent(vi, VIP_SUCCESS) == send);
        }
    }
    barrier(e);
    CHECK(strcmp(text, vmmcx_last_error()) == 0); /* no call has failed since */
    WANT(VipRecvWait(vi, 1, &got), VIP_TIMEOUT);
    CHECK(strcmp(text, vmmcx_last_error()) != 0);
    barrier(e);
    OK(VipDisconnect(vi));
    received(vi, VIP_DESCRIPTOR_ERROR);
    OK(VipDestroyVi(vi));
}

static VIP_DESCRIPTOR *segments(struct end *e, VIP_DESCRIPTOR *d, int n, size_t each) {
    fill(e, d, 0, 0, (size_t)n * each);
    d->CS.SegCount = (VIP_UINT16)n;
    VIP_DATA_SEGMENT *s = (VIP_DATA_SEGMENT *)(void *)((char *)d + 32);
    for (int i = 0; i < n; i++) {
        s[i].Data.AddressBits = (uintptr_t)(e->mem + (size_t)i * each);
        s[i].Handle = e->handle;
        s[i].Length = (VIP_UINT32)each;
    }
    return d;
}

/* Lengths, segments and immediate data on each level. */
void data(struct end *e) {
    static const size_t sizes[] = {0, 1, 63, 64, 4096, 1 << 20};
    VIP_DESCRIPTOR *d = descriptor(e), *x = descriptor(e);
    for (size_t l = 0; l < 3; l++) {
        VIP_VI_HANDLE vi = connected(e, levels[l]);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t n = sizes[i];
            memset(e->mem, 0xEE, n + 8);
            OK(VipPostRecv(vi, fill(e, d, 0, 0, n + (i & 1)), e->handle)); /* larger will do */
            barrier(e);
            set(e->mem + (2 << 20), n, (unsigned)(i + l));
            fill(e, x, i & 1 ? VIP_CONTROL_IMMEDIATE : 0, 2 << 20, n);
            x->CS.ImmediateData = 0xCAFE0000u + (VIP_UINT32)i;
            OK(VipPostSend(vi, x, e->handle));
            CHECK(sent(vi, VIP_SUCCESS) == x && x->CS.Length == n);
            CHECK(received(vi, VIP_SUCCESS) == d && d->CS.Length == n);
            CHECK(is(e->mem, n, (unsigned)(i + l)) && e->mem[n] == 0xEE);
            CHECK(((d->CS.Status & VIP_STATUS_IMMEDIATE) != 0) == (i & 1));
            CHECK(!(i & 1) || d->CS.ImmediateData == 0xCAFE0000u + (VIP_UINT32)i);
        }
        /* 252 segments on one side, one on the other. */
        memset(e->mem, 0, 1 << 20);
        if (e->server) {
            OK(VipPostRecv(vi, segments(e, d, 252, 33), e->handle));
        }
        barrier(e);
        if (e->server) {
            CHECK(received(vi, VIP_SUCCESS)->CS.Length == 252 * 33 && is(e->mem, 252 * 33, 9));
        } else {
            set(e->mem, 252 * 33, 9);
            OK(VipPostSend(vi, segments(e, x, 252, 33), e->handle));
            sent(vi, VIP_SUCCESS);
        }
        barrier(e);
        OK(VipDisconnect(vi));
        OK(VipDestroyVi(vi));
    }
}

/* 10,000 messages in their order, with 64 receives posted ahead. */
void order(struct end *e) {
    enum { AHEAD = 64, ALL = 10000 };
    VIP_VI_HANDLE vi = connected(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_DESCRIPTOR *d[AHEAD], *got;
    VIP_UINT32 n;
    for (int i = 0; i < AHEAD; i++) {
        d[i] = fill(e, NULL, 0, (size_t)i * 64, 4);
        if (e->server) {
            OK(VipPostRecv(vi, d[i], e->handle));
        }
    }
    barrier(e);
    for (VIP_UINT32 i = 0; i < ALL; i++) {
        int k = (int)(i % AHEAD);
        if (e->server) {
            got = received(vi, VIP_SUCCESS);
            memcpy(&n, e->mem + k * 64, 4);
            CHECK(got == d[k] && n == i);
            OK(VipPostRecv(vi, got, e->handle));
        } else {
            if (i >= AHEAD) {
                CHECK(sent(vi, VIP_SUCCESS) == d[k]);
            }
            memcpy(e->mem + k * 64, &i, 4);
            OK(VipPostSend(vi, fill(e, d[k], 0, (size_t)k * 64, 4), e->handle));
        }
        if (k == AHEAD - 1) {
            barrier(e); /* all receives are posted again */
        }
    }
    barrier(e);
    OK(VipDisconnect(vi));
}

/* A reliable VI is in state Error, and its program was told. */
static void broken(VIP_VI_HANDLE vi) {
    /* That of an earlier VI, which the other side has disconnected, may come late. */
    VIP_ERROR_DESCRIPTOR *x = await_error_of(VIP_ERROR_CONN_LOST, vi);
    CHECK(x->ResourceCode == VIP_RESOURCE_VI && !x->DescriptorPtr);
    CHECK(state(vi) == VIP_STATE_ERROR);
    OK(VipDisconnect(vi));
    CHECK(state(vi) == VIP_STATE_IDLE);
    forget_errors();
}

static void end_of(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *d;
    OK(VipDisconnect(vi));
    while (VipRecvDone(vi, &d), d) {
    }
    while (VipSendDone(vi, &d), d) {
    }
    OK(VipDestroyVi(vi));
}

/* The client's SEND of a kind that is wrong completes with a status. */
struct fault {
    const char *name;
    void (*make)(struct end *e, VIP_DESCRIPTOR *d);
    VIP_UINT32 status;
};

static void too_many(struct end *e, VIP_DESCRIPTOR *d) { segments(e, d, 253, 1); }
static void reserved(struct end *e, VIP_DESCRIPTOR *d) { fill(e, d, 0, 0, 8)->CS.Reserved = 1; }
static void no_operation(struct end *e, VIP_DESCRIPTOR *d) { fill(e, d, 3, 0, 8); }
static void no_address(struct end *e, VIP_DESCRIPTOR *d) {
    fill(e, d, VIP_CONTROL_OP_RDMAWRITE, 0, 0)->CS.SegCount = 0;
}
static void short_length(struct end *e, VIP_DESCRIPTOR *d) { fill(e, d, 0, 0, 8)->CS.Length = 7; }
static void long_length(struct end *e, VIP_DESCRIPTOR *d) { fill(e, d, 0, 0, 8)->CS.Length = 9; }
static void too_long(struct end *e, VIP_DESCRIPTOR *d) { fill(e, d, 0, 0, (1 << 20) + 1); }
static void no_region(struct end *e, VIP_DESCRIPTOR *d) {
    fill(e, d, 0, 0, 8)->DS[0].Local.Handle = 0;
}
static void before(struct end *e, VIP_DESCRIPTOR *d) {
    fill(e, d, 0, 0, 8)->DS[0].Local.Data.Address = e->mem - 1;
}
static void behind(struct end *e, VIP_DESCRIPTOR *d) {
    fill(e, d, 0, 0, 8)->DS[0].Local.Data.Address = e->mem + DATA + MANY * sizeof(big) - 7;
}
static void wild(struct end *e, VIP_DESCRIPTOR *d) {
    fill(e, d, 0, 0, 8)->DS[0].Local.Data.AddressBits = 0xC000000000ull; /* where Go's heap is */
}
static void other_tag(struct end *e, VIP_DESCRIPTOR *d) {
    static VIP_MEM_HANDLE h;
    if (h == 0) {
        VIP_PROTECTION_HANDLE tag;
        OK(VipCreatePtag(e->nic, &tag));
        VIP_MEM_ATTRIBUTES a = {tag, VIP_FALSE, VIP_FALSE};
        OK(VipRegisterMem(e->nic, e->mem, DATA, &a, &h));
    }
    fill(e, d, 0, 0, 8)->DS[0].Local.Handle = h;
}

static const struct fault faults_of[] = {
    {"too many segments", too_many, VIP_STATUS_FORMAT_ERROR},
    {"reserved word", reserved, VIP_STATUS_FORMAT_ERROR},
    {"no operation", no_operation, VIP_STATUS_FORMAT_ERROR},
    {"RDMA without an address", no_address, VIP_STATUS_FORMAT_ERROR},
    {"Length too small", short_length, VIP_STATUS_LENGTH_ERROR},
    {"Length too large", long_length, VIP_STATUS_LENGTH_ERROR},
    {"above MaxTransferSize", too_long, VIP_STATUS_LENGTH_ERROR},
    {"no region", no_region, VIP_STATUS_PROTECTION_ERROR},
    {"a byte before the region", before, VIP_STATUS_PROTECTION_ERROR},
    {"a byte behind the region", behind, VIP_STATUS_PROTECTION_ERROR},
    {"an address of nothing", wild, VIP_STATUS_PROTECTION_ERROR},
    {"another tag", other_tag, VIP_STATUS_PROTECTION_ERROR},
};

void faults(struct end *e) {
    VIP_DESCRIPTOR *d = descriptor(e), *good = fill(e, NULL, 0, 0, 8), *r = descriptor(e);
    for (size_t l = 0; l < 3; l++) {
        int reliable = levels[l] != VIP_SERVICE_UNRELIABLE;
        for (size_t i = 0; i < sizeof faults_of / sizeof *faults_of; i++) {
            VIP_VI_HANDLE vi = connected(e, levels[l]);
            OK(VipPostRecv(vi, fill(e, r, 0, 64, 64), e->handle));
            barrier(e);
            if (!e->server) {
                faults_of[i].make(e, d);
                OK(VipPostSend(vi, d, e->handle));
                CHECK(sent(vi, VIP_DESCRIPTOR_ERROR) == d);
                if ((d->CS.Status & VIP_STATUS_ERROR_MASK) != faults_of[i].status) {
                    fprintf(stderr, "%s: status %#x\n", faults_of[i].name, d->CS.Status);
                    exit(1);
                }
            }
            if (reliable) {
                broken(vi);
            } else { /* only the descriptor is in error */
                if (!e->server) {
                    OK(VipPostSend(vi, fill(e, good, 0, 0, 8), e->handle));
                    CHECK(sent(vi, VIP_SUCCESS) == good);
                } else {
                    CHECK(received(vi, VIP_SUCCESS) == r && r->CS.Length == 8);
                }
                barrier(e);
            }
            end_of(vi);
            barrier(e);
            forget_errors(); /* that the other side has disconnected */
        }
        /* No receive is posted. */
        VIP_VI_HANDLE vi = connected(e, levels[l]);
        barrier(e);
        if (!e->server) {
            OK(VipPostSend(vi, fill(e, good, 0, 0, 8), e->handle));
            if (levels[l] == VIP_SERVICE_RELIABLE_RECEPTION) {
                sent(vi, VIP_DESCRIPTOR_ERROR);
                CHECK(good->CS.Status & VIP_STATUS_REMOTE_DESC_ERROR);
            } else {
                sent(vi, VIP_SUCCESS);
            }
        } else {
            VIP_ERROR_DESCRIPTOR *x = await_error(VIP_ERROR_RECVQ_EMPTY);
            CHECK(x->ViHandle == vi && x->NicHandle == e->nic);
        }
        if (reliable) {
            broken(vi);
        } else {
            CHECK(state(vi) == VIP_STATE_CONNECTED);
        }
        barrier(e);
        end_of(vi);
        barrier(e);
        forget_errors();

        /* The receive is too small. */
        vi = connected(e, levels[l]);
        memset(e->mem + 64, 0x55, 64);
        OK(VipPostRecv(vi, fill(e, r, 0, 64, 7), e->handle));
        barrier(e);
        if (!e->server) {
            OK(VipPostSend(vi, fill(e, good, 0, 0, 8), e->handle));
        } else {
            CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == r);
            CHECK((r->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_LENGTH_ERROR);
            CHECK(e->mem[71] == 0x55);
        }
        if (reliable) {
            broken(vi);
        }
        barrier(e);
        end_of(vi);
        barrier(e);
        forget_errors();
    }
}

/* Requests: refused, rejected, mismatched and tried again; what each side sees of the other. */
void connects(struct end *e) {
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY), other;
    VIP_VI_ATTRIBUTES a, mine = attributes(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_CONN_HANDLE c;
    address local, remote, from;
    address_of(e, &local, NULL, "place");
    if (!e->server) {
        address_of(e, &remote, e->host, "nobody");
        WANT(VipConnectRequest(vi, &local.a, &remote.a, LIMIT, &a), VIP_NO_MATCH);
        WANT(VipConnectRequest(vi, &local.a, &remote.a, 0, &a), VIP_INVALID_PARAMETER);
        CHECK(state(vi) == VIP_STATE_IDLE);
        address_of(e, &local, NULL, "client's own");
        address_of(e, &remote, e->host, "place");
    } else {
        WANT(VipConnectWait(e->nic, &local.a, 0, &from.a, &a, &c), VIP_TIMEOUT);
        WANT(VipConnectWait(e->nic, &local.a, 20, &from.a, &a, &c), VIP_TIMEOUT);
    }
    barrier(e);
    if (!e->server) {
        WANT(VipConnectRequest(vi, &local.a, &remote.a, LIMIT, &a), VIP_REJECT);
        mine.EnableRdmaRead = VIP_FALSE;
        OK(VipSetViAttributes(vi, &mine));
        OK(VipConnectRequest(vi, &local.a, &remote.a, LIMIT, &a));
        CHECK(a.ReliabilityLevel == mine.ReliabilityLevel && a.MaxTransferSize == 1 << 20);
        CHECK(!a.Ptag && a.EnableRdmaWrite && a.EnableRdmaRead);
        WANT(VipConnectRequest(vi, &local.a, &remote.a, LIMIT, &a), VIP_INVALID_STATE);
        WANT(VipSetViAttributes(vi, &mine), VIP_INVALID_STATE);
        WANT(VipDestroyVi(vi), VIP_ERROR_RESOURCE);
        /* A discriminator that begins the same is another one. */
        other = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
        address_of(e, &remote, e->host, "plac");
        WANT(VipConnectRequest(other, &local.a, &remote.a, LIMIT, &a), VIP_NO_MATCH);
        /* One that is not answered. */
        address_of(e, &remote, e->host, "place");
        WANT(VipConnectRequest(other, &local.a, &remote.a, 50, &a), VIP_TIMEOUT);
        CHECK(state(other) == VIP_STATE_IDLE);
        OK(VipDestroyVi(other));
        barrier(e);
    } else {
        OK(VipConnectWait(e->nic, &local.a, LIMIT, &from.a, &a, &c));
        OK(VipConnectReject(c));
        WANT(VipConnectReject(c), VIP_INVALID_PARAMETER);
        WANT(VipConnectAccept(c, vi), VIP_INVALID_PARAMETER);
        OK(VipConnectWait(e->nic, &local.a, VIP_INFINITE, &from.a, &a, &c));
        CHECK(a.EnableRdmaWrite && !a.EnableRdmaRead && a.MaxTransferSize == 1 << 20);
        CHECK(from.a.DiscriminatorLen == 12 && memcmp(from.room + 10, "client's own", 12) == 0);
        address_of(e, &remote, NULL, "");
        VIP_VI_ATTRIBUTES w = mine;
        w.ReliabilityLevel = VIP_SERVICE_RELIABLE_RECEPTION;
        OK(VipCreateVi(e->nic, &w, NULL, NULL, &other));
        WANT(VipConnectAccept(c, other), VIP_INVALID_RELIABILITY_LEVEL);
        w = mine;
        w.MaxTransferSize--;
        OK(VipSetViAttributes(other, &w));
        WANT(VipConnectAccept(c, other), VIP_INVALID_MTU);
        WANT(VipConnectAccept(c, e->control), VIP_INVALID_STATE);
        OK(VipConnectAccept(c, vi));
        WANT(VipConnectAccept(c, other), VIP_INVALID_PARAMETER);
        OK(VipDestroyVi(other));
        barrier(e);
    }
    CHECK(state(vi) == VIP_STATE_CONNECTED);
    /* Many requests that come before anything waits for them are all served. */
    enum { CROWD = 100 };
    VIP_VI_HANDLE many[CROWD];
    for (int i = 0; i < CROWD; i++) {
        many[i] = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    }
    barrier(e);
    for (int i = 0; i < CROWD; i++) {
        connect_vi(e, many[i], "many");
    }
    barrier(e);
}

/* Where the other process of a test with two is: each has told its host's bytes. */
static void peer_address(struct end *e, address *mine, address *other, const char *name) {
    address_of(e, mine, NULL, name);
    swap(e, mine, other, sizeof *mine);
}

/* Peer to peer: crossing requests, either side first, attributes that differ, no peer. */
void peers(struct end *e) {
    address mine, other;
    VIP_VI_ATTRIBUTES a, w;
    VIP_DESCRIPTOR *d = fill(e, NULL, 0, 0, 8), *x = fill(e, NULL, 0, 64, 8);
    VIP_RETURN code;
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    WANT(VipConnectPeerDone(vi, &a), VIP_INVALID_STATE);
    WANT(VipConnectPeerWait(vi, &a), VIP_INVALID_STATE);
    for (int k = 0; k < 3; k++) { /* at once, the server first, the client first */
        char name[32];
        snprintf(name, sizeof name, "peers %d %s", k, e->server ? "server" : "client");
        peer_address(e, &mine, &other, name);
        OK(VipPostRecv(vi, fill(e, d, 0, 0, 8), e->handle));
        if ((k == 1 && !e->server) || (k == 2 && e->server)) {
            barrier(e);
        }
        OK(VipConnectPeerRequest(vi, &mine.a, &other.a, k == 0 ? VIP_INFINITE : LIMIT));
        if (k > 0) {
            if ((k == 1) == e->server) {
                CHECK(state(vi) == VIP_STATE_CONNECT_PENDING);
                WANT(VipConnectPeerDone(vi, &a), VIP_NOT_DONE);
                WANT(VipConnectPeerRequest(vi, &mine.a, &other.a, LIMIT), VIP_INVALID_STATE);
                barrier(e);
            }
        }
        if (e->server) {
            OK(VipConnectPeerWait(vi, &a));
        } else {
            while ((code = VipConnectPeerDone(vi, &a)) == VIP_NOT_DONE) {
                nap();
            }
            OK(code);
        }
        CHECK(a.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY && a.MaxTransferSize == 1 << 20);
        CHECK(state(vi) == VIP_STATE_CONNECTED);
        barrier(e);
        OK(VipPostSend(vi, fill(e, x, 0, 64, 8), e->handle));
        sent(vi, VIP_SUCCESS);
        CHECK(received(vi, VIP_SUCCESS) == d && d->CS.Length == 8);
        barrier(e);
        OK(VipDisconnect(vi));
        barrier(e);
    }
    /* Both are told that they differ. */
    peer_address(e, &mine, &other, e->server ? "differ server" : "differ client");
    w = attributes(e, e->server ? VIP_SERVICE_RELIABLE_DELIVERY : VIP_SERVICE_RELIABLE_RECEPTION);
    OK(VipSetViAttributes(vi, &w));
    OK(VipConnectPeerRequest(vi, &mine.a, &other.a, LIMIT));
    WANT(VipConnectPeerWait(vi, &a), VIP_INVALID_RELIABILITY_LEVEL);
    CHECK(state(vi) == VIP_STATE_IDLE);
    barrier(e);
    /* There is no peer. */
    address_of(e, &mine, NULL, "alone");
    OK(VipConnectPeerRequest(vi, &mine.a, &other.a, 30));
    WANT(VipConnectPeerWait(vi, &a), VIP_TIMEOUT);
    CHECK(state(vi) == VIP_STATE_IDLE);
    barrier(e);
    OK(VipDestroyVi(vi));
    forget_errors();
}

/* Eight threads, each with a VI, which send and wait at the same time. */
static struct end *threads_end;

struct talk {
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *in, *out;
    size_t off;
};

static void *talk(void *arg) {
    struct talk *t = arg;
    struct end *e = threads_end;
    for (unsigned i = 0; i < 300; i++) {
        if (e->server) {
            CHECK(received(t->vi, VIP_SUCCESS) == t->in);
            CHECK(is(e->mem + t->off, 64, i + (unsigned)t->off));
            OK(VipPostRecv(t->vi, fill(e, t->in, 0, t->off, 64), e->handle));
        }
        set(e->mem + t->off + 64, 64, i + (unsigned)t->off);
        OK(VipPostSend(t->vi, fill(e, t->out, 0, t->off + 64, 64), e->handle));
        CHECK(sent(t->vi, VIP_SUCCESS) == t->out);
        if (!e->server) {
            CHECK(received(t->vi, VIP_SUCCESS) == t->in);
            CHECK(is(e->mem + t->off, 64, i + (unsigned)t->off));
            OK(VipPostRecv(t->vi, fill(e, t->in, 0, t->off, 64), e->handle));
        }
    }
    return NULL;
}

void threads(struct end *e) {
    enum { N = 8 };
    struct talk t[N];
    pthread_t id[N];
    char name[32];
    threads_end = e;
    for (int i = 0; i < N; i++) {
        t[i].off = (size_t)i * 128;
        t[i].vi = new_vi(e, levels[1 + i % 2]);
        t[i].in = fill(e, NULL, 0, t[i].off, 64);
        t[i].out = descriptor(e);
        OK(VipPostRecv(t[i].vi, t[i].in, e->handle));
        snprintf(name, sizeof name, "thread %d", i);
        connect_vi(e, t[i].vi, name);
    }
    barrier(e);
    for (int i = 0; i < N; i++) {
        CHECK(pthread_create(&id[i], NULL, talk, &t[i]) == 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(id[i], NULL);
    }
    barrier(e);
}

/* 100 threads that request at once. */
static struct end *crowd_end;
static void *request(void *vi) {
    connect_vi(crowd_end, vi, "crowd");
    return NULL;
}

void crowd(struct end *e) {
    enum { CROWD = 100 };
    VIP_VI_HANDLE vi[CROWD];
    pthread_t threads[CROWD];
    crowd_end = e;
    for (int i = 0; i < CROWD; i++) {
        vi[i] = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    }
    for (int i = 0; i < CROWD; i++) {
        if (e->server) {
            connect_vi(e, vi[i], "crowd");
        } else {
            CHECK(pthread_create(&threads[i], NULL, request, vi[i]) == 0);
        }
    }
    for (int i = 0; i < CROWD; i++) {
        if (!e->server) {
            pthread_join(threads[i], NULL);
        }
        CHECK(state(vi[i]) == VIP_STATE_CONNECTED);
    }
    barrier(e);
}

struct place {
    VIP_UINT64 at;
    VIP_MEM_HANDLE handle;
};

/* An RDMA descriptor: n bytes at `off` here, and at p + far there. */
static VIP_DESCRIPTOR *remote(struct end *e, VIP_DESCRIPTOR *d, int control, size_t off, size_t n,
                              const struct place *p, size_t far) {
    d = fill(e, d, control, off, n);
    d->DS[1].Local = d->DS[0].Local;
    d->DS[0].Remote.Data.AddressBits = p->at + far;
    d->DS[0].Remote.Handle = p->handle;
    d->DS[0].Remote.Reserved = 0;
    d->CS.SegCount = 2;
    return d;
}

/* The client writes and reads a region of the server, which has it registered for that alone. */
#define SIZE 102400

static void rdma_to(struct end *e, unsigned char *mem) {
    VIP_MEM_ATTRIBUTES a = {e->tag, VIP_TRUE, VIP_TRUE};
    struct place mine = {(uintptr_t)mem, 0}, there;
    VIP_DESCRIPTOR *d = descriptor(e), *r = descriptor(e);
    if (e->server) {
        OK(VipRegisterMem(e->nic, mem, SIZE, &a, &mine.handle));
    }
    swap(e, &mine, &there, sizeof mine);
    for (int level = VIP_SERVICE_RELIABLE_DELIVERY; level <= VIP_SERVICE_RELIABLE_RECEPTION;
         level *= 2) {
        VIP_VI_HANDLE vi = connected(e, level);
        if (e->server) {
            memset(mem, 0, SIZE);
            OK(VipPostRecv(vi, fill(e, r, 0, 0, 0), e->handle));
        }
        barrier(e);
        if (!e->server) {
            set(e->mem, SIZE, 3);
            remote(e, d, VIP_CONTROL_OP_RDMAWRITE, 0, SIZE, &there, 0);
            OK(VipPostSend(vi, d, e->handle));
            CHECK(sent(vi, VIP_SUCCESS) == d && d->CS.Length == SIZE);
            CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
            /* the last byte alone, with immediate data, which consumes the receive */
            e->mem[0] = 0x77;
            remote(e, d, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, 0, 1, &there, SIZE - 1);
            d->CS.ImmediateData = 4711;
            OK(VipPostSend(vi, d, e->handle));
            sent(vi, VIP_SUCCESS);
        } else {
            CHECK(received(vi, VIP_SUCCESS) == r && r->CS.ImmediateData == 4711);
            CHECK(r->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_REMOTE_RDMA_WRITE |
                                   VIP_STATUS_IMMEDIATE));
            CHECK(r->CS.Length == 1);
            CHECK(is(mem, SIZE - 1, 3) && mem[SIZE - 1] == 0x77);
            set(mem, SIZE, 5);
        }
        barrier(e);
        if (!e->server) { /* reads, the second behind the first */
            memset(e->mem, 0, SIZE);
            remote(e, d, VIP_CONTROL_OP_RDMAREAD, 0, SIZE, &there, 0);
            remote(e, r, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_QFENCE, 0, 64, &there, 0);
            OK(VipPostSend(vi, d, e->handle));
            OK(VipPostSend(vi, r, e->handle));
            CHECK(sent(vi, VIP_SUCCESS) == d && is(e->mem, SIZE, 5));
            CHECK(d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ));
            CHECK(sent(vi, VIP_SUCCESS) == r);
        }
        barrier(e);
        end_of(vi);
        barrier(e);
        forget_errors();
        /* What is refused: the status at the client, and the error at the server. */
        for (int k = 0; k < 6; k++) {
            static const VIP_UINT64 far[] = {1, 0, 0, 0, 0, 0};
            int read = k == 5, op = read ? VIP_CONTROL_OP_RDMAREAD : VIP_CONTROL_OP_RDMAWRITE;
            struct place p = there;
            VIP_VI_ATTRIBUTES va = attributes(e, level);
            char name[32];
            snprintf(name, sizeof name, "refused %d %d", level, k);
            va.EnableRdmaWrite = k != 2;
            va.EnableRdmaRead = k != 5;
            OK(VipCreateVi(e->nic, &va, NULL, NULL, &vi));
            if (e->server) {
                a.EnableRdmaWrite = k != 3;
                OK(VipSetMemAttributes(e->nic, mem, mine.handle, &a));
                if (k == 4) {
                    OK(VipPostRecv(vi, fill(e, r, 0, 0, 0), e->handle));
                }
            }
            connect_vi(e, vi, name);
            barrier(e);
            if (!e->server) {
                p.at += k == 4 ? 1 : far[k]; /* 0, 4: one byte behind the region */
                p.handle += k == 1 ? 1000 : 0;
                if (k == 4) {
                    op |= VIP_CONTROL_IMMEDIATE;
                }
                OK(VipPostSend(vi, remote(e, d, op, 0, SIZE, &p, 0), e->handle));
                CHECK(sent(vi, VIP_DESCRIPTOR_ERROR) == d);
                CHECK((d->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_RDMA_PROT_ERROR);
            } else if (k == 4) { /* the receive that it has consumed says so */
                CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == r);
                CHECK(r->CS.Status & VIP_STATUS_RDMA_PROT_ERROR);
                CHECK(error_count(VIP_ERROR_RDMAW_PROT) == 0);
            } else {
                VIP_ERROR_CODE code = read ? VIP_ERROR_RDMAR_PROT : VIP_ERROR_RDMAW_PROT;
                CHECK(await_error(code)->ViHandle == vi);
            }
            broken(vi);
            barrier(e);
            end_of(vi);
            forget_errors();
        }
        if (e->server) {
            a.EnableRdmaWrite = VIP_TRUE;
            OK(VipSetMemAttributes(e->nic, mem, mine.handle, &a));
        }
    }
    /* Unreliable VIs write, and have no reads. */
    VIP_VI_HANDLE vi = connected(e, VIP_SERVICE_UNRELIABLE);
    if (e->server) {
        memset(mem, 0, SIZE);
        OK(VipPostRecv(vi, fill(e, r, 0, 0, 0), e->handle));
    }
    barrier(e);
    if (!e->server) {
        OK(VipPostSend(vi, remote(e, d, VIP_CONTROL_OP_RDMAREAD, 0, 8, &there, 0), e->handle));
        CHECK(sent(vi, VIP_DESCRIPTOR_ERROR)->CS.Status & VIP_STATUS_FORMAT_ERROR);
        set(e->mem, SIZE, 8);
        OK(VipPostSend(vi, remote(e, d, VIP_CONTROL_OP_RDMAWRITE, 0, SIZE, &there, 0), e->handle));
        sent(vi, VIP_SUCCESS);
        OK(VipPostSend(vi, fill(e, d, 0, 0, 0), e->handle));
        sent(vi, VIP_SUCCESS);
    } else { /* a later message says that it is there */
        received(vi, VIP_SUCCESS);
        CHECK(is(mem, SIZE, 8));
    }
    barrier(e);
    if (e->server) { /* its bytes stay */
        OK(VipDeregisterMem(e->nic, mem, mine.handle));
        CHECK(is(mem, SIZE, 8));
    }
    barrier(e);
}

void rdma(struct end *e) { rdma_to(e, e->mem + (1 << 20)); }

/* Whole pages of the library's own. */
void pages(struct end *e) {
    unsigned char *mem = vmmcx_alloc(SIZE);
    CHECK(mem);
    rdma_to(e, mem);
    CHECK(vmmcx_free(mem) == 0);
}

/* Two pages that are registered, of which the program has protected the second since. */
static unsigned char *taken_away(struct end *e, int prot, VIP_MEM_HANDLE *h) {
    VIP_MEM_ATTRIBUTES a = {e->tag, VIP_TRUE, VIP_TRUE};
    unsigned char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    OK(VipRegisterMem(e->nic, p, 8192, &a, h));
    CHECK(mprotect(p + 4096, 4096, prot) == 0);
    return p;
}

/* Data in memory that is gone, or read-only: an operation fails, and neither process. */
void gone(struct end *e) {
    enum { SENDS, RECEIVES, WRITES_FROM, WRITES_TO, READS_FROM, READS_TO, ALL };
    VIP_DESCRIPTOR *d = descriptor(e), *r = descriptor(e);
    for (size_t l = 0; l < 3; l++) {
        for (int k = 0; k < ALL; k++) {
            int stores = k == RECEIVES || k == WRITES_TO || k == READS_TO;
            int passive = k == RECEIVES || k == WRITES_TO || k == READS_FROM;
            int reliable = levels[l] != VIP_SERVICE_UNRELIABLE;
            if (!reliable && k >= READS_FROM) {
                continue;
            }
            VIP_VI_HANDLE vi = connected(e, levels[l]);
            VIP_MEM_HANDLE h;
            unsigned char *p = taken_away(e, stores && l % 2 == 0 ? PROT_READ : PROT_NONE, &h);
            struct place mine = {(uintptr_t)p, h}, there;
            /* 8 bytes of the page that is there, and 8 more */
            int bad = e->server ? passive : !passive;
            VIP_MEM_HANDLE of = bad ? h : e->handle;
            uintptr_t at = (uintptr_t)(bad ? p + 4088 : e->mem);
            if (e->server) {
                fill(e, r, 0, 0, 16);
                r->DS[0].Local.Data.AddressBits = at;
                r->DS[0].Local.Handle = of;
                OK(VipPostRecv(vi, r, e->handle));
            }
            swap(e, &mine, &there, sizeof mine);
            if (!e->server) {
                if (k < WRITES_FROM) {
                    fill(e, d, 0, 0, 16);
                    d->DS[0].Local.Data.AddressBits = at;
                    d->DS[0].Local.Handle = of;
                } else {
                    int op = k < READS_FROM ? VIP_CONTROL_OP_RDMAWRITE : VIP_CONTROL_OP_RDMAREAD;
                    there.at += passive ? 4088 : 0;
                    remote(e, d, op, 0, 16, &there, 0);
                    d->DS[1].Local.Data.AddressBits = at;
                    d->DS[1].Local.Handle = of;
                }
                OK(VipPostSend(vi, d, e->handle));
                if (!passive) {
                    CHECK(sent(vi, VIP_DESCRIPTOR_ERROR) == d);
                    CHECK((d->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_PROTECTION_ERROR);
                } else if (k == READS_FROM) {
                    CHECK(sent(vi, VIP_DESCRIPTOR_ERROR) == d);
                    CHECK((d->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_RDMA_PROT_ERROR);
                }
            } else if (k == RECEIVES) {
                CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == r);
                CHECK((r->CS.Status & VIP_STATUS_ERROR_MASK) == VIP_STATUS_PROTECTION_ERROR);
            } else if (k == WRITES_TO) {
                CHECK(await_error(VIP_ERROR_RDMAW_PROT)->ViHandle == vi);
            } else if (k == READS_FROM) {
                CHECK(await_error(VIP_ERROR_RDMAR_PROT)->ViHandle == vi);
            }
            if (reliable) {
                broken(vi);
            } else {
                CHECK(state(vi) == VIP_STATE_CONNECTED);
            }
            barrier(e);
            end_of(vi);
            OK(VipDeregisterMem(e->nic, p, h));
            CHECK(munmap(p, 8192) == 0);
            barrier(e);
            forget_errors();
        }
    }
}

/* One completion queue for SENDs and receives of several VIs. */
void completions(struct end *e) {
    enum { N = 4 };
    VIP_VI_ATTRIBUTES a = attributes(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_VI_HANDLE vi[N], got, x;
    VIP_CQ_HANDLE cq, small;
    VIP_BOOLEAN recv;
    VIP_DESCRIPTOR *d, *in[N], *out[N];
    char name[32];
    OK(VipCreateCQ(e->nic, 2 * N, &cq));
    OK(VipCreateCQ(e->nic, 1, &small));
    WANT(VipCQDone(cq, &got, &recv), VIP_NOT_DONE);
    WANT(VipCQWait(cq, 0, &got, &recv), VIP_TIMEOUT);
    WANT(VipCQWait(cq, 20, &got, &recv), VIP_TIMEOUT);
    for (int i = 0; i < N; i++) {
        OK(VipCreateVi(e->nic, &a, cq, cq, &vi[i]));
        in[i] = fill(e, NULL, 0, (size_t)i * 64, 8);
        OK(VipPostRecv(vi[i], in[i], e->handle));
        snprintf(name, sizeof name, "cq %d", i);
        connect_vi(e, vi[i], name);
    }
    WANT(VipDestroyCQ(cq), VIP_ERROR_RESOURCE);
    WANT(VipSendWait(vi[0], 1, &d), VIP_INVALID_PARAMETER);
    WANT(VipRecvWait(vi[0], 1, &d), VIP_INVALID_PARAMETER);
    barrier(e);
    for (int i = 0; i < N; i++) { /* the sends are complete before anything looks */
        out[i] = fill(e, NULL, 0, 1024, 8);
        OK(VipPostSend(vi[i], out[i], e->handle));
    }
    barrier(e);
    int sends = 0, recvs = 0;
    for (int k = 0; k < 2 * N; k++) {
        if (k == 2) { /* larger while it holds entries, and not smaller than these */
            VIP_RETURN code = VipResizeCQ(cq, 1);
            CHECK(code == VIP_ERROR_RESOURCE || code == VIP_SUCCESS); /* some may be on the way */
            OK(VipResizeCQ(cq, 64));
        }
        OK(VipCQWait(cq, LIMIT, &got, &recv));
        int i = 0;
        while (i < N && vi[i] != got) {
            i++;
        }
        CHECK(i < N);
        if (recv) {
            OK(VipRecvDone(got, &d));
            CHECK(d == in[i]);
            recvs++;
        } else {
            OK(VipSendDone(got, &d));
            CHECK(d == out[i]);
            sends++;
        }
        CHECK(d->CS.Status & VIP_STATUS_DONE);
    }
    CHECK(sends == N && recvs == N);
    WANT(VipCQDone(cq, &got, &recv), VIP_NOT_DONE);
    barrier(e);
    /* Flushed descriptors have entries, too, and a resize below them is refused. */
    for (int i = 0; i < N; i++) {
        OK(VipPostRecv(vi[i], in[i], e->handle));
    }
    barrier(e);
    for (int i = 0; i < N; i++) {
        OK(VipDisconnect(vi[i]));
    }
    WANT(VipResizeCQ(cq, N - 1), VIP_ERROR_RESOURCE);
    OK(VipResizeCQ(cq, N));
    for (int i = 0; i < N; i++) {
        OK(VipCQDone(cq, &got, &recv));
        CHECK(recv);
        WANT(VipRecvDone(got, &d), VIP_DESCRIPTOR_ERROR);
        CHECK(d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
    }
    /* One that overflows tells so, and its descriptors are there. */
    forget_errors();
    OK(VipCreateVi(e->nic, &a, NULL, small, &x));
    OK(VipPostRecv(x, in[0], e->handle));
    OK(VipPostRecv(x, in[1], e->handle));
    OK(VipDisconnect(x));
    VIP_ERROR_DESCRIPTOR *err = await_error(VIP_ERROR_CATASTROPHIC);
    CHECK(err->CQHandle == small && err->ResourceCode == VIP_RESOURCE_CQ);
    WANT(VipRecvDone(x, &d), VIP_DESCRIPTOR_ERROR);
    WANT(VipRecvDone(x, &d), VIP_DESCRIPTOR_ERROR);
    CHECK(d == in[1]);
    OK(VipDestroyVi(x));
    OK(VipDestroyCQ(small));
    barrier(e);
    for (int i = 0; i < N; i++) {
        OK(VipDisconnect(vi[i]));
        OK(VipDestroyVi(vi[i]));
    }
    OK(VipDestroyCQ(cq));
    WANT(VipCQDone(cq, &got, &recv), VIP_INVALID_PARAMETER);
}

/* Handlers. They run one after another, on a thread of the library. */
static struct {
    int n;
    VIP_DESCRIPTOR *d[64];
    VIP_VI_HANDLE vi[64];
    void *context[64];
    VIP_NIC_HANDLE nic;
    pthread_t thread;
    int again; /* how often the handler is to set itself again */
    VIP_CQ_HANDLE cq;
} told;
static pthread_mutex_t told_mu = PTHREAD_MUTEX_INITIALIZER;

static int tell(void *context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    pthread_mutex_lock(&told_mu);
    CHECK(told.n < 64);
    told.d[told.n] = d;
    told.vi[told.n] = vi;
    told.context[told.n] = context;
    told.nic = n;
    told.thread = pthread_self();
    told.n++;
    int again = told.again > 0;
    told.again -= again;
    pthread_mutex_unlock(&told_mu);
    return again;
}

static void on_receive(void *context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    if (tell(context, n, vi, d)) {
        OK(VipRecvNotify(vi, context, on_receive));
    }
}

static void on_completion(void *context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_BOOLEAN recv) {
    VIP_DESCRIPTOR *d;
    OK(recv ? VipRecvDone(vi, &d) : VipSendDone(vi, &d));
    tell(context, n, vi, d);
}

static void leave(void *context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    tell(context, n, vi, d);
    pthread_exit(NULL);
}

static void await_told(int n) {
    for (int i = 0; i < LIMIT; i++) {
        pthread_mutex_lock(&told_mu);
        int enough = told.n >= n;
        pthread_mutex_unlock(&told_mu);
        if (enough) {
            CHECK(told.n == n);
            return;
        }
        nap();
    }
    fprintf(stderr, "%d handlers have run, and not %d\n", told.n, n);
    exit(1);
}

static void send_some(struct end *e, VIP_VI_HANDLE vi, int n) {
    static VIP_DESCRIPTOR *d;
    for (int i = 0; i < n; i++) {
        d = fill(e, d, 0, 2048, 8);
        OK(VipPostSend(vi, d, e->handle));
        CHECK(sent(vi, VIP_SUCCESS) == d);
    }
}

void notifies(struct end *e) {
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY), with;
    VIP_VI_ATTRIBUTES a = attributes(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_CQ_HANDLE cq;
    VIP_DESCRIPTOR *d[8];
    char contexts[2];
    for (int i = 0; i < 8; i++) {
        d[i] = fill(e, NULL, 0, (size_t)i * 64, 8);
        OK(VipPostRecv(vi, d[i], e->handle));
    }
    connect_vi(e, vi, "notify");
    OK(VipCreateCQ(e->nic, 8, &cq));
    OK(VipCreateVi(e->nic, &a, cq, cq, &with));
    WANT(VipRecvNotify(with, NULL, on_receive), VIP_INVALID_PARAMETER);
    WANT(VipSendNotify(with, NULL, on_receive), VIP_INVALID_PARAMETER);
    for (int i = 0; i < 2; i++) {
        OK(VipPostRecv(with, fill(e, NULL, 0, 1024, 8), e->handle));
    }
    connect_vi(e, with, "notify with a queue");
    if (!e->server) {
        barrier(e);
        send_some(e, vi, 2); /* two handlers are set */
        barrier(e);
        send_some(e, vi, 1); /* none is: the descriptor stays */
        barrier(e);
        send_some(e, vi, 3); /* one that sets itself twice */
        barrier(e);
        for (int i = 0; i < 2; i++) {
            OK(VipPostSend(with, fill(e, NULL, 0, 0, 8), e->handle));
        }
        barrier(e);
        return;
    }
    OK(VipRecvNotify(vi, &contexts[0], on_receive));
    OK(VipRecvNotify(vi, &contexts[1], on_receive));
    barrier(e);
    await_told(2);
    CHECK(told.d[0] == d[0] && told.d[1] == d[1] && told.context[0] == &contexts[0]);
    CHECK(told.context[1] == &contexts[1] && told.vi[0] == vi && told.nic == e->nic);
    CHECK(!pthread_equal(told.thread, pthread_self()));
    barrier(e);
    CHECK(received(vi, VIP_SUCCESS) == d[2] && told.n == 2); /* one shot */
    told.again = 2;
    OK(VipRecvNotify(vi, NULL, on_receive));
    barrier(e);
    await_told(5);
    CHECK(told.d[2] == d[3] && told.d[4] == d[5]);
    /* A completion that is there, of a SEND. The handler ends its thread: another takes over. */
    OK(VipPostSend(vi, fill(e, d[0], 0, 0, 8), e->handle));
    OK(VipSendNotify(vi, NULL, leave));
    await_told(6);
    CHECK(told.d[5] == d[0]);
    /* An empty queue is waited for. */
    OK(VipSendNotify(vi, NULL, on_receive));
    nap();
    OK(VipPostSend(vi, fill(e, d[0], 0, 0, 8), e->handle));
    await_told(7);
    /* Entries of a completion queue. */
    OK(VipCQNotify(cq, &contexts[0], on_completion));
    OK(VipCQNotify(cq, &contexts[1], on_completion));
    barrier(e);
    await_told(9);
    CHECK(told.context[7] == &contexts[0] && told.context[8] == &contexts[1]);
    CHECK(told.vi[8] == with);
    VIP_BOOLEAN recv;
    WANT(VipCQDone(cq, &vi, &recv), VIP_NOT_DONE);
    OK(VipCQNotify(cq, NULL, on_completion));
    OK(VipDisconnect(with));
    OK(VipDestroyVi(with));
    OK(VipDestroyCQ(cq)); /* cancels it */
    WANT(VipCQWait(cq, 1, &vi, &recv), VIP_INVALID_PARAMETER);
    barrier(e);
    CHECK(told.n == 9);
}

/* The other side disconnects, and the same VIs are connected again. */
void ends(struct end *e) {
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_DESCRIPTOR *d[3], *got;
    char name[32];
    for (int i = 0; i < 3; i++) {
        d[i] = descriptor(e);
    }
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 3; i++) {
            OK(VipPostRecv(vi, fill(e, d[i], 0, (size_t)i * 64, 8), e->handle));
        }
        snprintf(name, sizeof name, "ends %d", k);
        connect_vi(e, vi, name);
        barrier(e);
        if (e->server == (k & 1)) {
            OK(VipDisconnect(vi));
            CHECK(state(vi) == VIP_STATE_IDLE);
        } else {
            await_error_of(VIP_ERROR_CONN_LOST, vi);
            CHECK(state(vi) == VIP_STATE_ERROR);
        }
        for (int i = 0; i < 3; i++) {
            CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == d[i]);
            CHECK(d[i]->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
        }
        if (e->server != (k & 1)) { /* in state Error all is flushed at once */
            OK(VipPostRecv(vi, fill(e, d[0], 0, 0, 8), e->handle));
            WANT(VipRecvDone(vi, &got), VIP_DESCRIPTOR_ERROR);
            OK(VipPostSend(vi, fill(e, d[0], 0, 0, 8), e->handle));
            WANT(VipSendDone(vi, &got), VIP_DESCRIPTOR_ERROR);
            CHECK(got == d[0]);
            WANT(VipDestroyVi(vi), VIP_ERROR_RESOURCE);
            OK(VipDisconnect(vi));
            CHECK(state(vi) == VIP_STATE_IDLE);
        }
        forget_errors();
        barrier(e);
    }
    OK(VipDestroyVi(vi));
}

/* The server is killed by the test, when it has said that it is connected. */
void killed(struct end *e) {
    VIP_VI_HANDLE vi = new_vi(e, VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_DESCRIPTOR *d = fill(e, NULL, 0, 0, 8);
    OK(VipPostRecv(vi, d, e->handle));
    connect_vi(e, vi, "killed");
    if (e->server) {
        puts("connected");
        fflush(stdout);
        for (;;) {
            pause();
        }
    }
    CHECK(received(vi, VIP_DESCRIPTOR_ERROR) == d);
    CHECK(d->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
    await_error(VIP_ERROR_CONN_LOST);
    CHECK(state(vi) == VIP_STATE_ERROR);
    OK(VipDisconnect(vi));
    OK(VipDestroyVi(vi));
}
