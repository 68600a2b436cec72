/*
 * Loading of libvmmc-go, at the first call that needs it. Nothing of it happens before: a program
 * that forks first, as daemons do, has two processes that load it each for itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core.h"

#define GO_PART "vmmc/libvmmc-go.so"

#define CHILD \
    "this process was forked from one that uses vmmc: call exec, or fork before the first call"

#define NEEDED_SPACE (5ull << 29) /* address space that the Go runtime reserves, with a margin */
#define NEEDED_THREADS 8

struct vmmcb_shared *vmmc_shared;
void (*vmmc_go_now)(struct vmmcb_record *);

/*
 * A page that the kernel empties in a child of fork, vfork's not counted. `alive` is 1 in the
 * process that made it.
 */
struct alive {
    _Atomic uint32_t alive;
};
static _Atomic(struct alive *) alive;

static int begun;          /* reports whether dlopen of the Go part has begun */
static _Atomic int loaded; /* 1 from the end of a successful load on */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static int failed(char *why, int code, const char *text) {
    snprintf(why, VMMCB_TEXT, "%s", text);
    return code;
}

static const uint32_t not_loaded;
const uint32_t *vmmc_live = &not_loaded;

int vmmc_loaded(void) { return atomic_load_explicit(&loaded, memory_order_acquire); }

/* Returns 0, or an error with its text in `why`. */
static int make_alive(char *why) {
    struct alive *a = atomic_load(&alive);
    if (a) {
        return 0;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    a = vmmc_map(page);
    if (!a || madvise(a, page, MADV_WIPEONFORK) != 0) {
        if (a) {
            munmap(a, page);
        }
        return failed(why, vmmcErr_NoMem, "load vmmc: no memory for a page that fork empties");
    }
    atomic_store(&a->alive, 1);
    struct alive *none = NULL;
    if (!atomic_compare_exchange_strong(&alive, &none, a)) {
        munmap(a, page);
    }
    return 0;
}

/* Reports whether the executable is a Go program: it has a note with Go's build id. */
static int is_go(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type != PT_NOTE) {
            continue;
        }
        const char *p = (const char *)(info->dlpi_addr + ph->p_vaddr), *end = p + ph->p_memsz;
        while ((size_t)(end - p) >= sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *n = (const void *)p;
            size_t name = (n->n_namesz + 3u) & ~(size_t)3, desc = (n->n_descsz + 3u) & ~(size_t)3;
            p += sizeof *n;
            if (name + desc > (size_t)(end - p)) {
                break;
            }
            if (n->n_type == 4 && n->n_namesz == 4 && memcmp(p, "Go\0", 4) == 0) {
                *(int *)found = 1;
            }
            p += name + desc;
        }
    }
    return 1; /* the executable is the first object, and the only one of interest */
}

