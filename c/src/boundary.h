/*
 * What libvmmc (C) and libvmmc-go (Go) know of each other. Both are compiled with this file. A
 * change of it changes VMMC_LAYOUT.
 *
 * C calls two functions of libvmmc-go, vmmcgo_start and vmmcgo_now, both with one pointer to a
 * record and with signals blocked. vmmcgo_now does not wait. Operations that may wait are queued: C
 * pushes the record on the list in `struct vmmcb_shared`, writes to the event descriptor, and
 * sleeps on the record's word.
 */
#ifndef VMMC_BOUNDARY_H
#define VMMC_BOUNDARY_H

#include <stdint.h>

#define VMMC_LAYOUT 14

/* Operations. In, out: the numbers of in[] and out[]. */
enum {
    VMMCB_SELF = 1,     /* out: node, pid; data: the host name */
    VMMCB_HOSTS,        /* in: 1 for the session's, the first index; out: all, those in data */
    VMMCB_FIND_NODE,    /* data: a name; out: node */
    VMMCB_NODE_NAME,    /* in: node; data: its name */
    VMMCB_PARENT,       /* out: node, pid */
    VMMCB_SPAWN,        /* in: node; data: strings; out: pid */
    VMMCB_DEBUG,        /* in: level */
    VMMCB_ALLOC,        /* in: bytes; out: address */
    VMMCB_FREE,         /* in: address */
    VMMCB_EXPORT,       /* in: address, bytes, id, function, flags; out: handle */
    VMMCB_UNEXPORT,     /* in: handle */
    VMMCB_IMPORT,       /* in: node, pid, id; out: handle, address, bytes */
    VMMCB_IMPORT_BEGIN, /* in: node, pid, id; out: handle */
    VMMCB_IMPORT_STATE, /* in: handle; out: handle, address, bytes */
    VMMCB_UNIMPORT,     /* in: handle */
    VMMCB_SEND,         /* in: number, handle, offset, address, bytes, VMMCB_NOTIFY, _ASYNC */
    VMMCB_GET,          /* in: the same; both: out: the number of an asynchronous request */
    VMMCB_FENCE,        /* in: number, handle */
    VMMCB_STATUS,       /* in: the number of an asynchronous request, of a handle that C has made */
    VMMCB_POST_REDIR,   /* in: handle, offset, bytes, address */
    VMMCB_END_REDIR,    /* in: handle; out: bytes, first */
    VMMCB_DATA_END,     /* in: handle; out: word */
    VMMCB_CLEAR_END,    /* in: handle */
    VMMCB_BLOCK,    /* of C alone: waits for the handler that runs, with a level of blocking */
    VMMCB_HANDLERS, /* asks for a job; in: 0, or a descriptor + 1 to which Go writes when there is
                       one; out: function, address, value */
    VMMCB_FINISH,   /* in: as VMMCB_SEND: C has stored the message, and a check after it failed */
    VMMCB_CANCEL,   /* in: address of a record that C has abandoned, and keeps until this is done */
    VMMCB_FENCE_AT, /* in: address in DestSpace */
    VMMCB_ATOMIC,   /* in: address in DestSpace, bytes, VMMCB_FETCH_ADD or kin, value, expected
                       value; out: earlier value */
    VMMCB_WAIT_WORD, /* in: address, old value, milliseconds or all ones, 1 if the wait ends with an
                       import, its handle, VMMCB_CHECK or VMMCB_POLL or 0 */
    VMMCB_PUBLISH,     /* in: an export's handle; data: a name */
    VMMCB_UNPUBLISH,   /* the same */
    VMMCB_IMPORT_NAME, /* in: milliseconds or all ones; data: a name; out: as VMMCB_IMPORT */
    VMMCB_GROUP,       /* out: rank, size */
    VMMCB_MEMBER,      /* in: rank, milliseconds or all ones; out: node, pid */
    VMMCB_BARRIER,     /* in: milliseconds or all ones */
    VMMCB_LEAVE,       /* the same */
    VMMCB_MAP,         /* in: address, bytes, address in DestSpace, 1 to notify */
    VMMCB_UNMAP,       /* in: address */
    VMMCB_FLUSH,       /* in: address */
    VMMCB_EVENT, /* in: milliseconds or all ones; out: kind and above it a code, node, pid, handle;
                    data: a name and a zero */
    VMMCB_EVENT_BACK /* the record of an event that the program has not got, as Go has filled it */
};

