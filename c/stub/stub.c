/*
 * A stand-in for libvmmc-go, for valgrind and the sanitizers, which cannot look into a Go runtime.
 * It has one node and one process, which imports its own exports. `make STUB=1` builds it in the
 * place of the Go part. It checks the C part of the library, and nothing else. Imports of exports
 * without a handler that are not redirectable have a mapped path. Its words are freed, and not left
 * to a collector, so that a use after the grace period is seen.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "boundary.h"
#include "vmmc.h"

#define API __attribute__((visibility("default")))
#define NODE 1
#define PID 4711
#define MANY 512
#define SLOT (1u << VMMCB_SLOT_SHIFT)
#define SLOTS 128 /* of an import; one more lies behind them */

API void vmmcgo_start(struct vmmcb_record *r);
API void vmmcgo_now(struct vmmcb_record *r);

static struct export_entry {
    uint64_t handle, at, size, id, handler, rights;
    uint64_t redir_off, redir_n, redir_to, redirected, first;
    int posted, redirectable;
    struct words *words; /* what C may use of it */
} exports[MANY];

struct words {
    struct vmmcb_end end;
    uint64_t last; /* the offset behind the last message, 0 for none */
};

static uint32_t importers_version = 1; /* no importer changes */

/* What Go has in its heap for an import, and the exporter in its page. */
struct mapped {
    struct vmmcb_path path;
    uint32_t state, sleepers, sleepers_any, link_ended, import_ended, closed;
    int32_t pending;
    uint64_t sleepers_at[VMMCB_BOARD_WORDS], last_seq, acked_seq;
    uint64_t lanes[VMMCB_LANES][VMMCB_COUNTERS];
};

static struct import_entry {
    uint64_t handle, id, begin;
    int pending, given;
    struct mapped *mapped;
} imports[MANY];

static struct job {
    uint64_t handler, at;
    uint32_t value;
} jobs[MANY];

static struct vmmcb_shared *shared;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_handle = 1, base, last_request;
static unsigned jobs_in, jobs_out;
static int in_handler, left_group;
static struct vmmcb_record *waiting; /* imports that wait for an export */
static struct vmmcb_record *idle;    /* the handlers' thread */
static void *memories[MANY];
static size_t memory_sizes[MANY];

