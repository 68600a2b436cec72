/*
 * Memory of the library. It does not come from malloc: a signal handler of the program may call the
 * library while it interrupts malloc, or leave a call by siglongjmp.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "core.h"

/* Zeroed pages, or NULL. */
void *vmmc_map(size_t n) {
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

struct chunk {
    _Atomic size_t used;
    size_t size;
    char bytes[];
};

static _Atomic(struct chunk *) chunk;

/* A copy of n bytes that stays until the process ends, or NULL. */
void *vmmc_keep(const void *from, size_t n) {
    size_t need = (n + 15) & ~(size_t)15;
    for (;;) {
        struct chunk *c = atomic_load(&chunk);
        if (c && need <= c->size) {
            size_t at = atomic_fetch_add(&c->used, need);
            if (at <= c->size - need) {
                return memcpy(c->bytes + at, from, n);
            }
        }
        size_t size = need + sizeof *c > 65536 ? need + sizeof *c : 65536;
        struct chunk *fresh = vmmc_map(size);
        if (!fresh) {
            return NULL;
        }
        fresh->size = size - sizeof *fresh;
        if (!atomic_compare_exchange_strong(&chunk, &c, fresh)) {
            munmap(fresh, size);
        }
    }
}
