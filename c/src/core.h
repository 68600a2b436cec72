/* What the files of libvmmc share. Nothing of it is visible outside of the library. */
#ifndef VMMC_CORE_H
#define VMMC_CORE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "boundary.h"
#include "vmmc.h"

#define API __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/*
 * What the library knows of a thread. It is made by the thread's first call that needs Go, and
 * freed when the thread ends.
 */
struct thread {
    struct vmmcb_record *current; /* the innermost call that this thread waits in */
    struct vmmcb_record *own;     /* the record of calls that interrupt no other */
    void *stack;                  /* the alternate signal stack that the library gave, or NULL */
    int entered;                  /* reports whether the thread has called Go */
    int swap;                     /* reports whether its own alternate stack is too small for Go */
    int in_handler;               /* reports whether it runs a notification handler */
    struct vmmcb_epoch *epoch;    /* NULL until its first transfer on a mapped path */
    uint64_t epochs;              /* how often it has entered one */
    char text[VMMCB_TEXT];        /* of the last call that failed */
};

extern struct vmmcb_shared *vmmc_shared;
extern void (*vmmc_go_now)(struct vmmcb_record *);

/* load.c */
int vmmc_ready(void);
int vmmc_loaded(void);

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
struct thread *vmmc_thread(void);
void vmmc_enter(void (*f)(struct vmmcb_record *), struct vmmcb_record *r, struct thread *t);

/* epoch.c */
int vmmc_enter_epoch(struct thread *t, uintptr_t frame);
void vmmc_leave_epoch(struct thread *t);
void vmmc_drop_epoch(struct thread *t);
unsigned vmmc_lane(struct thread *t);
int vmmc_on_alternate_stack(void);

/* call.c */
struct vmmcb_record *vmmc_begin(struct thread *t, uint32_t op, size_t data);
int vmmc_now(struct thread *t, struct vmmcb_record *r);
int vmmc_queue(struct thread *t, struct vmmcb_record *r);
void vmmc_push(struct vmmcb_record *r);
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
uint32_t vmmc_import_at(uintptr_t a);
int vmmc_in_dest_space(uintptr_t a);

/* handlers.c */
int vmmc_start_handlers(void);
int vmmc_choose_polling(void);

/* poll.c */
void vmmc_queue_running(struct thread *t, struct vmmcb_record *r);

#endif
