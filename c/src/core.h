/* What the files of libvmmc share. Nothing of it is visible outside of the library. */
#ifndef VMMC_CORE_H
#define VMMC_CORE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "boundary.h"
#include "vmmc.h"

#ifndef VMMC_LIBDIR
#define VMMC_LIBDIR "/usr/local/lib"
#endif

#define API __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define VMMC_WAITS 8 /* words of which a thread remembers that it may wait for them */

/*
 * What the library knows of a thread. It is made by the thread's first call that needs Go, and
 * freed when the thread ends.
 */
struct thread {
    struct vmmcb_record *current; /* the innermost call that this thread waits in */
    struct vmmcb_record *own;     /* the record of calls that interrupt no other */
    void *stack;                  /* the alternate signal stack that the library gave, or NULL */
    int entered;                  /* reports whether the thread has called Go */
    int entering;                 /* its first call runs, and may run the program's functions */
    int swap;                     /* reports whether its own alternate stack is too small for Go */
    int in_handler;               /* reports whether it runs a notification handler */
    struct vmmcb_epoch *epoch;    /* NULL until its first transfer on a mapped path */
    uint64_t epochs;              /* how often it has entered one */
    uint32_t congested;           /* so many of its next long sends are queued: see transfer.c */
    /* Words that it has waited for with arguments that Go has found right, at a time when
       `ended` was this. An ended export or import makes all of them unknown. */
    struct {
        const int32_t *word;
        uint64_t from; /* the import's handle, 0 for none */
        uint32_t ended;
        int polled; /* Go has found the last change, on a socket */
    } waits[VMMC_WAITS];
    char text[VMMCB_TEXT]; /* of the last call that failed */
};

/* Of the library alone: so that no address of it is looked up. */
#pragma GCC visibility push(hidden)

extern struct vmmcb_shared *vmmc_shared;
extern void (*vmmc_go_now)(struct vmmcb_record *);

/* load.c */
int vmmc_ready(void);
int vmmc_loaded(void);

/*
 * The word that vmmc_ready looks at once the Go part is loaded: not 0, but in a child of fork.
 * Before that it is another word, which is 0.
 */
extern const uint32_t *vmmc_live;

/* signals.c */
typedef struct {
    uint64_t bits;
} vmmc_mask;
vmmc_mask vmmc_block_signals(uint64_t but);
void vmmc_restore_signals(vmmc_mask old);
#define VMMC_NO_SIGNAL 0u
/* SEGV, BUS, FPE, ILL and TRAP: a blocked one of these ends the process when Go faults. */
#define VMMC_FAULTS (1u << 10 | 1u << 6 | 1u << 7 | 1u << 3 | 1u << 4)
void vmmc_save_actions(void);
void vmmc_restore_actions(void);
void vmmc_watch_dest_space(void);

/* thread.c */
extern _Thread_local struct thread *vmmc_self __attribute__((tls_model("initial-exec")));
struct thread *vmmc_new_thread(void);

/* The calling thread's entry; NULL if there is no memory for one. */
static inline struct thread *vmmc_thread(void) {
    return LIKELY(vmmc_self != NULL) ? vmmc_self : vmmc_new_thread();
}

void vmmc_enter(void (*f)(struct vmmcb_record *), struct vmmcb_record *r, struct thread *t);

/* epoch.c */
int vmmc_take_epoch(struct thread *t);
void vmmc_drop_epoch(struct thread *t);
int vmmc_interrupts(uint64_t now, uintptr_t frame);
int vmmc_on_alternate_stack(void);

#define VMMC_FRAME(address) ((address) & (((uint64_t)1 << VMMCB_FRAME_BITS) - 1))

/* The thread has an epoch, which is even or of a call that was left. */
static inline void vmmc_begin_epoch(struct thread *t, uintptr_t frame) {
    uint64_t now = ++t->epochs << VMMCB_FRAME_BITS | VMMC_FRAME(frame) | 1;
    if (LIKELY(!__atomic_load_n(&vmmc_shared->barriers, __ATOMIC_RELAXED))) {
        __atomic_store_n(&t->epoch->now, now, __ATOMIC_RELAXED);
        atomic_signal_fence(memory_order_seq_cst); /* Go's membarrier does the rest */
    } else {
        __atomic_exchange_n(&t->epoch->now, now, __ATOMIC_SEQ_CST);
    }
}