/*
 * Operations of libvipl. Out: the VIP_RETURN, then what is said here. Attributes: see struct
 * vmmcb_attributes. "ms" is a time limit in milliseconds, all ones for none.
 */
enum {
    VMMCB_VIPL = 256,      /* from here on up to VMMCB_MPI: libvipl's */
    VMMCB_VIP_OPEN = 256,  /* data: a device; out: NIC */
    VMMCB_VIP_CLOSE,       /* in: NIC, 1 in a handler, which is not waited for */
    VMMCB_VIP_QUERY_NIC,   /* in: NIC; data: struct vmmcb_nic */
    VMMCB_VIP_ON_ERROR,    /* in: NIC, function, context */
    VMMCB_VIP_EVENT,       /* waits for one; in: VMMCB_VIP_ERRORS or _NOTIFIES; data: struct
                              vmmcb_event */
    VMMCB_VIP_NEW_TAG,     /* in: NIC; out: tag */
    VMMCB_VIP_END_TAG,     /* in: NIC, tag */
    VMMCB_VIP_REGISTER,    /* in: NIC, address, bytes, tag, flags; out: handle */
    VMMCB_VIP_DEREGISTER,  /* in: NIC, address, handle */
    VMMCB_VIP_QUERY_MEM,   /* the same; out: tag, flags */
    VMMCB_VIP_SET_MEM,     /* in: NIC, address, handle, tag, flags */
    VMMCB_VIP_NEW_VI,      /* in: NIC, level, MaxTransferSize, tag, flags, CQ or 0 twice; out: VI */
    VMMCB_VIP_END_VI,      /* in: VI, 1 in a handler */
    VMMCB_VIP_QUERY_VI,    /* in: VI; out: state, 1 if the send queue is empty + 2 if the other is;
                              data: struct vmmcb_attributes */
    VMMCB_VIP_SET_VI,      /* in: VI, level, MaxTransferSize, tag, flags */
    VMMCB_VIP_LISTEN,      /* in: NIC, ms; data: a discriminator; out: request; data: struct
                              vmmcb_attributes, struct vmmcb_address */
    VMMCB_VIP_ACCEPT,      /* in: request, VI */
    VMMCB_VIP_REJECT,      /* in: request */
    VMMCB_VIP_CONNECT,     /* in: VI, ms; data: struct vmmcb_address of this side, and of the other;
                              data: struct vmmcb_attributes */
    VMMCB_VIP_DISCONNECT,  /* in: VI */
    VMMCB_VIP_PEER,        /* in, data: as VMMCB_VIP_CONNECT */
    VMMCB_VIP_PEER_TAKE,   /* in: VI, 1 to wait; data: struct vmmcb_attributes */
    VMMCB_VIP_POST,        /* in: VI, 1 for the receive queue, descriptor, handle */
    VMMCB_VIP_TAKE,        /* in: VI, 1 for the receive queue, 1 to wait, ms; out: descriptor, 0 */
    VMMCB_VIP_NOTIFY,      /* in: VI, 1 for the receive queue, function, context */
    VMMCB_VIP_NEW_CQ,      /* in: NIC, entries; out: CQ */
    VMMCB_VIP_END_CQ,      /* in: CQ, 1 in a handler */
    VMMCB_VIP_RESIZE_CQ,   /* in: CQ, entries */
    VMMCB_VIP_TAKE_CQ,     /* in: CQ, 1 to wait, ms; out: VI, 1 for its receive queue */
    VMMCB_VIP_NOTIFY_CQ,   /* in: CQ, function, context */
    VMMCB_VIP_CHECK_CQ,    /* in: CQ */
    VMMCB_VIP_NAMES,       /* in: NIC, 1 to begin and 0 to end */
    VMMCB_VIP_BY_NAME,     /* in: NIC, index; data: a name; data: an address of a host */
    VMMCB_VIP_BY_ADDRESS,  /* in: NIC; data: an address of a host; data: a name */
    VMMCB_VIP_USER,        /* in: VI, 1 to set it, value; out: value */
    VMMCB_VIP_CHECK_NIC    /* in: NIC */
};

/*
 * The operation of libmpi_abi. In: the call's number, the number of its arguments, the hash of
 * the table of calls; data: the arguments, uint64_t each; out: the return code of MPI.
 */
enum { VMMCB_MPI = 512 };

/*
 * A function of the program whose arguments a library converts is the address of a record that
 * begins with this structure, and bit 63, which no address has. call runs it, and gets the record
 * first.
 */
