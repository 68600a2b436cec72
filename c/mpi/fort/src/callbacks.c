/* Functions of the program, which libmpi_abi calls as C has them. */
#include "fort.h"

#include <pthread.h>

typedef void function(void);

/*
 * Operations and error handlers get nothing that tells the program's function, so each of these has
 * a function in C of its own. So many different ones a program can have of each type.
 */
#define MOST 256
#define EACH16(M, N)                                                                     \
    M(N##0) M(N##1) M(N##2) M(N##3) M(N##4) M(N##5) M(N##6) M(N##7) M(N##8) M(N##9)      \
    M(N##a) M(N##b) M(N##c) M(N##d) M(N##e) M(N##f)
#define EACH(M)                                                                          \
    EACH16(M, 0x0) EACH16(M, 0x1) EACH16(M, 0x2) EACH16(M, 0x3) EACH16(M, 0x4)           \
    EACH16(M, 0x5) EACH16(M, 0x6) EACH16(M, 0x7) EACH16(M, 0x8) EACH16(M, 0x9)           \
    EACH16(M, 0xa) EACH16(M, 0xb) EACH16(M, 0xc) EACH16(M, 0xd) EACH16(M, 0xe) EACH16(M, 0xf)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of a function in a table, or MOST if the table is full. */
static int place(function *table[MOST], function *f) {
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < MOST && table[i] && table[i] != f) {
        i++;
    }
    if (i < MOST) {
        __atomic_store_n(&table[i], f, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return i;
}

static function *at(function *table[MOST], int i) {
    return __atomic_load_n(&table[i], __ATOMIC_ACQUIRE);
}

#define WRAP(NAME)                                                 \
    MPI_##NAME *mpif_wrap_##NAME(mpif_##NAME *f) {                 \
        int i = place(NAME##s, (function *)f);                     \
        return i < MOST ? NAME##_slots[i] : NULL;                  \
    }

#define OPERATION(NAME, COUNT)                                                          \
    static function *NAME##s[MOST];                                                     \
    static void NAME##_run(int i, void *in, void *inout, COUNT *n, MPI_Datatype *type) { \
        int t = PMPI_Type_toint(*type);                                                 \
        ((mpif_##NAME *)at(NAME##s, i))(in, inout, n, &t);                              \
    }

OPERATION(User_function, int)
#define SLOT(N)                                                                    \
    static void op_##N(void *in, void *inout, int *n, MPI_Datatype *type) {        \
        User_function_run(N, in, inout, n, type);                                  \
    }
EACH(SLOT)
#undef SLOT
#define SLOT(N) op_##N,
static MPI_User_function *const User_function_slots[MOST] = {EACH(SLOT)};
#undef SLOT
WRAP(User_function)

OPERATION(User_function_c, MPI_Count)
#define SLOT(N)                                                                     \
    static void opc_##N(void *in, void *inout, MPI_Count *n, MPI_Datatype *type) {  \
        User_function_c_run(N, in, inout, n, type);                                 \
    }
EACH(SLOT)
#undef SLOT
#define SLOT(N) opc_##N,
static MPI_User_function_c *const User_function_c_slots[MOST] = {EACH(SLOT)};
#undef SLOT
WRAP(User_function_c)

#define ERRHANDLER(OBJECT)                                                              \
    static function *OBJECT##_errhandler_functions[MOST];                               \
    static void OBJECT##_errhandler_run(int i, MPI_##OBJECT *object, int *code) {       \
        int o = PMPI_##OBJECT##_toint(*object);                                         \
        ((mpif_##OBJECT##_errhandler_function *)at(OBJECT##_errhandler_functions, i))(&o, code); \
    }

ERRHANDLER(Comm)
#define SLOT(N)                                                          \
    static void comm_##N(MPI_Comm *object, int *code, ...) {             \
        Comm_errhandler_run(N, object, code);                            \
    }
EACH(SLOT)
#undef SLOT
#define SLOT(N) comm_##N,
static MPI_Comm_errhandler_function *const Comm_errhandler_function_slots[MOST] = {EACH(SLOT)};
#undef SLOT
WRAP(Comm_errhandler_function)

ERRHANDLER(Win)
#define SLOT(N)                                                        \
    static void win_##N(MPI_Win *object, int *code, ...) {             \
        Win_errhandler_run(N, object, code);                           \
    }
EACH(SLOT)
#undef SLOT
#define SLOT(N) win_##N,
static MPI_Win_errhandler_function *const Win_errhandler_function_slots[MOST] = {EACH(SLOT)};
#undef SLOT
WRAP(Win_errhandler_function)

ERRHANDLER(File)
#define SLOT(N)                                                          \
    static void file_##N(MPI_File *object, int *code, ...) {             \
        File_errhandler_run(N, object, code);                            \
    }