/*
 * Returns 1 for a caller that must leave the epoch, and 0 for one that interrupts a call which
 * does. The thread has an epoch. See epoch.c.
 */
static inline int vmmc_enter_epoch(struct thread *t, uintptr_t frame) {
    uint64_t now = __atomic_load_n(&t->epoch->now, __ATOMIC_RELAXED);
    if (UNLIKELY(now & 1) && vmmc_interrupts(now, frame)) {
        return 0;
    }
    vmmc_begin_epoch(t, frame);
    return 1;
}

static inline void vmmc_leave_epoch(struct thread *t) {
    __atomic_store_n(&t->epoch->now, t->epochs << VMMCB_FRAME_BITS, __ATOMIC_RELEASE);
}

/* The lane of a link's counters that the thread adds to. */
static inline unsigned vmmc_lane(struct thread *t) {
    return (unsigned)((uintptr_t)t->epoch / sizeof *t->epoch) % VMMCB_LANES;
}

/* call.c */
struct vmmcb_record *vmmc_begin(struct thread *t, uint32_t op, size_t data);
/* Abandons the calls of the thread that one with this frame does not interrupt. */
void vmmc_abandon_left(struct thread *t, uintptr_t frame);
int vmmc_now(struct thread *t, struct vmmcb_record *r);
int vmmc_queue(struct thread *t, struct vmmcb_record *r);
void vmmc_push(struct vmmcb_record *r);
void vmmc_ring(void);
int vmmc_end(struct thread *t, struct vmmcb_record *r);
void vmmc_abandon_all(struct thread *t);

/* errors.c */
int vmmc_fail(int code, const char *text);

/* memory.c */
void *vmmc_map(size_t n);
void *vmmc_keep(const void *from, size_t n);

/* nodes.c */
int vmmc_debug_level(void);

/* transfer.c */

/*
 * The number of the import whose slots an address lies in, VMMCB_NO_IMPORT for those of none, and 0
 * outside of DestSpace. The Go part is loaded, and the address has at most VMMCB_ADDR_BITS.
 */
static inline uint32_t vmmc_number_at(uintptr_t a) {
    uint32_t *leaf = __atomic_load_n(&vmmc_shared->top[a >> VMMCB_TOP_SHIFT], __ATOMIC_ACQUIRE);
    return leaf ? __atomic_load_n(&leaf[a >> VMMCB_SLOT_SHIFT & (VMMCB_SLOTS - 1)],
                                  __ATOMIC_ACQUIRE)
                : 0;
}

/* The same of any address, at any time. */
static inline uint32_t vmmc_import_at(uintptr_t a) {
    return vmmc_shared && a >> VMMCB_ADDR_BITS == 0 ? vmmc_number_at(a) : 0;
}

int vmmc_in_dest_space(uintptr_t a);

/* An import's length in words. One of 16 GiB has one word more than the manual's type can say. */
static inline uint32 vmmc_words(uint64_t bytes) {
    return bytes / 4 <= UINT32_MAX ? (uint32)(bytes / 4) : UINT32_MAX;
}

/* requests.c */
int vmmc_choose_key(void);
/* Gives a handle to a request of Go, and to one that is over. */
void vmmc_request(vmmc_async_handle_t *handle, uint64_t number);
void vmmc_completed_request(vmmc_async_handle_t *handle);
/*
 * 0: the request has succeeded, as far as C knows; InProgress: Go is to be asked for the number;
 * BadAsyncHandle: there is none.
 */
int vmmc_status(const vmmc_async_handle_t *handle, uint64_t *number);

/* handlers.c */
int vmmc_start_handlers(void);
int vmmc_choose_polling(void);
/* The running handler is over: levels of blocking that it leaves are the program's. */
void vmmc_keep_levels(void);
/* Takes a level of blocking away, if there is one. Reports whether none is left. */
int vmmc_drop_level(void);

/* poll.c */
/* Runs the handler that Go has given this process, in poll mode; 0: there is none to run. */
int vmmc_run_given(struct thread *t, uintptr_t frame);
int vmmc_polls(void);
/* A thread ends that may have left a handler by siglongjmp. */
void vmmc_stop_running(struct thread *t);

#pragma GCC visibility pop

#endif