struct vmmcb_program_record;
typedef uint64_t vmmcb_program_call(struct vmmcb_program_record *, uint64_t, uint64_t, uint64_t,
                                    uint64_t, uint64_t, uint64_t);
struct vmmcb_program_record {
    vmmcb_program_call *call;
};
#define VMMCB_PROGRAM_RECORD (UINT64_C(1) << 63)

/* Flags of attributes. */
#define VMMCB_VIP_WRITE 1u
#define VMMCB_VIP_READ 2u

/* What VMMCB_VIP_EVENT waits for: each has a thread of libvipl. */
enum { VMMCB_VIP_ERRORS, VMMCB_VIP_NOTIFIES, VMMCB_VIP_STREAMS };

#define VMMCB_VIP_HOST 6 /* bytes of a host's address */
#define VMMCB_VIP_DISCRIMINATOR 32

struct vmmcb_nic {
    char device[64];
    uint8_t host[8];
    uint64_t discriminator, regions, vis, descriptors, segments, cqs, entries, transfer, mtu, tags,
        levels;
};

struct vmmcb_attributes {
    uint64_t level, transfer, tag, flags;
};

struct vmmcb_address {
    uint8_t host[VMMCB_VIP_HOST];
    uint16_t length; /* of the discriminator */
    uint8_t discriminator[VMMCB_VIP_DISCRIMINATOR];
};

/* What a thread of libvipl is to call. */
enum { VMMCB_VIP_ERROR, VMMCB_VIP_DESCRIPTOR, VMMCB_VIP_COMPLETION };
struct vmmcb_event {
    uint64_t kind, function, context;
    uint64_t nic, vi, cq, descriptor, receive;
    uint64_t op, resource, error;
};

/*
 * A descriptor in the program's memory: VIP_DESCRIPTOR of vipl.h. Libvipl does not
 * compile if the two differ.
 */
struct vmmcb_segment {
    uint64_t address;
    uint32_t handle, length; /* in an address segment the last is reserved */
};
struct vmmcb_descriptor {
    uint64_t next;
    uint32_t next_handle;
    uint16_t seg_count, control;
    uint32_t reserved, immediate, length, status;
};

/* No name of an export is longer. */
#define VMMCB_NAME 1024u

/* Atomic operations. */
enum { VMMCB_FETCH_ADD = 1, VMMCB_SWAP, VMMCB_COMPARE_AND_SWAP };

/*
 * Of VMMCB_WAIT_WORD, for vmmcgo_now: only check the arguments; poll sockets and the word for some
 * microseconds, and answer VMMCB_WOULD_WAIT if the word is still the same.
 */
enum { VMMCB_CHECK = 1, VMMCB_POLL };

/* Flags of VMMCB_SEND and VMMCB_GET. */
#define VMMCB_NOTIFY 1u
#define VMMCB_ASYNC 2u

/* Flags of VMMCB_EXPORT. */
#define VMMCB_EXPORT_READ 1u
#define VMMCB_EXPORT_WRITE 2u
#define VMMCB_EXPORT_REDIRECTABLE 4u
#define VMMCB_EXPORT_GLOBAL 8u

/*
 * Codes that only the boundary has. VMMCB_WOULD_WAIT: nothing was done, C queues the record.
 * VMMCB_SENT: the message is framed and not all of it written; C queues a fence with the same in[].
 */
#define VMMCB_WOULD_WAIT 1
#define VMMCB_SENT 2

/* Messages of the stream up to this length are copied into the record by C. */
#define VMMCB_SMALL 448u

#define VMMCB_TEXT 256

enum { VMMCB_PENDING, VMMCB_DONE, VMMCB_FILLING };

/*
 * A record is one operation. It lies in a mapping of its own, which C makes and unmaps. While it is
 * pending it is Go's, otherwise C's.
 */
struct vmmcb_record {
    uint32_t word; /* a futex: VMMCB_FILLING, _PENDING until Go has completed it, then _DONE */
    uint32_t op;
    int32_t code;
    uint32_t in_handler; /* the thread runs a notification handler */
    struct vmmcb_record *next;
    uint64_t in[7];
    uint64_t out[4];
    uint32_t data_len;
    uint32_t data_cap;
    char text[VMMCB_TEXT]; /* why it failed, with a zero at the end */
    /* C's own: the record of an interrupted call, and the frame of this one. */
    struct vmmcb_record *outer;
    uintptr_t frame;
    unsigned char data[]; /* data_cap bytes */
};

