/* Calls of vmmcx.h that work on words: atomic operations, the fence, and the wait for a word. */
#include "core.h"
#include "vmmcx.h"

/*
 * How often a wait looks at its word before it asks Go: some microseconds, about as long as the
 * queue to Go takes.
 */
#define LOOKS 200
/*
 * How often it looks at a word whose last change Go has found. It most likely comes by a socket
 * again, and until Go reads that no look finds it.
 */
#define FEW_LOOKS 20

static int begin(const char *what, uint32_t op, struct thread **t, struct vmmcb_record **r) {
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    *t = vmmc_thread();
    *r = *t ? vmmc_begin(*t, op, 0) : NULL;
    return *r ? 0 : vmmc_fail(vmmcErr_NoMem, what);
}

API vmmc_result_t vmmcx_fence(int32 *remoteProxyAddr) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!remoteProxyAddr) {
        return vmmc_fail(vmmcErr_BadArg, "fence: the address is NULL");
    }
    int code = begin("fence: no memory for a record", VMMCB_FENCE_AT, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = (uintptr_t)remoteProxyAddr;
    vmmc_queue(t, r);
    return vmmc_end(t, r);
}

/* An atomic operation on the word of `size` bytes at `far`. Its earlier value is stored in *old. */
static int change(uint32_t what, int32 *far, uint64_t size, uint64_t value, uint64_t expected,
                  uint64_t *old) {
    struct thread *t;
    struct vmmcb_record *r;
    if (!far) {
        return vmmc_fail(vmmcErr_BadArg, "change a word: the address is NULL");
    }
    if ((uintptr_t)far % 4 != 0) {
        return vmmc_fail(vmmcErr_BadAlignment,
                         "change a word: the address is not aligned to 4 bytes");
    }
    int code = begin("change a word: no memory for a record", VMMCB_ATOMIC, &t, &r);
    if (code != 0) {
        return code;
    }
    r->in[0] = (uintptr_t)far;
    r->in[1] = size;
    r->in[2] = what;
    r->in[3] = value;
    r->in[4] = expected;
    if (vmmc_queue(t, r) == 0) {
        *old = r->out[0];
    }
    return vmmc_end(t, r);
}

/* The program may want no earlier value. */
static vmmc_result_t change32(uint32_t what, int32 *far, int32 value, int32 expected, int32 *old) {
    uint64_t was = 0;
    int code = change(what, far, 4, (uint32)value, (uint32)expected, &was);
    if (code == 0 && old) {
        *old = (int32)(uint32)was;
    }
    return code;
}

static vmmc_result_t change64(uint32_t what, int32 *far, int64_t value, int64_t expected,
                              int64_t *old) {
    uint64_t was = 0;
    int code = change(what, far, 8, (uint64_t)value, (uint64_t)expected, &was);
    if (code == 0 && old) {
        *old = (int64_t)was;
    }
    return code;
}

API vmmc_result_t vmmcx_fetch_add(int32 *remoteProxyAddr, int32 value, int32 *old) {
    return change32(VMMCB_FETCH_ADD, remoteProxyAddr, value, 0, old);
}

API vmmc_result_t vmmcx_swap(int32 *remoteProxyAddr, int32 value, int32 *old) {
    return change32(VMMCB_SWAP, remoteProxyAddr, value, 0, old);
}

API vmmc_result_t vmmcx_compare_and_swap(int32 *remoteProxyAddr, int32 expected, int32 value,
                                         int32 *old) {
    return change32(VMMCB_COMPARE_AND_SWAP, remoteProxyAddr, value, expected, old);
}

API vmmc_result_t vmmcx_fetch_add64(int32 *remoteProxyAddr, int64_t value, int64_t *old) {
    return change64(VMMCB_FETCH_ADD, remoteProxyAddr, value, 0, old);
}

API vmmc_result_t vmmcx_swap64(int32 *remoteProxyAddr, int64_t value, int64_t *old) {
    return change64(VMMCB_SWAP, remoteProxyAddr, value, 0, old);
}

