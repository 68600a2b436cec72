/* Libvipl's way into Go. */
#include <string.h>

#include "core.h"
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
        return vmmc_fail(vmmcErr_NoMem, "call VIPL: no memory for a record");
    }
    memcpy(r->in, c->in, sizeof r->in);
    if (c->data_len > 0) {
        memcpy(r->data, c->data, c->data_len);
        r->data_len = (uint32_t)c->data_len;
    }
    if (c->now) {
        vmmc_now(t, r);
    } else {
        vmmc_queue(t, r);
    }
    memcpy(c->out, r->out, sizeof c->out);
    c->got = r->data_len;
    if (c->room_len > 0) {
        memcpy(c->room, r->data, c->got < c->room_len ? c->got : c->room_len);
    }
    if (r->code == 0 && r->text[0] != 0) { /* the outcome is VIPL's, and the text says why */
        memcpy(t->text, r->text, sizeof t->text);
        t->text[sizeof t->text - 1] = 0;
    }
    return vmmc_end(t, r);
}