#define VMMCB_WORD 4u       /* bytes of the manual's word */
#define VMMCB_BOARD_WORDS 3 /* words of sleepers on a board: wait.Words */
#define VMMCB_LANES 8       /* of a link's counters */
#define VMMCB_COUNTERS 16   /* in a lane */

/* Counters of a lane: those of shmlayout. */
enum { VMMCB_MESSAGES = 0, VMMCB_BYTES = 1, VMMCB_GETS = 3, VMMCB_GET_BYTES = 4 };

/*
 * The mapped path of an import: all that C needs to send and get without Go. It does not change.
 * The words that it points to are the ones that Go itself reads, most of them in Go's heap: nothing
 * is derived from them. Go keeps the structure and all of these words where they are until C's
 * threads have left it (see struct vmmcb_epoch). C only loads them, but for the counters.
 */
struct vmmcb_path {
    uint64_t handle, begin, size; /* as in the import's entry */
    uint32_t rights;              /* what C may do: VMMCB_EXPORT_READ, VMMCB_EXPORT_WRITE */
    uint32_t alive;               /* what *state is while the export lives */
    unsigned char *mem;           /* the export's pages */
    uint64_t address;             /* the export's address on the board, 0 for none */
    const uint32_t *state;        /* of the export, in the exporter's page */
    const uint32_t *sleepers;     /* the exporter's sleepers: how many, */
    const uint32_t *sleepers_any; /* those that may wait for any word, */
    const uint64_t *sleepers_at;  /* and the addresses of the others' words */
    const int32_t *pending;       /* the link's deferred operations */
    const uint64_t *last_seq;     /* the last message begun on the link's stream, */
    const uint64_t *acked_seq;    /* and the last one that was applied */
    const uint32_t *link_ended;
    const uint32_t *import_ended;
    const uint32_t *closed;
    uint64_t (*lanes)[VMMCB_COUNTERS];
};

/* An import, as far as C must know it. Go writes it; `handle` is stored last and cleared first. */
struct vmmcb_import {
    uint64_t handle; /* 0: closed */
    uint64_t begin;  /* the first address in DestSpace */
    uint64_t size;   /* bytes */
    uint64_t mapped;
    const struct vmmcb_path *path; /* NULL: closed to C. Loaded only inside an epoch. */
};

/*
 * What libvipl's polls read. It is with these structures as with the mapped path: Go's own words,
 * most of them in Go's heap, which Go keeps where they are until C's threads have left them. C only
 * loads them, but for `polls`.
 */

/* The words of a link between two NICs: nothing has arrived while these are equal by pairs. */
struct vmmcb_vip_link {
    const uint32_t *head, *seen_head;
    const uint32_t *taken, *seen_taken;
};

/* The links of a NIC. It does not change: another set of links is another structure. */
struct vmmcb_vip_links {
    uint64_t n;
    const struct vmmcb_vip_link *link;
};

struct vmmcb_vip_news {
    const struct vmmcb_vip_links *links; /* NULL: none. Loaded only inside an epoch. */
    uint32_t polls; /* C counts here, so that the links' goroutines see that the program polls */
};

/* A queue of a VI, or the entries of a completion queue. */
struct vmmcb_vip_queue {
    const int32_t *outstanding; /* descriptors that are not complete; NULL for entries */
    const int32_t *complete;    /* what can be taken, or below 0: the queue was destroyed */
};

/* A VI, or a completion queue, which has only the first queue. It does not change. */
struct vmmcb_vip_poll {
    uint64_t handle;
    struct vmmcb_vip_news *news;
    struct vmmcb_vip_queue queue[2]; /* that of SENDs, that of receives */
};

/*
 * The end of data of an export: what C needs to read and clear it without Go. It does not change.
 * As with a path, the words are the ones that Go itself uses, and Go keeps all of it until C's
 * threads have left it. They are the export's while *version is `at`, which C compares before and
 * after. C stores `last` and `cleared`.
 */
struct vmmcb_end {
    uint64_t handle;         /* the export's */
    uint64_t size;           /* bytes */
    const uint32_t *version; /* NULL: not redirectable, so no data has an end */
    uint64_t *last;          /* the offset behind the stream's last message; 0 for none */
    uint32_t at;
    uint32_t unused;
    /*
     * Of the importer that has it mapped, or NULL: how many of its messages are not the last one,
     * and how many there are. Of number n the last word is at the offset *ends[n % 2].
     */
    uint64_t *cleared;
    const uint64_t *messages;
    const uint64_t *ends[2];
};