EACH(SLOT)
#undef SLOT
#define SLOT(N) file_##N,
static MPI_File_errhandler_function *const File_errhandler_function_slots[MOST] = {EACH(SLOT)};
#undef SLOT
WRAP(File_errhandler_function)

ERRHANDLER(Session)
#define SLOT(N)                                                             \
    static void session_##N(MPI_Session *object, int *code, ...) {          \
        Session_errhandler_run(N, object, code);                            \
    }
EACH(SLOT)
#undef SLOT
#define SLOT(N) session_##N,
static MPI_Session_errhandler_function *const Session_errhandler_function_slots[MOST] = {
    EACH(SLOT)};
#undef SLOT
WRAP(Session_errhandler_function)

/* Attributes. */

struct mpif_keyval *mpif_keyval(function *copy, function *remove, MPI_Aint extra) {
    static struct mpif_keyval *all;
    pthread_mutex_lock(&lock);
    struct mpif_keyval *k = all;
    while (k && !(k->copy == copy && k->remove == remove && k->extra == extra)) {
        k = k->next;
    }
    if (!k) {
        k = malloc(sizeof *k);
        if (k) {
            *k = (struct mpif_keyval){copy, remove, extra, all};
            all = k;
        }
    }
    pthread_mutex_unlock(&lock);
    return k;
}

/* The function gets a copy of the extra state, as two keys may have one structure. */
static int copy_attribute(int object, int keyval, void *extra, void *in, void *out, int *flag) {
    struct mpif_keyval *k = extra;
    MPI_Aint state = k->extra, old = (MPI_Aint)in, new = 0;
    int copied = 0, e = MPI_SUCCESS;
    ((mpif_copy *)k->copy)(&object, &keyval, &state, &old, &new, &copied, &e);
    *flag = copied != 0;
    if (e == MPI_SUCCESS && copied) {
        *(void **)out = (void *)new;
    }
    return e;
}

static int delete_attribute(int object, int keyval, void *value, void *extra) {
    struct mpif_keyval *k = extra;
    MPI_Aint state = k->extra, v = (MPI_Aint)value;
    int e = MPI_SUCCESS;
    ((mpif_delete *)k->remove)(&object, &keyval, &v, &state, &e);
    return e;
}

#define ATTRIBUTE(NAME, TYPE, CONVERTER)                                                     \
    int mpif_##NAME##_copy(TYPE object, int keyval, void *extra, void *in, void *out,        \
                           int *flag) {                                                      \
        return copy_attribute(PMPI_##CONVERTER##_toint(object), keyval, extra, in, out, flag); \
    }                                                                                        \
    int mpif_##NAME##_delete(TYPE object, int keyval, void *value, void *extra) {            \
        return delete_attribute(PMPI_##CONVERTER##_toint(object), keyval, value, extra);     \
    }
ATTRIBUTE(comm, MPI_Comm, Comm)
ATTRIBUTE(type, MPI_Datatype, Type)
ATTRIBUTE(win, MPI_Win, Win)

/* Those of MPI-1 have default integers. */
int mpif_old_copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
    struct mpif_keyval *k = extra;
    int c = PMPI_Comm_toint(comm), state = (int)k->extra, old = (int)(MPI_Aint)in, new = 0;
    int copied = 0, e = MPI_SUCCESS;
    ((mpif_Copy_function *)k->copy)(&c, &keyval, &state, &old, &new, &copied, &e);
    *flag = copied != 0;
    if (e == MPI_SUCCESS && copied) {
        *(void **)out = (void *)(MPI_Aint)new;
    }
    return e;
}

int mpif_old_delete(MPI_Comm comm, int keyval, void *value, void *extra) {
    struct mpif_keyval *k = extra;
    int c = PMPI_Comm_toint(comm), state = (int)k->extra, v = (int)(MPI_Aint)value;
    int e = MPI_SUCCESS;
    ((mpif_Delete_function *)k->remove)(&c, &keyval, &v, &state, &e);
    return e;
}