API vmmc_result_t vmmcx_compare_and_swap64(int32 *remoteProxyAddr, int64_t expected, int64_t value,
                                           int64_t *old) {
    return change64(VMMCB_COMPARE_AND_SWAP, remoteProxyAddr, value, expected, old);
}

static void pause_processor(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

/* Fills a record of a wait. `how` is VMMCB_CHECK, VMMCB_POLL or 0. */
static void fill_wait(struct vmmcb_record *r, const int32 *word, int32 old, int milliseconds,
                      const vmmc_imphandle_t *from, uint64_t how) {
    r->in[0] = (uintptr_t)word;
    r->in[1] = (uint32)old;
    r->in[2] = milliseconds < 0 ? UINT64_MAX : (uint64_t)milliseconds;
    r->in[3] = from != NULL;
    r->in[4] = from ? from->vmmc_opaque : 0;
    r->in[5] = how;
}

/*
 * Has Go check the arguments of a wait, unless it has done so for this thread and no export or
 * import was closed since. A word that has changed already would otherwise hide that the program
 * may not wait for it.
 */
static int check_wait(struct thread *t, const int32 *word, const vmmc_imphandle_t *from,
                      unsigned *slot) {
    uint64_t h = from ? from->vmmc_opaque : 0;
    uint32_t ended = __atomic_load_n(&vmmc_shared->ended, __ATOMIC_ACQUIRE);
    unsigned i = (unsigned)(((uintptr_t)word / sizeof *word) ^ h) % VMMC_WAITS;
    *slot = i;
    if (LIKELY(t->waits[i].word == word && t->waits[i].from == h && t->waits[i].ended == ended &&
               (h != 0 || !from))) {
        return 0;
    }
    t->waits[i].word = NULL; /* a signal handler may wait for another word meanwhile */
    struct vmmcb_record *r = vmmc_begin(t, VMMCB_WAIT_WORD, 0);
    if (!r) {
        return vmmc_fail(vmmcErr_NoMem, "wait for a word: no memory for a record");
    }
    fill_wait(r, word, 0, 0, from, VMMCB_CHECK);
    vmmc_now(t, r);
    int code = vmmc_end(t, r);
    if (code == 0) {
        t->waits[i].from = h;
        t->waits[i].ended = ended;
        t->waits[i].polled = 0;
        atomic_signal_fence(memory_order_seq_cst);
        t->waits[i].word = word;
    }
    return code;
}

API vmmc_result_t vmmcx_wait_word(int32 *word, int32 old, int milliseconds,
                                  vmmc_imphandle_t *from) {
    struct thread *t;
    struct vmmcb_record *r;
    unsigned slot = 0;
    if (!word) {
        return vmmc_fail(vmmcErr_BadArg, "wait for a word: the address is NULL");
    }
    if ((uintptr_t)word % 4 != 0) {
        return vmmc_fail(vmmcErr_BadAlignment,
                         "wait for a word: the address is not aligned to 4 bytes");
    }
    if (vmmc_in_dest_space((uintptr_t)word)) {
        return vmmc_fail(vmmcErr_BadArg, "wait for a word: the word is another process's");
    }
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    t = vmmc_thread();
    if (t && !t->in_handler) { /* in a handler Go refuses the wait */
        if ((code = check_wait(t, word, from, &slot)) != 0) {
            return code;
        }
        int looks = t->waits[slot].polled ? FEW_LOOKS : LOOKS;
        for (int i = 0; i < looks; i++) {
            if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != old) {
                t->waits[slot].polled = 0;
                return 0;
            }
            pause_processor();
        }
    }
    code = begin("wait for a word: no memory for a record", VMMCB_WAIT_WORD, &t, &r);
    if (code != 0) {
        return code;
    }
    /* Only Go reads sockets. It polls on this thread for as long as a sleep would take. */
    fill_wait(r, word, old, milliseconds, from, VMMCB_POLL);
    if (t->in_handler || milliseconds == 0 || (code = vmmc_now(t, r)) == VMMCB_WOULD_WAIT) {
        r->in[5] = 0;
        vmmc_queue(t, r);
    } else if (code == 0) {
        t->waits[slot].polled = 1;
    }
    return vmmc_end(t, r);
}
