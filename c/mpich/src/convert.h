/* How arguments of calls are converted. What ends with _in is for Go, with _out for the program. */
#ifndef MPICH_CONVERT_H
#define MPICH_CONVERT_H

#include <stdlib.h>
#include <string.h>

#include "core.h"

/* Handles that the program makes are bit 31, four bits of their type, and the standard's handle. */
#define FIRST_DYNAMIC 0x1000
#define INDEX_BITS 26

/* A handle that is none keeps its number, and is none for Go either. */
static inline uint64_t dynamic_in(int h, int type) {
    uint32_t u = (uint32_t)h, index = u & ((1u << INDEX_BITS) - 1);
    if (u >> INDEX_BITS == (0x20u | (uint32_t)type) && index >= FIRST_DYNAMIC) {
        return index;
    }
    return UINT64_C(1) << 40 | u;
}

void too_many_handles(uint64_t h);

static inline int dynamic_out(uint64_t h, int type, int null) {
    if (h >> INDEX_BITS && !(h >> 40)) {
        too_many_handles(h);
    }
    return h < FIRST_DYNAMIC || h >> INDEX_BITS ? null
                                                : (int)((0x20u | (uint32_t)type) << INDEX_BITS | h);
}

#include "values.h"

/* The standard has two classes that MPICH lacks. The program's own codes follow the last code. */
#define LAST_CODE 16383
#define OWN_CODE 0x40000000

static inline int64_t code_in(int64_t code) {
    return code & OWN_CODE ? (code & ~(int64_t)OWN_CODE) + LAST_CODE : class_in(code);
}

static inline int code_out(int64_t code) {
    switch (code) {
    case 0: return 0;
    case 61: return WRONG_ARGUMENT; /* MPI_ERR_ERRHANDLER */
    case 62: return 15;             /* MPI_ERR_ABI: MPI_ERR_OTHER */
    }
    return (int)(code > LAST_CODE ? OWN_CODE | (code - LAST_CODE) : class_out(code));
}

#define KEYVAL_TYPE 9

static inline int64_t keyval_in(int64_t key) {
    uint64_t h = dynamic_in((int)key, KEYVAL_TYPE);
    if (!(h >> 40)) {
        return (int64_t)h;
    }
    int64_t named = named_key_in(key);
    return named == key ? NO_VALUE : named;
}

static inline int keyval_out(int64_t key) {
    return key < FIRST_DYNAMIC ? (int)named_key_out(key)
                               : dynamic_out((uint64_t)key, KEYVAL_TYPE, 0x24000000);
}

/*
 * Memory for what Go stores, in words. It is not the stack's: a thread may leave a call by
 * siglongjmp, and Go then still writes.
 */
static inline uint64_t *room(size_t words) { return malloc((words ? words : 1) * 8); }

static inline size_t items(int64_t n) { return n > 0 ? (size_t)n : 0; }

/* What has not changed is not stored: the program's own value may have several forms. */
#define HANDLES(NAME)                                                                       \
    static inline uint64_t NAME##_at_in(const int *h, uint64_t *m) {                        \
        if (h) {                                                                            \
            *m = NAME##_in(*h);                                                             \
        }                                                                                   \
        return h ? ADDRESS(m) : 0;                                                          \
    }                                                                                       \
    static inline void NAME##_at_out(int *h, const uint64_t *m) {                           \
        if (h && *m != NAME##_in(*h)) {                                                     \
            *h = NAME##_out(*m);                                                            \
        }                                                                                   \
    }                                                                                       \
    static inline uint64_t NAME##_array_in(const int *h, int64_t n, uint64_t *m) {          \
        for (size_t i = 0; h && i < items(n); i++) {                                        \
            m[i] = NAME##_in(h[i]);                                                         \
        }                                                                                   \
        return h ? ADDRESS(m) : 0;                                                          \
    }                                                                                       \
    static inline void NAME##_array_out(int *h, int64_t n, const uint64_t *m) {             \
        for (size_t i = 0; h && i < items(n); i++) {                                        \
            NAME##_at_out(h + i, m + i);                                                    \
        }                                                                                   \
    }

HANDLES(Comm)
HANDLES(Datatype)
HANDLES(Errhandler)
HANDLES(Group)
HANDLES(Info)
HANDLES(Message)
HANDLES(Op)
HANDLES(Request)
HANDLES(Session)
HANDLES(Win)

/* MPI_File is a pointer, whose value is the standard's handle, and NULL is MPI_FILE_NULL. */
#define FILE_NULL 0x118

static inline uint64_t File_in(const void *h) { return h ? ADDRESS(h) : FILE_NULL; }

static inline void *File_out(uint64_t h) { return h == FILE_NULL ? NULL : (void *)(uintptr_t)h; }

static inline uint64_t File_at_in(void *const *h, uint64_t *m) {
    if (h) {
        *m = File_in(*h);
    }
    return h ? ADDRESS(m) : 0;
}

