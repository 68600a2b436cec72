/*
 * Attributes. A value belongs to the language that has set it: C gets the address of an integer of
 * Fortran, and Fortran the address that C has set as an integer. So the value that Go keeps is the
 * address of a record, and each key has a copy and a delete function of this library.
 */
#include "attribute.h"

/* How a language sees values. The numbers are those that libmpichfort passes. */
enum attribute_type { POINTER = 0, WIDE_INTEGER = 1, NARROW_INTEGER = 3 };

struct attribute {
    enum attribute_type type;
    void *value;
};

static struct attribute *attribute_new(enum attribute_type type, void *value) {
    struct attribute *a = malloc(sizeof *a);
    if (a) {
        *a = (struct attribute){type, value};
    }
    return a;
}

/* The value as C sees it. */
static void *attribute_pointer(struct attribute *a) {
    return a->type == POINTER ? a->value : &a->value;
}

API int MPIR_Dup_fn(int comm, int key, void *extra, void *value, void *out, int *flag) {
    (void)comm, (void)key, (void)extra;
    *flag = 1;
    *(void **)out = value;
    return 0;
}

typedef int copy_function(int, int, void *, void *, void *, int *);
typedef int delete_function(int, int, void *, void *);
typedef int copy_proxy(any_function *, int, int, void *, int, void *, void **, int *);
typedef int delete_proxy(any_function *, int, int, int, void *, void *);

static uint64_t copy(struct function *f, int handle, uint64_t key, uint64_t extra, uint64_t value,
                     uint64_t out, uint64_t flag) {
    struct attribute *a = (struct attribute *)value;
    void *copied = a->value;
    int code = 0, *const copies = (int *)flag, k = keyval_out((int64_t)key);
    if (f->user == (any_function *)MPIR_Dup_fn) {
        *copies = 1;
    } else if (f->proxy) {
        code = ((copy_proxy *)f->proxy)(f->user, handle, k, (void *)extra, (int)a->type, a->value,
                                        &copied, copies);
    } else {
        code = ((copy_function *)f->user)(handle, k, (void *)extra, attribute_pointer(a), &copied,
                                          copies);
    }
    if (code == 0 && *copies) {
        /* What a function of C gives is a pointer, but a pointer to an integer was its value. */
        struct attribute *b = attribute_new(f->proxy || f->user == (any_function *)MPIR_Dup_fn
                                                ? a->type : POINTER, copied);
        if (!b) {
            return INTEGER(code_in(NO_MEMORY));
        }
        *(uint64_t *)out = ADDRESS(b);
    }
    return INTEGER(code_in(code));
}

static uint64_t delete(struct function *f, int handle, uint64_t key, uint64_t value,
                       uint64_t extra) {
    struct attribute *a = (struct attribute *)value;
    int code = 0, k = keyval_out((int64_t)key);
    if (f->user && f->proxy) {
        code = ((delete_proxy *)f->proxy)(f->user, handle, k, (int)a->type, a->value,
                                          (void *)extra);
    } else if (f->user) {
        code = ((delete_function *)f->user)(handle, k, attribute_pointer(a), (void *)extra);
    }
    if (code == 0) {
        free(a);
    }
    return INTEGER(code_in(code));
}

#define FUNCTIONS(NAME, CONVERT)                                                                  \
    static uint64_t NAME##_copy(struct function *f, uint64_t h, uint64_t key, uint64_t extra,     \
                                uint64_t value, uint64_t out, uint64_t flag) {                    \
        return copy(f, CONVERT(h), key, extra, value, out, flag);                                 \
    }                                                                                             \
    static uint64_t NAME##_delete(struct function *f, uint64_t h, uint64_t key, uint64_t value,   \
                                  uint64_t extra, uint64_t e, uint64_t g) {                       \
        (void)e, (void)g;                                                                         \
        return delete (f, CONVERT(h), key, value, extra);                                         \
    }

FUNCTIONS(comm, Comm_out)
FUNCTIONS(type, Datatype_out)
FUNCTIONS(win, Win_out)

/* Values are freed by the delete function, so a key has one also if the program gives none. */
static int create(uint32_t number, const char *name, caller *copier, caller *deleter,
                  any_function *copies, any_function *deletes, int *key, void *extra) {
    uint64_t by = copies ? function_in(copier, copies) : 0;
    struct function *f = function_of(deleter, deletes);
    if (!f || (copies && !by)) {
        return NO_MEMORY;
    }
    const uint64_t args[] = {by, ADDRESS(f) | VMMCB_PROGRAM_RECORD, ADDRESS(key), ADDRESS(extra)};
    int code = code_out(mpi_call(number, name, args, 4));
    if (code == 0) {
        *key = keyval_out(*key);
    }
    return code;
}

static int free_key(uint32_t number, const char *name, int *key) {
    int k = key ? (int)keyval_in(*key) : 0;
    const uint64_t args[] = {key ? ADDRESS(&k) : 0};
    int code = code_out(mpi_call(number, name, args, 1));
    if (code == 0) {
        *key = keyval_out(k);
    }
    return code;
}

static int set(uint32_t number, const char *name, uint64_t of, int key, void *value,
               enum attribute_type type) {
    struct attribute *a = attribute_new(type, value);
    if (!a) {
        return NO_MEMORY;
    }
    const uint64_t args[] = {of, INTEGER(keyval_in(key)), ADDRESS(a)};
    int code = code_out(mpi_call(number, name, args, 3));
    if (code) {
        free(a);
    }
    return code;
}