static void finish(struct vmmcb_record *r, int code) {
    r->code = code;
    snprintf(r->text, sizeof r->text, "%s", code < 0 ? "the stub says no" : "");
    __atomic_store_n(&r->word, VMMCB_DONE, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &r->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static struct export_entry *export_of(uint64_t h) {
    for (int i = 0; i < MANY; i++) {
        if (h != 0 && exports[i].handle == h) {
            return &exports[i];
        }
    }
    return NULL;
}

static struct export_entry *export_with(uint64_t id) {
    for (int i = 0; i < MANY; i++) {
        if (exports[i].handle && exports[i].id == id) {
            return &exports[i];
        }
    }
    return NULL;
}

static uint64_t handle(uint64_t kind, uint64_t number) {
    return next_handle++ << 24 | kind << 20 | number;
}

static void set_slots(uint64_t begin, uint64_t n, uint32_t v) {
    for (uint64_t a = begin; n > 0; n--, a += SLOT) {
        uint32_t *leaf = shared->top[a >> VMMCB_TOP_SHIFT];
        __atomic_store_n(&leaf[a >> VMMCB_SLOT_SHIFT & (VMMCB_SLOTS - 1)], v, __ATOMIC_RELEASE);
    }
}

/* Each import has its slots: no export is longer. */
static int reserve(void) {
    size_t size = (SLOTS + 1) * MANY * (size_t)SLOT;
    char *p =
        mmap(NULL, size + SLOT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return -1;
    }
    base = ((uint64_t)(uintptr_t)p + SLOT - 1) & ~(uint64_t)(SLOT - 1);
    for (uint64_t i = base >> VMMCB_TOP_SHIFT; i <= (base + size - 1) >> VMMCB_TOP_SHIFT; i++) {
        void *leaf =
            mmap(NULL, VMMCB_SLOTS * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (leaf == MAP_FAILED) {
            return -1;
        }
        shared->top[i] = leaf;
    }
    set_slots(base, size / SLOT, VMMCB_NO_IMPORT);
    return 0;
}

/* All threads that may have loaded a path have left it: see struct vmmcb_epoch. */
static void await_grace(void) {
    if (!shared->barriers) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    }
    uint32_t used = __atomic_load_n(&shared->epochs_used, __ATOMIC_SEQ_CST);
    for (uint32_t k = 0; k < used; k++) {
        uint64_t seen = __atomic_load_n(&shared->epochs[k].now, __ATOMIC_SEQ_CST);
        while (seen & 1 && __atomic_load_n(&shared->epochs[k].now, __ATOMIC_SEQ_CST) == seen) {
            usleep(100);
        }
    }
}

static void *free_mapped(void *m) {
    await_grace();
    memset(m, 0xdb, sizeof(struct mapped)); /* for the thread sanitizer: a store that races */
    free(m);
    return NULL;
}

/* The calls of C that are under way do not hold the import's end up. */
static void close_mapped(struct import_entry *i) {
    if (i->mapped) {
        pthread_t t;
        __atomic_store_n(&shared->imports[i - imports + 1].path, NULL, __ATOMIC_SEQ_CST);
        __atomic_store_n(&i->mapped->closed, 1, __ATOMIC_SEQ_CST);
        if (pthread_create(&t, NULL, free_mapped, i->mapped) == 0) {
            pthread_detach(t);
        }
        i->mapped = NULL;
    }
}

/* Lets C read the end of data. */
static void give_end(struct export_entry *e) {
    struct vmmcb_end *end = &e->words->end;
    if (end->handle == 0) {
        end->handle = e->handle;
        end->size = e->size;
        end->at = importers_version;
        end->version = e->redirectable ? &importers_version : NULL;
        end->last = &e->words->last;
        __atomic_store_n(&shared->exports[e->handle % VMMCB_EXPORTS].end, end, __ATOMIC_SEQ_CST);
    }
}

static void *free_words(void *words) {
    await_grace();
    memset(words, 0xdb, sizeof(struct words));
    free(words);
    return NULL;
}

static void take_end(struct export_entry *e) {
    pthread_t t;
    __atomic_store_n(&shared->exports[e->handle % VMMCB_EXPORTS].end, NULL, __ATOMIC_SEQ_CST);
    if (pthread_create(&t, NULL, free_words, e->words) == 0) {
        pthread_detach(t);
    }
}

static void open_mapped(struct import_entry *i, struct export_entry *e) {
    struct vmmcb_import *c = &shared->imports[i - imports + 1];
    struct mapped *m = e->handler || e->redirectable ? NULL : calloc(1, sizeof *m);
    if (!m) {
        return;
    }
    m->state = 1;
    m->path = (struct vmmcb_path){
        .handle = i->handle, .begin = i->begin, .size = e->size,
        .rights = (uint32_t)e->rights, .alive = 1,
        .mem = (unsigned char *)(uintptr_t)e->at, .state = &m->state, .sleepers = &m->sleepers,
        .sleepers_any = &m->sleepers_any, .sleepers_at = m->sleepers_at, .pending = &m->pending,
        .last_seq = &m->last_seq, .acked_seq = &m->acked_seq, .link_ended = &m->link_ended,
        .import_ended = &m->import_ended, .closed = &m->closed, .lanes = m->lanes,
    };
    i->mapped = m;
    __atomic_store_n(&c->path, &m->path, __ATOMIC_SEQ_CST);
}

static void open_import(struct import_entry *i, struct export_entry *e) {
    uint32_t number = (uint32_t)(i - imports) + 1;
    struct vmmcb_import *c = &shared->imports[number];
    i->begin = base + (uint64_t)(i - imports) * (SLOTS + 1) * SLOT;
    __atomic_store_n(&c->begin, i->begin, __ATOMIC_RELEASE);
    __atomic_store_n(&c->size, e->size, __ATOMIC_RELEASE);
    __atomic_store_n(&c->mapped, 1, __ATOMIC_RELEASE);
    open_mapped(i, e);
    __atomic_store_n(&c->handle, i->handle, __ATOMIC_RELEASE);
    set_slots(i->begin, (e->size + SLOT - 1) / SLOT, number);
    i->pending = 0;
}

static struct import_entry *new_import(uint64_t id) {
    for (int i = 0; i < MANY; i++) {
        if (!imports[i].handle) {
            imports[i] =
                (struct import_entry){.handle = handle(1, (uint64_t)i + 1), .id = id, .pending = 1};
            return &imports[i];
        }
    }
    return NULL;
}

static struct import_entry *import_of(uint64_t h) {
    for (int i = 0; i < MANY; i++) {
        if (h != 0 && imports[i].handle == h) {
            return &imports[i];
        }
    }
    return NULL;
}

static void give_import(struct vmmcb_record *r, struct import_entry *i, struct export_entry *e) {
    i->given = 1;
    r->out[0] = i->handle;
    r->out[1] = i->begin;
    r->out[2] = e->size;
}

/* No handler runs, or is about to. */
static void leave_gate(void) {
    if (__atomic_exchange_n(&shared->running, VMMCB_IDLE, __ATOMIC_SEQ_CST) == VMMCB_AWAITED) {
        syscall(SYS_futex, &shared->running, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

static int blocked(void) { return __atomic_load_n(&shared->levels, __ATOMIC_SEQ_CST) != 0; }

/* Reports whether a handler may begin: see struct vmmcb_shared. Otherwise C writes to `event`. */
static int enter_gate(void) {
    do {
        __atomic_store_n(&shared->running, VMMCB_RUNNING, __ATOMIC_SEQ_CST);
        if (!blocked()) {
            __atomic_store_n(&shared->pending, 0, __ATOMIC_SEQ_CST);
            return 1;
        }
        leave_gate();
        __atomic_store_n(&shared->pending, 1, __ATOMIC_SEQ_CST);
    } while (!blocked());
    return 0;
}

static void give_job(void) {
    if (idle && !in_handler && jobs_out != jobs_in && enter_gate()) {
        struct vmmcb_record *r = idle;
        struct job *j = &jobs[jobs_out++ % MANY];
        idle = NULL;
        in_handler = 1;
        r->out[0] = j->handler;
        r->out[1] = j->at;
        r->out[2] = j->value;
        int fd = (int)r->in[0] - 1;
        uint64_t one = 1;
        finish(r, 0);
        if (fd >= 0 && write(fd, &one, sizeof one) != sizeof one) {
            abort();
        }
    }
}

static void store(struct export_entry *e, uint64_t off, const void *src, uint64_t n, int note) {
    char *at = (char *)(uintptr_t)e->at + off;
    uint32_t last;
    memcpy(&last, (const char *)src + n - 4, 4);
    if (e->posted && !e->redirected && off >= e->redir_off &&
        off + n <= e->redir_off + e->redir_n) {
        e->first = off - e->redir_off;
        e->redirected = n;
        at = (char *)(uintptr_t)e->redir_to + e->first;
    }
    memmove(at, src, n - 4);
    __atomic_store_n((uint32_t *)(void *)(at + n - 4), last, __ATOMIC_SEQ_CST);
    if (e->redirectable) {
        __atomic_store_n(&e->words->last, off + n, __ATOMIC_SEQ_CST);
    }
    if (note && e->handler) {
        jobs[jobs_in++ % MANY] = (struct job){e->handler, (uint64_t)(uintptr_t)(at + n - 4), last};
        give_job();
    }
}

/* Waits for words, which serve() looks at every few milliseconds. */
static struct wait {
    struct vmmcb_record *r;
    int64_t until; /* in milliseconds */
} waits[MANY];
static int waits_pending;

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int word_code(const struct wait *w) {
    if (__atomic_load_n((uint32_t *)(uintptr_t)w->r->in[0], __ATOMIC_SEQ_CST) !=
        (uint32_t)w->r->in[1]) {
        return 0;
    }
    struct import_entry *from = w->r->in[3] ? import_of(w->r->in[4]) : NULL;
    if (w->r->in[3] && (!from || !export_with(from->id))) {
        return vmmcErr_Revoked;
    }
    return w->r->in[2] != UINT64_MAX && now_ms() >= w->until ? vmmcErr_Timeout : VMMCB_WOULD_WAIT;
}

static void end_wait(struct wait *w, int code) {
    struct vmmcb_record *r = w->r;
    w->r = NULL;
    waits_pending--;
    finish(r, code);
}

static void check_waits(void) {
    for (int k = 0; k < MANY; k++) {
        int code = waits[k].r ? word_code(&waits[k]) : VMMCB_WOULD_WAIT;
        if (code != VMMCB_WOULD_WAIT) {
            end_wait(&waits[k], code);
        }
    }
}

static int wait_word(struct vmmcb_record *r) {
    int exported = 0;
    for (int k = 0; k < MANY; k++) {
        exported |= exports[k].handle && r->in[0] >= exports[k].at &&
                    r->in[0] < exports[k].at + exports[k].size;
    }
    if (!exported) {
        return vmmcErr_BadArg;
    }
    if (r->in_handler) {
        return vmmcErr_NotInHandler;
    }
    if (r->in[3] && !import_of(r->in[4])) {
        return (r->in[4] >> 20 & 15) == 1 ? vmmcErr_BadIbufState : vmmcErr_BadArg;
    }
    if (r->in[5] != 0) {
        return r->in[5] == VMMCB_CHECK ? 0 : VMMCB_WOULD_WAIT;
    }
    for (int k = 0; k < MANY; k++) {
        if (!waits[k].r) {
            waits[k] = (struct wait){r, now_ms() + (int64_t)(r->in[2] & INT32_MAX)};
            waits_pending++;
            check_waits();
            return VMMCB_WOULD_WAIT;
        }
    }
    return vmmcErr_NoMem;
}

/* The memory that n bytes at an address in DestSpace stand for, or NULL. */
static void *far_memory(uint64_t a, uint64_t n, int *code) {
    *code = vmmcErr_BadProxyAddr;
    for (int k = 0; k < MANY; k++) {
        if (imports[k].handle && imports[k].begin && a >= imports[k].begin &&
            a < imports[k].begin + SLOT) {
            struct export_entry *e = export_with(imports[k].id);
            if (!e) {
                *code = vmmcErr_Revoked;
                return NULL;
            }
            if (a - imports[k].begin + n > e->size) {
                return NULL;
            }
            *code = 0;
            return (void *)(uintptr_t)(e->at + (a - imports[k].begin));
        }
    }
    return NULL;
}

static int change(struct vmmcb_record *r) {
    int code;
    char *at = far_memory(r->in[0], r->in[1], &code);
    if (!at) {
        return code;
    }
    if ((uintptr_t)at % r->in[1] != 0) {
        return vmmcErr_BadAlignment;
    }
    uint64_t *wide = (uint64_t *)(void *)at;
    uint32_t *narrow = (uint32_t *)(void *)at;
    uint64_t old = r->in[1] == 8 ? *wide : *narrow, value = r->in[3];
    if (r->in[2] == VMMCB_FETCH_ADD) {
        value += old;
    } else if (r->in[2] == VMMCB_COMPARE_AND_SWAP && old != r->in[4]) {
        value = old;
    }
    if (r->in[1] == 8) {
        __atomic_store_n(wide, value, __ATOMIC_SEQ_CST); /* under mu, as all stores of this file */
    } else {
        __atomic_store_n(narrow, (uint32_t)value, __ATOMIC_SEQ_CST);
    }
    r->out[0] = old;
    return 0;
}

/*
 * Completion queues of libvipl. They stay empty, and each has a NIC of its own with one link. A
 * resize replaces that link.
 */
struct vip_links {
    struct vmmcb_vip_links all;
    struct vmmcb_vip_link one;
    uint32_t words[4];
};

static struct vip_cq {
    struct vmmcb_vip_poll poll;
    struct vmmcb_vip_news news;
    int32_t count;
} *vip_cqs[MANY];

static void *free_vip_cq(void *m) {
    await_grace();
    memset(m, 0xdb, sizeof(struct vip_cq));
    free(m);
    return NULL;
}

static void *free_vip_links(void *m) {
    await_grace();
    memset(m, 0xdb, sizeof(struct vip_links));
    free(m);
    return NULL;
}

static void free_later(void *(*f)(void *), void *m) {
    pthread_t t;
    if (m && pthread_create(&t, NULL, f, m) == 0) {
        pthread_detach(t);
    }
}

static void replace_vip_links(struct vip_cq *q, struct vip_links *next) {
    if (next) {
        uint32_t *w = next->words;
        next->one = (struct vmmcb_vip_link){&w[0], &w[1], &w[2], &w[3]};
        next->all = (struct vmmcb_vip_links){1, &next->one};
    }
    const void *before = q->news.links; /* `all` is the first member */
    __atomic_store_n(&q->news.links, next ? &next->all : NULL, __ATOMIC_SEQ_CST);
    free_later(free_vip_links, (void *)(uintptr_t)before);
}

/* Like run, but the outcome is VIPL's, in out[0]. */
static int run_vipl(struct vmmcb_record *r) {
    enum { NOT_DONE = 1, INVALID_PARAMETER = 2 }; /* as vipl.h has them */
    uint64_t k = r->in[0] & 0xfffff;
    struct vip_cq *q = k < MANY ? vip_cqs[k] : NULL;
    r->out[0] = INVALID_PARAMETER;
    switch (r->op) {
    case VMMCB_VIP_OPEN:
        r->out[1] = handle(2, 1);
        r->out[0] = 0;
        return 0;
    case VMMCB_VIP_CLOSE:
        r->out[0] = 0;
        return 0;
    case VMMCB_VIP_NEW_CQ:
        for (k = 1; k < MANY && vip_cqs[k]; k++) {
        }
        if (k < MANY && (q = calloc(1, sizeof *q)) != NULL) {
            vip_cqs[k] = q;
            q->poll.handle = r->out[1] = handle(5, k);
            q->poll.news = &q->news;
            q->poll.queue[0].complete = &q->count;
            replace_vip_links(q, calloc(1, sizeof(struct vip_links)));
            __atomic_store_n(&shared->vip_cqs[k], &q->poll, __ATOMIC_SEQ_CST);
            r->out[0] = 0;
        }
        return 0;
    case VMMCB_VIP_TAKE_CQ:
        r->out[0] = q && q->poll.handle == r->in[0] ? NOT_DONE : INVALID_PARAMETER;
        return 0;
    case VMMCB_VIP_RESIZE_CQ:
        replace_vip_links(q, calloc(1, sizeof(struct vip_links)));
        r->out[0] = 0;
        return 0;
    case VMMCB_VIP_END_CQ:
        replace_vip_links(q, NULL);
        __atomic_store_n(&shared->vip_cqs[k], NULL, __ATOMIC_SEQ_CST);
        vip_cqs[k] = NULL;
        free_later(free_vip_cq, q);
        r->out[0] = 0;
        return 0;
    }
    return vmmcErr_BadConfig;
}

/* The code of an operation, or VMMCB_WOULD_WAIT if it stays pending. mu is held. */
static int run(struct vmmcb_record *r) {
    int code;
    uint64_t end;
    if (r->op >= VMMCB_VIPL) {
        return run_vipl(r);
    }
    struct export_entry *e;
    struct import_entry *i;
    switch (r->op) {
    case VMMCB_SELF:
        r->out[0] = NODE;
        r->out[1] = PID;
        r->data_len = (uint32_t)snprintf((char *)r->data, r->data_cap, "stub") + 1;
        return 0;
    case VMMCB_HOSTS:
        r->out[0] = 1;
        memcpy(r->data, &(uint64_t){NODE}, 8);
        r->data_len = 8;
        return 0;
    case VMMCB_FIND_NODE:
        r->out[0] = NODE;
        return r->data_len == 4 && memcmp(r->data, "stub", 4) == 0 ? 0 : vmmcErr_NoSuchNode;
    case VMMCB_NODE_NAME:
        r->data_len = (uint32_t)snprintf((char *)r->data, r->data_cap, "stub") + 1;
        return r->in[0] == NODE ? 0 : vmmcErr_NoSuchNode;
    case VMMCB_PARENT:
        return vmmcErr_NoParent;
    case VMMCB_SPAWN:
        return r->in[0] != NODE ? vmmcErr_NoSuchNode : vmmcErr_BadArg;
    case VMMCB_DEBUG:
        return 0;
    case VMMCB_ALLOC:
        if (r->in[0] == 0 || r->in[0] % 4 || r->in[0] > 1 << 30) {
            return vmmcErr_BadSize;
        }
        for (int k = 0; k < MANY; k++) {
            if (!memories[k]) {
                void *p =
                    mmap(NULL, r->in[0], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                if (p == MAP_FAILED) {
                    return vmmcErr_NoMem;
                }
                memories[k] = p;
                memory_sizes[k] = r->in[0];
                r->out[0] = (uintptr_t)p;
                return 0;
            }
        }
        return vmmcErr_NoMem;
    case VMMCB_FREE:
        for (int k = 0; k < MANY; k++) {
            if (memories[k] && (uintptr_t)memories[k] == r->in[0]) {
                for (int j = 0; j < MANY; j++) {
                    if (exports[j].handle && exports[j].at >= r->in[0] &&
                        exports[j].at < r->in[0] + memory_sizes[k]) {
                        return vmmcErr_BadRbufState;
                    }
                }
                munmap(memories[k], memory_sizes[k]);
                memories[k] = NULL;
                return 0;
            }
        }
        return vmmcErr_BadArg;
    case VMMCB_EXPORT:
        if (r->in[1] > (uint64_t)SLOTS * SLOT) {
            return vmmcErr_NoMem;
        }
        if (export_with(r->in[2])) {
            return vmmcErr_BufAlreadyExists;
        }
        e = NULL;
        for (int k = 0; k < MANY; k++) {
            if (!exports[k].handle) {
                e = e ? e : &exports[k];
            } else if (r->in[0] < exports[k].at + exports[k].size &&
                       exports[k].at < r->in[0] + r->in[1]) {
                return vmmcErr_OverlappedBufs;
            }
        }
        if (r->in[4] & VMMCB_EXPORT_GLOBAL) {
            int found = 0;
            for (int k = 0; k < MANY; k++) {
                found |= memories[k] && (uintptr_t)memories[k] == r->in[0];
            }
            if (!found) {
                return vmmcErr_BadArg;
            }
        }
        struct words *words = e ? calloc(1, sizeof *words) : NULL;
        if (!words) {
            return vmmcErr_NoMem;
        }
        *e = (struct export_entry){.words = words,
                                   .handle = handle(0xe, (uint64_t)(e - exports) + 1),
                                   .at = r->in[0],
                                   .size = r->in[1],
                                   .id = r->in[2],
                                   .handler = r->in[3],
                                   .redirectable = (r->in[4] & VMMCB_EXPORT_REDIRECTABLE) != 0,
                                   .rights = r->in[4] & (VMMCB_EXPORT_READ | VMMCB_EXPORT_WRITE)};
        r->out[0] = e->handle;
        for (struct vmmcb_record **w = &waiting; *w;) {
            struct vmmcb_record *q = *w;
            if (q->in[2] == e->id && (i = new_import(e->id))) {
                *w = q->next;
                open_import(i, e);
                give_import(q, i, e);
                finish(q, 0);
            } else {
                w = &q->next;
            }
        }
        return 0;
    case VMMCB_UNEXPORT:
    case VMMCB_DATA_END:
    case VMMCB_CLEAR_END:
    case VMMCB_POST_REDIR:
    case VMMCB_END_REDIR:
        e = export_of(r->in[0]);
        if (!e) {
            return (r->in[0] >> 20 & 15) == 0xe ? vmmcErr_BadRbufState : vmmcErr_BadArg;
        }
        switch (r->op) {
        case VMMCB_UNEXPORT:
            __atomic_fetch_add(&shared->ended, 1, __ATOMIC_SEQ_CST);
            if (blocked() && jobs_in != jobs_out) {
                return vmmcErr_BlockedNotifications;
            }
            for (int k = 0; k < MANY; k++) {
                if (imports[k].mapped && imports[k].id == e->id) {
                    __atomic_store_n(&imports[k].mapped->state, 2, __ATOMIC_SEQ_CST);
                }
            }
            take_end(e);
            e->handle = 0;
            return 0;
        case VMMCB_DATA_END:
            give_end(e);
            end = __atomic_load_n(&e->words->last, __ATOMIC_SEQ_CST);
            r->out[0] = end / 4 - 1;
            return end != 0 ? 0 : vmmcErr_NoSuchError;
        case VMMCB_CLEAR_END:
            give_end(e);
            __atomic_store_n(&e->words->last, 0, __ATOMIC_SEQ_CST);
            return 0;
        case VMMCB_POST_REDIR:
            if (!e->redirectable) {
                return vmmcErr_NotRedirectable;
            }
            if (e->posted) {
                return vmmcErr_BadRbufState;
            }
            e->posted = 1;
            e->redirected = e->first = 0;
            e->redir_off = r->in[1];
            e->redir_n = r->in[2];
            e->redir_to = r->in[3];
            return 0;
        default:
            if (!e->posted) {
                return vmmcErr_BadRbufState;
            }
            e->posted = 0;
            r->out[0] = e->redirected;
            r->out[1] = e->first;
            return 0;
        }
    case VMMCB_IMPORT:
    case VMMCB_IMPORT_BEGIN:
        if (r->in_handler) {
            return vmmcErr_NotInHandler;
        }
        if (r->in[0] != NODE) {
            return vmmcErr_NoSuchNode;
        }
        if (r->in[1] != PID) {
            return vmmcErr_NoSuchProcess;
        }
        e = export_with(r->in[2]);
        if (r->op == VMMCB_IMPORT_BEGIN) {
            i = new_import(r->in[2]);
            r->out[0] = i ? i->handle : 0;
            return i ? 0 : vmmcErr_NoMem;
        }
        if (!e) {
            r->next = waiting;
            waiting = r;
            return VMMCB_WOULD_WAIT;
        }
        i = new_import(e->id);
        if (!i) {
            return vmmcErr_NoMem;
        }
        open_import(i, e);
        give_import(r, i, e);
        return 0;
    case VMMCB_IMPORT_STATE:
        i = import_of(r->in[0]);
        if (!i) {
            return vmmcErr_BadAsyncHandle;
        }
        if (i->given) {
            return vmmcErr_StaleHandle;
        }
        e = export_with(i->id);
        if (!e) {
            return vmmcErr_InProgress;
        }
        open_import(i, e);
        give_import(r, i, e);
        return 0;
    case VMMCB_UNIMPORT:
        __atomic_fetch_add(&shared->ended, 1, __ATOMIC_SEQ_CST);
        i = import_of(r->in[0]);
        if (!i) {
            return (r->in[0] >> 20 & 15) == 1 ? vmmcErr_BadIbufState : vmmcErr_BadArg;
        }
        if (i->begin) {
            close_mapped(i);
            set_slots(i->begin, SLOTS, VMMCB_NO_IMPORT);
            __atomic_store_n(&shared->imports[i - imports + 1].handle, 0, __ATOMIC_RELEASE);
        }
        i->handle = i->begin = 0;
        return 0;
    case VMMCB_SEND:
    case VMMCB_GET:
        i = import_of(r->in[1]);
        e = i ? export_with(i->id) : NULL;
        if (!e) {
            return i ? vmmcErr_Revoked : vmmcErr_BadProxyAddr;
        }
        if (!(e->rights & (r->op == VMMCB_GET ? VMMCB_EXPORT_READ : VMMCB_EXPORT_WRITE))) {
            return vmmcErr_NoRights;
        }
        if (r->op == VMMCB_GET) {
            memcpy((void *)(uintptr_t)r->in[3], (void *)(uintptr_t)(e->at + r->in[2]), r->in[4]);
        } else {
            store(e, r->in[2], (void *)(uintptr_t)r->in[3], r->in[4], r->in[5] & VMMCB_NOTIFY);
        }
        if (r->in[5] & VMMCB_ASYNC) {
            r->out[0] = ++last_request;
        }
        return 0;
    case VMMCB_FINISH: /* a check after the last word has failed */
        return vmmcErr_OutcomeUnknown;
    case VMMCB_STATUS:
        return r->in[0] != 0 && r->in[0] <= last_request ? 0 : vmmcErr_BadAsyncHandle;
    case VMMCB_FENCE_AT:
        return far_memory(r->in[0], 0, &code) ? 0 : code;
    case VMMCB_ATOMIC:
        return change(r);
    case VMMCB_WAIT_WORD:
        return wait_word(r);
    case VMMCB_MAP: /* the stub carries nothing over */
        return far_memory(r->in[2], r->in[1], &code) ? vmmcErr_BadArg : code;
    case VMMCB_UNMAP:
    case VMMCB_FLUSH:
        return vmmcErr_BadArg;
    case VMMCB_EVENT:
        return vmmcErr_Timeout;
    case VMMCB_PUBLISH:
    case VMMCB_UNPUBLISH:
        if (!export_of(r->in[0])) {
            return (r->in[0] >> 20 & 15) == 0xe ? vmmcErr_BadRbufState : vmmcErr_BadArg;
        }
        return r->data_len == 0 ? vmmcErr_BadName : 0;
    case VMMCB_IMPORT_NAME: /* the stub forgets names */
        return r->data_len == 0 ? vmmcErr_BadName : vmmcErr_Timeout;
    case VMMCB_GROUP:
        r->out[1] = 1;
        return left_group ? vmmcErr_Closed : 0;
    case VMMCB_MEMBER:
        r->out[0] = NODE;
        r->out[1] = PID;
        return r->in[0] == 0 ? 0 : vmmcErr_BadArg;
    case VMMCB_BARRIER:
        return left_group ? vmmcErr_Closed : 0;
    case VMMCB_LEAVE:
        left_group = 1;
        return 0;
    }
    return vmmcErr_BadConfig;
}

static void queued(struct vmmcb_record *r) {
    if (r->op == VMMCB_CANCEL) {
        for (int k = 0; k < MANY; k++) {
            if (waits[k].r && (uintptr_t)waits[k].r == r->in[0]) {
                end_wait(&waits[k], vmmcErr_Canceled);
            }
        }
        for (struct vmmcb_record **w = &waiting; *w; w = &(*w)->next) {
            if ((uintptr_t)*w == r->in[0]) {
                struct vmmcb_record *q = *w;
                *w = q->next;
                finish(q, vmmcErr_Canceled);
                break;
            }
        }
        finish(r, 0);
    } else if (r->op == VMMCB_HANDLERS) {
        idle = r;
        in_handler = 0;
        leave_gate();
        give_job();
    } else {
        int code = run(r);
        if (code != VMMCB_WOULD_WAIT) {
            finish(r, code);
        }
    }
}

static void *serve(void *unused) {
    (void)unused;
    for (;;) {
        struct pollfd p = {shared->event, POLLIN, 0};
        uint64_t n;
        pthread_mutex_lock(&mu);
        check_waits();
        int pending = waits_pending;
        pthread_mutex_unlock(&mu);
        poll(&p, 1, pending ? 2 : -1);
        if (read(shared->event, &n, sizeof n) != sizeof n) {
            continue;
        }
        struct vmmcb_record *r = __atomic_exchange_n(&shared->head, NULL, __ATOMIC_SEQ_CST),
                            *list = NULL;
        while (r) {
            struct vmmcb_record *next = r->next;
            r->next = list;
            list = r;
            r = next;
        }
        pthread_mutex_lock(&mu);
        while (list) {
            r = list;
            list = r->next;
            queued(r);
        }
        give_job(); /* which a level of blocking may have held back */
        pthread_mutex_unlock(&mu);
    }
    return NULL;
}

void vmmcgo_start(struct vmmcb_record *r) {
    pthread_t t;
    shared = (struct vmmcb_shared *)(uintptr_t)r->in[0];
    r->code = shared->layout != VMMC_LAYOUT ? vmmcErr_BadConfig : 0;
    shared->joined = 1;
    shared->barriers =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
    if (r->code == 0 && (reserve() != 0 || pthread_create(&t, NULL, serve, NULL) != 0)) {
        r->code = vmmcErr_NoMem;
    }
}

void vmmcgo_now(struct vmmcb_record *r) {
    pthread_mutex_lock(&mu);
    r->code = run(r);
    pthread_mutex_unlock(&mu);
}
