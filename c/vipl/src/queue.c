/* Posts, and what takes descriptors and completions. */
#include <stddef.h>

#include "core.h"

/* Go reads and writes the program's descriptors as boundary.h has them. */
#define SAME(theirs, ours)                                                                         \
    _Static_assert(offsetof(VIP_DESCRIPTOR, theirs) == offsetof(struct vmmcb_descriptor, ours),    \
                   #theirs " has moved")
SAME(CS.Next, next);
SAME(CS.NextHandle, next_handle);
SAME(CS.SegCount, seg_count);
SAME(CS.Control, control);
SAME(CS.Reserved, reserved);
SAME(CS.ImmediateData, immediate);
SAME(CS.Length, length);
SAME(CS.Status, status);
_Static_assert(offsetof(VIP_DESCRIPTOR, DS) == sizeof(struct vmmcb_descriptor), "DS has moved");
_Static_assert(sizeof(VIP_DESCRIPTOR_SEGMENT) == sizeof(struct vmmcb_segment), "a segment's size");
_Static_assert(offsetof(VIP_DATA_SEGMENT, Handle) == offsetof(struct vmmcb_segment, handle) &&
                   offsetof(VIP_DATA_SEGMENT, Length) == offsetof(struct vmmcb_segment, length),
               "a segment's parts");

static VIP_RETURN post(VIP_VI_HANDLE vi, uint64_t recv, VIP_DESCRIPTOR *d, VIP_MEM_HANDLE handle) {
    if (!d) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {
        .op = VMMCB_VIP_POST, .now = 1, .in = {BITS(vi), recv, BITS(d), handle}};
    return vipl_run(&c);
}

API VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr,
                           VIP_MEM_HANDLE MemoryHandle) {
    return post(ViHandle, 0, DescriptorPtr, MemoryHandle);
}

API VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr,
                           VIP_MEM_HANDLE MemoryHandle) {
    return post(ViHandle, 1, DescriptorPtr, MemoryHandle);
}

/* Looks on this thread first, and sleeps only if nothing is complete. */
static VIP_RETURN look_and_wait(struct vmmcp_call *c, int limit) {
    c->now = 1;
    VIP_RETURN code = vipl_run(c);
    if (code == VIP_TIMEOUT && c->in[limit] != 0) {
        c->now = 0;
        code = vipl_run(c);
    }
    return code;
}

/* The descriptor is NULL if none was taken. */
static VIP_RETURN done(VIP_VI_HANDLE vi, uint64_t recv, VIP_DESCRIPTOR **d) {
    if (!d) {
        return VIP_INVALID_PARAMETER;
    }
    *d = NULL;
    if (vmmcp_idle(BITS(vi), recv ? VMMCP_RECEIVES : VMMCP_SENDS)) {
        return VIP_NOT_DONE;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_TAKE, .now = 1, .in = {BITS(vi), recv}};
    VIP_RETURN code = vipl_run(&c);
    *d = HANDLE(c.out[1]);
    return code;
}

static VIP_RETURN wait(VIP_VI_HANDLE vi, uint64_t recv, VIP_ULONG ms, VIP_DESCRIPTOR **d) {
    if (!d) {
        return VIP_INVALID_PARAMETER;
    }
    *d = NULL;
    struct vmmcp_call c = {.op = VMMCB_VIP_TAKE, .in = {BITS(vi), recv, 1, vipl_limit(ms)}};
    VIP_RETURN code = look_and_wait(&c, 3);
    *d = HANDLE(c.out[1]);
    return code;
}

API VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr) {
    return done(ViHandle, 0, DescriptorPtr);
}

API VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr) {
    return done(ViHandle, 1, DescriptorPtr);
}

API VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout,
                           VIP_DESCRIPTOR **DescriptorPtr) {
    return wait(ViHandle, 0, Timeout, DescriptorPtr);
}

API VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG Timeout,
                           VIP_DESCRIPTOR **DescriptorPtr) {
    return wait(ViHandle, 1, Timeout, DescriptorPtr);
}

/* No send is ever deferred. */
API VIP_RETURN VipPostDeferredSends(VIP_VI_HANDLE ViHandle, VIP_BOOLEAN EnableInterrupt,
                                    VIP_BOOLEAN *Deferred) {
    (void)EnableInterrupt;
    struct vmmcp_call c = {.op = VMMCB_VIP_USER, .now = 1, .in = {BITS(ViHandle)}};
    if (!Deferred) {
        return VIP_INVALID_PARAMETER;
    }
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        *Deferred = VIP_FALSE;
    }
    return code;
}

API VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount,
                           VIP_CQ_HANDLE *CQHandle) {
    if (!CQHandle) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_NEW_CQ, .in = {BITS(NicHandle), EntryCount}};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        *CQHandle = HANDLE(c.out[1]);
    }
    return code;
}

API VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle) {
    struct vmmcp_call c = {.op = VMMCB_VIP_END_CQ, .in = {BITS(CQHandle), vipl_in_handler()}};
    return vipl_run(&c);
}

API VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount) {
    struct vmmcp_call c = {.op = VMMCB_VIP_RESIZE_CQ, .in = {BITS(CQHandle), EntryCount}};
    return vipl_run(&c);
}

static void give_completion(const struct vmmcp_call *c, VIP_VI_HANDLE *vi, VIP_BOOLEAN *recv) {
    *vi = HANDLE(c->out[1]);
    *recv = (VIP_BOOLEAN)c->out[2];
}

API VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue) {
    if (!ViHandle || !RecvQueue) {
        return VIP_INVALID_PARAMETER;
    }
    if (vmmcp_idle(BITS(CQHandle), VMMCP_ENTRIES)) {
        return VIP_NOT_DONE;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_TAKE_CQ, .now = 1, .in = {BITS(CQHandle)}};
    VIP_RETURN code = vipl_run(&c);
    if (code == VIP_SUCCESS) {
        give_completion(&c, ViHandle, RecvQueue);
    }
    return code;
}

API VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle, VIP_ULONG Timeout, VIP_VI_HANDLE *ViHandle,
                         VIP_BOOLEAN *RecvQueue) {
    if (!ViHandle || !RecvQueue) {
        return VIP_INVALID_PARAMETER;
    }
    struct vmmcp_call c = {.op = VMMCB_VIP_TAKE_CQ, .in = {BITS(CQHandle), 1, vipl_limit(Timeout)}};
    VIP_RETURN code = look_and_wait(&c, 2);
    if (code == VIP_SUCCESS) {
        give_completion(&c, ViHandle, RecvQueue);
    }
    return code;
}

/* Events of a completion queue by tags are not there. */
static VIP_RETURN check_tag_call(VIP_CQ_HANDLE cq) {
    struct vmmcp_call c = {.op = VMMCB_VIP_CHECK_CQ, .now = 1, .in = {BITS(cq)}};
    VIP_RETURN code = vipl_run(&c);
    return code == VIP_SUCCESS ? VIP_ERROR_NOT_SUPPORTED : code;
}

API VIP_RETURN VipAddTagCQ(VIP_CQ_HANDLE CQHandle, VIP_EVENT_HANDLE *Event, VIP_ULONG Tag,
                           VIP_ULONG Priority) {
    (void)Tag;
    (void)Priority;
    return Event ? check_tag_call(CQHandle) : VIP_INVALID_PARAMETER;
}

API VIP_RETURN VipRemoveTagCQ(VIP_CQ_HANDLE CQHandle, VIP_EVENT_HANDLE Event, VIP_ULONG Tag) {
    (void)Event;
    (void)Tag;
    return check_tag_call(CQHandle);
}