/* The keys that the standard has named, for C. That of Fortran is one more. */
enum {
    KEY_HOST = 0x64400003,
    KEY_IO = 0x64400005,
    KEY_LASTUSEDCODE = 0x6440000b,
    KEY_WIN_BASE = 0x66000001,
    KEY_WIN_SIZE = 0x66000003,
    KEY_WIN_CREATE_FLAVOR = 0x66000007,
    KEY_WIN_MODEL = 0x66000009,
};

/* A named key's value is an address. This is that of MPICH's value. */
static void *named(int key, void *value) {
    static const int flavors[] = {0, 1, 2, 3, 4}, models[] = {0, 1, 2};
    static int host, io, last;
    switch (key) {
    case KEY_HOST: host = (int)rank_out(*(int *)value); return &host;
    case KEY_IO: io = (int)rank_out(*(int *)value); return &io;
    case KEY_LASTUSEDCODE: {
        int code = *(int *)value;
        last = code > LAST_CODE ? code_out(code) : 0x3fffffff;
        return &last;
    }
    case KEY_WIN_CREATE_FLAVOR: return (void *)&flavors[flavor_out(*(int *)value) % 5];
    case KEY_WIN_MODEL: return (void *)&models[model_out(*(int *)value) % 3];
    }
    return value;
}

static int get(uint32_t number, const char *name, uint64_t of, int key, void *out, int *flag,
               enum attribute_type type) {
    /* Named keys are odd for C, and one more for Fortran. */
    uint32_t u = (uint32_t)key;
    int is_named = u >> 26 == 0x19, c = is_named && u % 2 == 0 ? key - 1 : key;
    void *found = NULL;
    int has = 0;
    const uint64_t args[] = {of, INTEGER(keyval_in(c)), out ? ADDRESS(&found) : 0,
                             flag ? ADDRESS(&has) : 0};
    int code = code_out(mpi_call(number, name, args, 4));
    if (code) {
        return code;
    }
    *flag = has;
    if (!has) {
        return 0;
    }
    if (!is_named) {
        struct attribute *a = found;
        *(void **)out = type == POINTER ? attribute_pointer(a) : a->value;
        return 0;
    }
    found = named(c, found);
    if (c != key || type != POINTER) { /* Fortran's are integers. */
        intptr_t v = c == KEY_WIN_BASE ? (intptr_t)found
                     : c == KEY_WIN_SIZE ? *(MPI_Aint *)found : *(int *)found;
        found = (void *)v;
    }
    *(void **)out = found;
    return 0;
}

#define CREATE(NAME, KIND)                                                                         \
    API int PMPI_##NAME(any_function *copies, any_function *deletes, int *key, void *extra) {      \
        return create(CALL_MPI_##NAME, "MPI_" #NAME, KIND##_copy, KIND##_delete, copies, deletes,  \
                      key, extra);                                                                 \
    }                                                                                              \
    ALIAS(NAME)

#define FREE(NAME)                                                                                 \
    API int PMPI_##NAME(int *key) { return free_key(CALL_MPI_##NAME, "MPI_" #NAME, key); }         \
    ALIAS(NAME)

#define SET(NAME, CONVERT)                                                                         \
    API int PMPI_##NAME(int of, int key, void *value) {                                            \
        return set(CALL_MPI_##NAME, "MPI_" #NAME, CONVERT(of), key, value, POINTER);               \
    }                                                                                              \
    ALIAS(NAME)

#define GET(NAME, CONVERT)                                                                         \
    API int PMPI_##NAME(int of, int key, void *value, int *flag) {                                 \
        return get(CALL_MPI_##NAME, "MPI_" #NAME, CONVERT(of), key, value, flag, POINTER);         \
    }                                                                                              \
    ALIAS(NAME)

/* Those of libmpichfort, which say how Fortran sees the value. */
#define FORTRAN(NAME, CONVERT)                                                                     \
    API int MPII_##NAME##_set_attr(int of, int key, void *value, int type) {                       \
        return set(CALL_MPI_##NAME##_set_attr, "MPI_" #NAME "_set_attr", CONVERT(of), key, value,  \
                   (enum attribute_type)type);                                                     \
    }                                                                                              \
    API int MPII_##NAME##_get_attr(int of, int key, void *value, int *flag, int type) {            \
        return get(CALL_MPI_##NAME##_get_attr, "MPI_" #NAME "_get_attr", CONVERT(of), key, value,  \
                   flag, (enum attribute_type)type);                                               \
    }

CREATE(Comm_create_keyval, comm);
CREATE(Type_create_keyval, type);
CREATE(Win_create_keyval, win);
CREATE(Keyval_create, comm);
FREE(Comm_free_keyval);
FREE(Type_free_keyval);
FREE(Win_free_keyval);
FREE(Keyval_free);
SET(Comm_set_attr, Comm_in);
SET(Type_set_attr, Datatype_in);
SET(Win_set_attr, Win_in);
SET(Attr_put, Comm_in);
GET(Comm_get_attr, Comm_in);
GET(Type_get_attr, Datatype_in);
GET(Win_get_attr, Win_in);
GET(Attr_get, Comm_in);
FORTRAN(Comm, Comm_in)
FORTRAN(Type, Datatype_in)
FORTRAN(Win, Win_in)

/* Of the key that this thread has just made. */
API void MPII_Keyval_set_proxy(int key, any_function *copies, any_function *deletes) {
    (void)key;
    for (unsigned i = 0; i < 2; i++) {
        struct function *f = function_last(i);
        if (f && f->user && f->user != (any_function *)MPIR_Dup_fn) {
            f->proxy = i == 0 ? deletes : copies;
        }
    }
}