static void *wait_for_release(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Go ends the process when it gets no thread or no address space: so both are tried before. */
static int check_limits(char *why) {
    struct rlimit as;
    if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY) {
        void *p = mmap(NULL, NEEDED_SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
        if (p == MAP_FAILED) {
            return failed(why, vmmcErr_NoMem,
                          "load vmmc: it needs 2.5 GiB of address space: raise ulimit -v");
        }
        munmap(p, NEEDED_SPACE);
    }
    pthread_t threads[NEEDED_THREADS];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int n = 0;
    pthread_mutex_lock(&gate);
    while (n < NEEDED_THREADS && pthread_create(&threads[n], NULL, wait_for_release, &gate) == 0) {
        n++;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    if (n < NEEDED_THREADS) {
        return failed(why, vmmcErr_NoMem,
                      "load vmmc: it needs 8 more threads: raise ulimit -u or the memory limit");
    }
    return 0;
}

/* dlopen of one place, if a file is there. */
static void *open_at(const char *path, char *why, int *code) {
    if (*code != 0 || access(path, F_OK) != 0) {
        return NULL;
    }
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *cause = dlerror();
        snprintf(why, VMMCB_TEXT, "load %.80s: %.150s", path, cause ? cause : "no reason given");
        *code = vmmcErr_BadConfig;
    }
    return lib;
}

/* The Go part lies beside this library, or where the environment or `make` said. */
static void *open_go(char *why, int *code) {
    char path[PATH_MAX];
    Dl_info here;
    void *lib = NULL;
    const char *named = secure_getenv("VMMC_GO_LIBRARY"), *slash;
    if (dladdr((void *)vmmc_ErrorStr, &here) && here.dli_fname &&
        (slash = strrchr(here.dli_fname, '/'))) {
        int dir = (int)(slash - here.dli_fname);
        if (snprintf(path, sizeof path, "%.*s/" GO_PART, dir, here.dli_fname) <
            (int)sizeof path) {
            lib = open_at(path, why, code);
        }
    }
    if (!lib && named) {
        lib = open_at(named, why, code);
    }
    if (!lib) {
        lib = open_at(VMMC_LIBDIR "/" GO_PART, why, code);
    }
    if (!lib && *code == 0) {
        begun = 0;
        *code = failed(why, vmmcErr_BadConfig,
                       "load vmmc: no " GO_PART " beside libvmmc or in " VMMC_LIBDIR
                       ": install it, or name it by VMMC_GO_LIBRARY");
    }
    return lib;
}

static struct vmmcb_shared *make_shared(void) {
    struct vmmcb_shared *s = vmmc_map(sizeof *s);
    if (!s) {
        return NULL;
    }
    s->layout = VMMC_LAYOUT;
    s->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->top = vmmc_map(VMMCB_TOPS * sizeof *s->top);
    s->imports = vmmc_map((size_t)VMMCB_IMPORTS * sizeof *s->imports);
    s->exports = vmmc_map((size_t)VMMCB_EXPORTS * sizeof *s->exports);
    s->epochs = vmmc_map((size_t)VMMCB_EPOCHS * sizeof *s->epochs);
    s->requests = vmmc_map((size_t)VMMCB_REQUESTS * sizeof *s->requests);
    s->vip_vis = vmmc_map((size_t)VMMCB_IMPORTS * sizeof *s->vip_vis);
    s->vip_cqs = vmmc_map((size_t)VMMCB_IMPORTS * sizeof *s->vip_cqs);
    if (s->event < 0 || !s->top || !s->imports || !s->exports || !s->epochs || !s->requests ||
        !s->vip_vis || !s->vip_cqs) {
        return NULL; /* the process has next to nothing left: what was mapped is not missed */
    }
    return s;
}

/* The variables that the library reads: Go knows those that the process began with. */
static void add_environment(struct vmmcb_shared *s) {
    extern char **environ;
    size_t n = 0;
    for (char **e = environ; e && *e && n + 1 < sizeof s->env / sizeof *s->env; e++) {
        if (strncmp(*e, "VMMC", 4) == 0) {
            s->env[n++] = *e;
        }
    }
}

/* Signals are blocked, and the mutex is held. */
static int load(struct thread *t, char *why) {
    int code = 0, go = 0;
    const char *(*libc_version)(void) =
        (const char *(*)(void))dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    if (!libc_version) {
        return failed(why, vmmcErr_NotImplemented,
                      "load vmmc: this C library is not glibc, which the Go part needs");
    }
    dl_iterate_phdr(is_go, &go);
    if (go) {
        return failed(why, vmmcErr_BadConfig,
                      "load vmmc: this is a Go program: use the Go package instead of libvmmc");
    }
    code = check_limits(why);
    if (code != 0) {
        return code;
    }
    if (!vmmc_shared && !(vmmc_shared = make_shared())) {
        return failed(why, vmmcErr_NoMem, "load vmmc: no memory, or no descriptor, is left");
    }
    if (!vmmc_choose_key()) {
        return failed(why, vmmcErr_NoMem, "load vmmc: the kernel gives no random numbers");
    }
    add_environment(vmmc_shared);
    vmmc_shared->debug = vmmc_debug_level();
    vmmc_watch_dest_space();
    vmmc_save_actions();
    begun = 1;
    void *lib = open_go(why, &code);
    if (!lib) {
        return code;
    }
    void (*start)(struct vmmcb_record *) =
        (void (*)(struct vmmcb_record *))dlsym(lib, "vmmcgo_start");
    vmmc_go_now = (void (*)(struct vmmcb_record *))dlsym(lib, "vmmcgo_now");
    struct vmmcb_record *r = vmmc_begin(t, 0, 0);
    if (!start || !vmmc_go_now || !r) {
        vmmc_restore_actions();
        return failed(why, r ? vmmcErr_BadConfig : vmmcErr_NoMem,
                      "load vmmc: libvmmc-go.so is not of this libvmmc's version");
    }
    r->in[0] = (uintptr_t)vmmc_shared;
    vmmc_enter(start, r, t);
    vmmc_restore_actions();
    if (r->code != 0) {
        snprintf(why, VMMCB_TEXT, "%s", r->text);
    }
    return vmmc_end(t, r);
}

/* Reports by 0 that the Go part can be called; otherwise the error, whose text the thread has. */
int vmmc_ready(void) {
    if (LIKELY(vmmc_loaded())) { /* before `alive`, which is there since earlier */
        struct alive *a = atomic_load_explicit(&alive, memory_order_acquire);
        if (LIKELY(atomic_load_explicit(&a->alive, memory_order_relaxed) != 0)) {
            return 0;
        }
        return vmmc_fail(vmmcErr_Closed, CHILD);
    }
    char why[VMMCB_TEXT] = "";
    struct thread *t = vmmc_thread();
    if (!t) {
        return vmmcErr_NoMem;
    }
    vmmc_mask old = vmmc_block_signals(VMMC_NO_SIGNAL);
    int code = make_alive(why);
    if (code == 0) {
        struct alive *a = atomic_load(&alive);
        if (atomic_exchange(&a->alive, 1) == 0) {
            /* A child. Another thread of its parent may have held the mutex. */
            pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
            memcpy(&loading, &fresh, sizeof fresh);
            if (begun) {
                atomic_store(&loaded, 1);
                atomic_store(&a->alive, 0);
                vmmc_restore_signals(old);
                return vmmc_fail(vmmcErr_Closed, CHILD);
            }
        }
        pthread_mutex_lock(&loading);
        if (!vmmc_loaded()) {
            code = load(t, why);
            if (code == 0) {
                atomic_store_explicit(&loaded, 1, memory_order_release);
                struct alive *a = atomic_load(&alive);
                __atomic_store_n(&vmmc_live, (const uint32_t *)&a->alive, __ATOMIC_RELEASE);
            }
        }
        pthread_mutex_unlock(&loading);
    }
    vmmc_restore_signals(old);
    return code == 0 ? 0 : vmmc_fail(code, why);
}