/* An export, as far as C must know it. */
struct vmmcb_export {
    const struct vmmcb_end *end; /* NULL: Go is to be asked. Loaded only inside an epoch. */
};

/*
 * Reports whether a thread may be using a path or an end. `now` is odd while it may: the address of
 * the thread's frame with the lowest bit set, below a count. Go clears an import's `path` or an
 * export's `end`, issues membarrier, and waits until each odd `now` that it saw has changed. C
 * stores `now` and then loads `path` or `end`. So either C loads NULL, or Go sees the odd value.
 */
struct vmmcb_epoch {
    uint64_t now;
    uint32_t taken; /* 1: a thread has it */
    uint32_t unused[13];
};

#define VMMCB_EPOCHS (1u << 16) /* threads beyond these always enter Go */
#define VMMCB_FRAME_BITS 48

/* DestSpace: an address >> VMMCB_TOP_SHIFT indexes `top`, and the next bits a leaf. */
#define VMMCB_ADDR_BITS 48
#define VMMCB_TOP_SHIFT 30
#define VMMCB_SLOT_SHIFT 16
#define VMMCB_TOPS (1u << (VMMCB_ADDR_BITS - VMMCB_TOP_SHIFT))
#define VMMCB_SLOTS (1u << (VMMCB_TOP_SHIFT - VMMCB_SLOT_SHIFT))
#define VMMCB_IMPORTS (1u << 20)
#define VMMCB_EXPORTS VMMCB_IMPORTS /* the number of one is in the low bits of its handle */
#define VMMCB_REQUESTS (1u << 14)
#define VMMCB_NO_IMPORT 0x80000000u /* a slot of DestSpace that no import has */

/* What both parts share. C makes it, and gives it to vmmcgo_start. */
struct vmmcb_shared {
    uint32_t layout;
    int32_t event;             /* the descriptor of an eventfd */
    struct vmmcb_record *head; /* the list of queued records, newest first */
    int32_t debug;             /* the level of vmmc_SetDebugLevel */
    uint32_t now_calls;        /* how often C has called vmmcgo_now */
    uint32_t queued;           /* how often C has queued a record */
    const char *env[16];        /* NAME=VALUE as the C program sees it; ends with a null pointer */
    uint32_t **top;            /* VMMCB_TOPS leaves of VMMCB_SLOTS numbers of imports, 0 for none */
    struct vmmcb_import *imports; /* VMMCB_IMPORTS entries */
    struct vmmcb_export *exports; /* VMMCB_EXPORTS entries */
    struct vmmcb_epoch *epochs;   /* VMMCB_EPOCHS of them */
    /* VIs and completion queues by the numbers in their handles: VMMCB_IMPORTS entries each. NULL:
       there is none. Loaded only inside an epoch. */
    const struct vmmcb_vip_poll **vip_vis, **vip_cqs;
    uint32_t epochs_used;         /* how many were ever taken */
    uint32_t barriers;            /* 1: there is no membarrier, so C stores `now` with a barrier */
    uint32_t joined;              /* 1: the process has joined its node */
    uint32_t ended;               /* how many exports and imports the program has closed */
    /*
     * VMMCB_REQUESTS numbers: of the last request that has succeeded of those whose numbers leave
     * the same rest. Go stores the number after the transfer, of requests on mapped memory.
     */
    const uint64_t *requests;
    /*
     * Blocking of notifications. C adds a level and then loads `running`. Go stores `running`, and
     * then loads `levels`, before it takes a notification for a handler. C takes the last level
     * away and then loads `pending`. Go stores `pending`, and then loads `levels`, before it
     * sleeps. So of each pair one side sees the other's store. All are sequentially consistent.
     */
    char apart[64];   /* from what each send loads */
    uint32_t levels;  /* of blocking; above 0: no handler begins. Go only loads it. */
    uint32_t running; /* a futex: VMMCB_IDLE; a handler runs: VMMCB_RUNNING or _AWAITED */
    uint32_t pending; /* 1: Go sleeps until `levels` is 0 and C has written to `event` */
};

/* Go stores 0 and 1. C stores 2 where there is 1, and sleeps until it is 0. */
enum { VMMCB_IDLE, VMMCB_RUNNING, VMMCB_AWAITED };

#endif