#define DUP(NAME, INTEGER)                                                              \
    void mpi_##NAME##_(int *object, int *keyval, INTEGER *extra, INTEGER *in,           \
                       INTEGER *out, int *flag, int *ierror) {                          \
        (void)object, (void)keyval, (void)extra;                                        \
        *out = *in;                                                                     \
        *flag = 1;                                                                      \
        *ierror = MPI_SUCCESS;                                                          \
    }
DUP(comm_dup_fn, MPI_Aint)
DUP(type_dup_fn, MPI_Aint)
DUP(win_dup_fn, MPI_Aint)
DUP(dup_fn, int)

#define NULL_COPY(NAME, INTEGER)                                                        \
    void mpi_##NAME##_(int *object, int *keyval, INTEGER *extra, INTEGER *in,           \
                       INTEGER *out, int *flag, int *ierror) {                          \
        (void)object, (void)keyval, (void)extra, (void)in, (void)out;                   \
        *flag = 0;                                                                      \
        *ierror = MPI_SUCCESS;                                                          \
    }
NULL_COPY(comm_null_copy_fn, MPI_Aint)
NULL_COPY(type_null_copy_fn, MPI_Aint)
NULL_COPY(win_null_copy_fn, MPI_Aint)
NULL_COPY(null_copy_fn, int)

#define NULL_DELETE(NAME, INTEGER)                                                      \
    void mpi_##NAME##_(int *object, int *keyval, INTEGER *value, INTEGER *extra,        \
                       int *ierror) {                                                   \
        (void)object, (void)keyval, (void)value, (void)extra;                           \
        *ierror = MPI_SUCCESS;                                                          \
    }
NULL_DELETE(comm_null_delete_fn, MPI_Aint)
NULL_DELETE(type_null_delete_fn, MPI_Aint)
NULL_DELETE(win_null_delete_fn, MPI_Aint)
NULL_DELETE(null_delete_fn, int)

/* Generalised requests. */

int mpif_grequest_query(void *extra, MPI_Status *status) {
    struct mpif_grequest *g = extra;
    int e = MPI_SUCCESS;
    g->query(&g->extra, (int *)status, &e);
    return e;
}

int mpif_grequest_free(void *extra) {
    struct mpif_grequest *g = extra;
    int e = MPI_SUCCESS;
    g->free(&g->extra, &e);
    free(g);
    return e;
}

int mpif_grequest_cancel(void *extra, int complete) {
    struct mpif_grequest *g = extra;
    int e = MPI_SUCCESS, done = complete != 0;
    g->cancel(&g->extra, &done, &e);
    return e;
}

/* Data representations of files. */

int mpif_datarep_extent(MPI_Datatype type, MPI_Aint *extent, void *extra) {
    struct mpif_datarep *d = extra;
    int e = MPI_SUCCESS, t = PMPI_Type_toint(type);
    d->extent(&t, extent, &d->extra, &e);
    return e;
}

#define CONVERSION(NAME, FUNCTION, FIELD, COUNT)                                              \
    int NAME(void *user, MPI_Datatype type, COUNT n, void *file, MPI_Offset at, void *extra) { \
        struct mpif_datarep *d = extra;                                                       \
        int e = MPI_SUCCESS, t = PMPI_Type_toint(type);                                       \
        ((FUNCTION *)d->FIELD)(user, &t, &n, file, &at, &d->extra, &e);                       \
        return e;                                                                             \
    }
CONVERSION(mpif_datarep_read, mpif_Datarep_conversion_function, read, int)
CONVERSION(mpif_datarep_write, mpif_Datarep_conversion_function, write, int)
CONVERSION(mpif_datarep_read_c, mpif_Datarep_conversion_function_c, read, MPI_Count)
CONVERSION(mpif_datarep_write_c, mpif_Datarep_conversion_function_c, write, MPI_Count)

/* A program gives these to MPI_Register_datarep. The library does not call them. */
void mpi_conversion_fn_null_(void *user, int *type, int *n, void *file, MPI_Offset *at,
                             MPI_Aint *extra, int *ierror) {
    (void)user, (void)type, (void)n, (void)file, (void)at, (void)extra;
    *ierror = MPI_ERR_CONVERSION;
}

void mpi_conversion_fn_null_c_(void *user, int *type, MPI_Count *n, void *file, MPI_Offset *at,
                               MPI_Aint *extra, int *ierror) {
    (void)user, (void)type, (void)n, (void)file, (void)at, (void)extra;
    *ierror = MPI_ERR_CONVERSION;
}