static inline void File_at_out(void **h, const uint64_t *m) {
    if (h && *m != File_in(*h)) {
        *h = File_out(*m);
    }
}

/* A status of the standard has eight ints: source, tag, error, the bytes, cancelled or not. */
#define STATUS_WORDS ((size_t)4)
#define STATUS_IGNORE ((const struct mpich_status *)1)

static inline void status_convert(const struct mpich_status *s, int *to) {
    to[0] = (int)rank_in(s->source);
    to[1] = (int)tag_in(s->tag);
    to[2] = (int)code_in(s->error);
    to[3] = s->count_lo;
    to[4] = (int)((unsigned)s->count_hi_and_cancelled >> 1);
    to[5] = s->count_hi_and_cancelled & 1;
    to[6] = to[7] = 0;
}

static inline uint64_t status_in(const struct mpich_status *s, uint64_t *m) {
    if (!s || s == STATUS_IGNORE) {
        return 0;
    }
    status_convert(s, (int *)m);
    return ADDRESS(m);
}

static inline void status_out(struct mpich_status *s, const uint64_t *m) {
    if (!s || s == STATUS_IGNORE) {
        return;
    }
    const int *from = (const int *)m;
    int was[8];
    status_convert(s, was);
    if (from[0] != was[0]) {
        s->source = (int)rank_out(from[0]);
    }
    if (from[1] != was[1]) {
        s->tag = (int)tag_out(from[1]);
    }
    if (from[2] != was[2]) {
        s->error = code_out(from[2]);
    }
    s->count_lo = from[3];
    s->count_hi_and_cancelled = (int)((unsigned)from[4] << 1 | (unsigned)(from[5] != 0));
}

static inline uint64_t statuses_in(const struct mpich_status *s, int64_t n, uint64_t *m) {
    if (!s || s == STATUS_IGNORE) {
        return 0;
    }
    for (size_t i = 0; i < items(n); i++) {
        status_in(s + i, m + STATUS_WORDS * i);
    }
    return ADDRESS(m);
}

static inline void statuses_out(struct mpich_status *s, int64_t n, const uint64_t *m) {
    for (size_t i = 0; s && s != STATUS_IGNORE && i < items(n); i++) {
        status_out(s + i, m + STATUS_WORDS * i);
    }
}

/* MPI_IN_PLACE and MPI_BUFFER_AUTOMATIC. */
static inline uint64_t buffer_in(const void *p) {
    switch ((intptr_t)p) {
    case -1: return 1;
    case -2: return 2;
    }
    return ADDRESS(p);
}

extern API int *const MPI_UNWEIGHTED;
extern API int *const MPI_WEIGHTS_EMPTY;
extern API void *const MPI_T_PVAR_ALL_HANDLES;

static inline uint64_t weights_in(const int *p) {
    return p && p == MPI_UNWEIGHTED ? 10 : p && p == MPI_WEIGHTS_EMPTY ? 11 : ADDRESS(p);
}

static inline uint64_t all_handles_in(const void *p) {
    return p == MPI_T_PVAR_ALL_HANDLES ? 1 : ADDRESS(p);
}

typedef int64_t conversion(int64_t);

static inline uint64_t ints_in(const int *p, int64_t n, uint64_t *m, conversion *convert) {
    for (size_t i = 0; p && i < items(n); i++) {
        ((int *)m)[i] = (int)convert(p[i]);
    }
    return p ? ADDRESS(m) : 0;
}

#define RESULT(p, convert) \
    if (p) {               \
        *p = (int)convert(*p); \
    }
#define EACH(p, n, convert)                            \
    for (size_t each = 0; p && each < items(n); each++) { \
        p[each] = (int)convert(p[each]);               \
    }

/* Strings that are shorter in MPICH. */
static inline uint64_t string_in(const char *p, uint64_t *m) {
    *m = 0;
    return p ? ADDRESS(m) : 0;
}

static inline int string_out(char *p, const uint64_t *m, size_t size) {
    size_t n = strnlen((const char *)m, size - 1);
    if (p) {
        memcpy(p, m, n);
        p[n] = 0;
    }
    return (int)n;
}

static inline void resultlen_out(int n, int *resultlen) {
    if (resultlen && *resultlen > n) {
        *resultlen = n;
    }
}

/* How many datatypes an array has that goes to all ranks, or comes from them. */
struct peers {
    int to, from;
};

struct peers peers_of(int comm, int neighbors);

/* A function of the program, for Go. call is what calls it with MPICH's values. */
struct function;
typedef uint64_t caller(struct function *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t);
typedef void any_function(void);

uint64_t function_in(caller *call, any_function *user);

caller call_op, call_op_c, call_comm_errhandler, call_win_errhandler, call_file_errhandler,
    call_session_errhandler, call_grequest_query, call_grequest_free, call_grequest_cancel,
    call_datarep_extent, call_datarep_conversion;

#endif
