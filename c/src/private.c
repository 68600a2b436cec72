/* The way into Go of libvipl and of libraries of MPI, and what spares libvipl that way. */
#include <string.h>

#include "core.h"
#include "mapped.h"
#include "private.h"

API int vmmcp_call(struct vmmcp_call *c) {
    int code = vmmc_ready();
    if (code != 0) {
        return code;
    }
    struct thread *t = vmmc_thread();
    size_t room = c->room_len > c->data_len ? c->room_len : c->data_len;
    struct vmmcb_record *r = t ? vmmc_begin(t, c->op, room) : NULL;
    if (!r) {
        return vmmc_fail(vmmcErr_NoMem, "call Go: no memory for a record");
    }
    memcpy(r->in, c->in, sizeof r->in);
    if (c->data_len > 0) {
        memcpy(r->data, c->data, c->data_len);
        r->data_len = (uint32_t)c->data_len;
    }
    if (c->now == VMMCP_QUEUE || (vmmc_now(t, r) == VMMCB_WOULD_WAIT && c->now == VMMCP_TRY)) {
        vmmc_queue(t, r);
    }
    memcpy(c->out, r->out, sizeof c->out);
    c->got = r->data_len;
    if (c->room_len > 0) {
        memcpy(c->room, r->data, c->got < c->room_len ? c->got : c->room_len);
    }
    if (r->code == 0 && r->text[0] != 0) { /* the text says why */
        memcpy(t->text, r->text, sizeof t->text);
        t->text[sizeof t->text - 1] = 0;
    }
    return vmmc_end(t, r);
}

/*
 * The same loads in the same order as VI.done and CompletionQueue.Done of package via. The thread
 * is in an epoch.
 */
VMMC_INLINE int idle_inside(uint64_t handle, unsigned queue) {
    const struct vmmcb_vip_poll **table =
        queue == VMMCP_ENTRIES ? vmmc_shared->vip_cqs : vmmc_shared->vip_vis;
    const struct vmmcb_vip_poll *p = VMMC_LOAD(&table[handle & (VMMCB_IMPORTS - 1)]);
    if (!p || p->handle != handle) {
        return 0;
    }
    const struct vmmcb_vip_queue *q = &p->queue[queue == VMMCP_RECEIVES];
    if ((q->outstanding && VMMC_LOAD(q->outstanding) <= 0) || VMMC_LOAD(q->complete) != 0) {
        return 0;
    }
    uint32_t *polls = &p->news->polls;
    __atomic_store_n(polls, __atomic_load_n(polls, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    const struct vmmcb_vip_links *links = VMMC_LOAD(&p->news->links);
    for (uint64_t i = 0; links && i < links->n; i++) {
        const struct vmmcb_vip_link *l = &links->link[i];
        if (VMMC_LOAD(l->head) != VMMC_LOAD(l->seen_head) ||
            VMMC_LOAD(l->taken) != VMMC_LOAD(l->seen_taken)) {
            return 0;
        }
    }
    return 1;
}

/* A program may leave it by siglongjmp or pthread_exit: it holds nothing but the epoch. */
API int vmmcp_idle(uint64_t handle, unsigned queue) {
    struct thread *t = vmmc_self;
    const uint32_t *live = __atomic_load_n(&vmmc_live, __ATOMIC_ACQUIRE);
    if (UNLIKELY(__atomic_load_n(live, __ATOMIC_RELAXED) == 0 || !t ||
                 (!t->epoch && !vmmc_take_epoch(t)))) {
        return 0;
    }
    int entered = vmmc_enter_epoch(t, (uintptr_t)__builtin_frame_address(0));
    int idle = idle_inside(handle, queue);
    if (entered) {
        vmmc_leave_epoch(t);
    }
    return idle;
}
