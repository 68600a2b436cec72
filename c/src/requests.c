/*
 * Handles of asynchronous sends and gets. The first word is a number, and the second one a keyed
 * hash of it (SipHash-2-4), so that a program cannot make one up. Of requests that C has completed
 * before their calls returned Go knows nothing: their numbers are C's own count, with the highest
 * bit set. All others are Go's numbers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "core.h"

#define OURS ((uint64_t)1 << 63)

static uint64_t key[2];
static _Atomic uint64_t last;

/* Chooses the key. Reports whether it could; once, while the Go part is loaded. */
int vmmc_choose_key(void) {
    ssize_t n;
    while ((n = getrandom(key, sizeof key, 0)) < 0 && errno == EINTR) {
    }
    return n == sizeof key;
}

static uint64_t turn(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void mix(uint64_t v[4], int rounds) {
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = turn(v[1], 13) ^ v[0];
        v[3] = turn(v[3], 16) ^ v[2];
        v[0] = turn(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = turn(v[3], 21) ^ v[0];
        v[1] = turn(v[1], 17) ^ v[2];
        v[2] = turn(v[2], 32);
    }
}

/* SipHash-2-4 of eight bytes. */
static uint64_t hash(uint64_t word) {
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    uint64_t blocks[2] = {word, (uint64_t)8 << 56}; /* the second one is the length alone */
    for (int i = 0; i < 2; i++) {
        v[3] ^= blocks[i];
        mix(v, 2);
        v[0] ^= blocks[i];
    }
    v[2] ^= 0xff;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void vmmc_request(vmmc_async_handle_t *handle, uint64_t number) {
    memset(handle, 0, sizeof *handle);
    handle->vmmc_opaque[0] = number;
    handle->vmmc_opaque[1] = hash(number);
}

void vmmc_completed_request(vmmc_async_handle_t *handle) {
    vmmc_request(handle, (atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1) | OURS);
}

int vmmc_status(const vmmc_async_handle_t *handle, uint64_t *number) {
    const uint64_t *w = handle->vmmc_opaque;
    if (w[0] == 0 || w[1] != hash(w[0]) || w[2] != 0 || w[3] != 0) {
        return vmmc_fail(vmmcErr_BadAsyncHandle,
                         "ask for a request: no asynchronous send or get has given this handle");
    }
    *number = w[0];
    if (w[0] & OURS) {
        return 0;
    }
    /* It pairs with Go's store: what the transfer has stored is there. */
    const uint64_t *done = &vmmc_shared->requests[w[0] % VMMCB_REQUESTS];
    return __atomic_load_n(done, __ATOMIC_ACQUIRE) == w[0] ? 0 : vmmcErr_InProgress;
}
