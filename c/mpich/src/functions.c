/* Functions of the program that Go calls with values of the standard's ABI. */
#include <pthread.h>

#include "attribute.h"
#include "boundary.h"

/*
 * Records of functions are never freed, as Go may call a function after its handle was freed. A
 * function has one record for each way to call it, so there are not more of them than functions.
 */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct function *all;

/* The records of this thread's last call: what other languages add concerns them. */
static _Thread_local struct function *last[3];
static _Thread_local unsigned next;

struct function *function_of(caller *call, any_function *user) {
    pthread_mutex_lock(&mu);
    struct function *f = all;
    while (f && (f->head.call != (vmmcb_program_call *)call || f->user != user)) {
        f = f->next;
    }
    if (!f && (f = calloc(1, sizeof *f))) {
        f->head.call = (vmmcb_program_call *)call;
        f->user = user;
        f->next = all;
        all = f;
    }
    pthread_mutex_unlock(&mu);
    last[next++ % 3] = f;
    return f;
}

struct function *function_last(unsigned back) { return last[(next - 1 - back) % 3]; }

uint64_t function_in(caller *call, any_function *user) {
    struct function *f = user ? function_of(call, user) : NULL;
    return f ? ADDRESS(f) | VMMCB_PROGRAM_RECORD : 0;
}

typedef void op_function(void *, void *, int *, int *);
typedef void op_c_function(void *, void *, MPI_Count *, int *);
typedef void op_cxx(const void *, void *, int, int, any_function *);

uint64_t call_op(struct function *f, uint64_t in, uint64_t inout, uint64_t count, uint64_t type,
                 uint64_t e, uint64_t g) {
    (void)e, (void)g;
    int t = Datatype_out(*(uint64_t *)type);
    if (f->proxy) {
        ((op_cxx *)f->proxy)((void *)in, (void *)inout, *(int *)count, t, f->user);
    } else {
        ((op_function *)f->user)((void *)in, (void *)inout, (int *)count, &t);
    }
    return 0;
}

uint64_t call_op_c(struct function *f, uint64_t in, uint64_t inout, uint64_t count, uint64_t type,
                   uint64_t e, uint64_t g) {
    (void)e, (void)g;
    int t = Datatype_out(*(uint64_t *)type);
    ((op_c_function *)f->user)((void *)in, (void *)inout, (MPI_Count *)count, &t);
    return 0;
}

typedef void handler_function(void *, int *, ...);
typedef void handler_cxx(int, void *, int *, any_function *);

/*
 * kind is what MPI of C++ calls the type of the object. Its calls have the error handler called for
 * each code that a function of C returns, so there the function returns none.
 */
static void call_handler(struct function *f, int kind, void *handle, uint64_t code) {
    int c = code_out(*(int *)code);
    if (f->proxy) {
        ((handler_cxx *)f->proxy)(kind, handle, &c, f->user);
        c = 0;
    } else {
        ((handler_function *)f->user)(handle, &c);
    }
    *(int *)code = (int)code_in(c);
}

#define ERRHANDLER(NAME, TYPE, CONVERT, KIND)                                              \
    uint64_t call_##NAME##_errhandler(struct function *f, uint64_t of, uint64_t code, uint64_t c, \
                                      uint64_t d, uint64_t e, uint64_t g) {                \
        (void)c, (void)d, (void)e, (void)g;                                                \
        TYPE h = CONVERT(*(uint64_t *)of);                                                 \
        call_handler(f, KIND, &h, code);                                                   \
        return 0;                                                                          \
    }

ERRHANDLER(comm, int, Comm_out, 0)
ERRHANDLER(file, void *, File_out, 1)
ERRHANDLER(win, int, Win_out, 2)
ERRHANDLER(session, int, Session_out, 3)

/* Functions of generalized requests. Those of Fortran get all by reference, the code too. */
typedef int query_function(void *, struct mpich_status *);
typedef int free_function(void *);
typedef int cancel_function(void *, int);
typedef void query_fortran(void *, struct mpich_status *, int *);
typedef void free_fortran(void *, int *);
typedef void cancel_fortran(void *, int *, int *);

uint64_t call_grequest_query(struct function *f, uint64_t extra, uint64_t status, uint64_t c,
                             uint64_t d, uint64_t e, uint64_t g) {
    (void)c, (void)d, (void)e, (void)g;
    const int *from = (const int *)status;
    struct mpich_status s = {from[3], from[4] << 1 | (from[5] != 0), (int)rank_out(from[0]),
                             (int)tag_out(from[1]), code_out(from[2])};
    int code = 0;
    if (f->fortran) {
        ((query_fortran *)f->user)((void *)extra, &s, &code);
    } else {
        code = ((query_function *)f->user)((void *)extra, &s);
    }
    status_convert(&s, (int *)status);
    return INTEGER(code_in(code));
}

uint64_t call_grequest_free(struct function *f, uint64_t extra, uint64_t b, uint64_t c, uint64_t d,
                            uint64_t e, uint64_t g) {
    (void)b, (void)c, (void)d, (void)e, (void)g;
    int code = 0;
    if (f->fortran) {
        ((free_fortran *)f->user)((void *)extra, &code);
    } else {
        code = ((free_function *)f->user)((void *)extra);
    }
    return INTEGER(code_in(code));
}

uint64_t call_grequest_cancel(struct function *f, uint64_t extra, uint64_t complete, uint64_t c,
                              uint64_t d, uint64_t e, uint64_t g) {
    (void)c, (void)d, (void)e, (void)g;
    int code = 0, over = (int)complete;
    if (f->fortran) {
        ((cancel_fortran *)f->user)((void *)extra, &over, &code);
    } else {
        code = ((cancel_function *)f->user)((void *)extra, over);
    }
    return INTEGER(code_in(code));
}

typedef int extent_function(int, MPI_Aint *, void *);
typedef int conversion_function(void *, int, MPI_Count, void *, MPI_Offset, void *);

uint64_t call_datarep_extent(struct function *f, uint64_t type, uint64_t extent, uint64_t extra,
                             uint64_t d, uint64_t e, uint64_t g) {
    (void)d, (void)e, (void)g;
    int t = Datatype_out(type);
    return INTEGER(code_in(((extent_function *)f->user)(t, (MPI_Aint *)extent, (void *)extra)));
}

/* The form without large counts takes an int from the same register. */
uint64_t call_datarep_conversion(struct function *f, uint64_t buf, uint64_t type, uint64_t count,
                                 uint64_t file, uint64_t at, uint64_t extra) {
    conversion_function *user = (conversion_function *)f->user;
    return INTEGER(code_in(user((void *)buf, Datatype_out(type), (MPI_Count)count, (void *)file,
                                (MPI_Offset)at, (void *)extra)));
}

/* What MPI of C++ and of Fortran add to the functions that this thread's last call was given. */
API void MPII_Op_set_cxx(int op, any_function *proxy) {
    (void)op;
    if (function_last(0)) {
        function_last(0)->proxy = proxy;
    }
}

API void MPII_Errhandler_set_cxx(int errhandler, any_function *proxy) {
    (void)errhandler;
    if (function_last(0)) {
        function_last(0)->proxy = proxy;
    }
}

API void MPII_Grequest_set_lang_f77(int request) {
    (void)request;
    for (unsigned i = 0; i < 3; i++) {
        if (function_last(i)) {
            function_last(i)->fortran = 1;
        }
    }
}
