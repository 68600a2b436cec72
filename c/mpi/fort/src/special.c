/* Functions that the generator cannot write. */
#include "fort.h"

#include <string.h>

API void F77(init)(int *ierror) {
    mpif_register();
    int e = CALL(Init)(NULL, NULL);
    IERROR(e);
}
SAME(init);

API void F77(init_thread)(const int *required, int *provided, int *ierror) {
    mpif_register();
    int e = CALL(Init_thread)(NULL, NULL, *required, provided);
    IERROR(e);
}
SAME(init_thread);

API void F77(session_init)(const int *info, const int *errhandler, int *session, int *ierror) {
    mpif_register();
    MPI_Session c_session = MPI_SESSION_NULL;
    int e = CALL(Session_init)(PMPI_Info_fromint(*info), PMPI_Errhandler_fromint(*errhandler),
                               &c_session);
    if (e == MPI_SUCCESS) {
        *session = PMPI_Session_toint(c_session);
    }
    IERROR(e);
}
SAME(session_init);

API double F77(wtime)(void) { return CALL(Wtime)(); }
SAME(wtime);

API double F77(wtick)(void) { return CALL(Wtick)(); }
SAME(wtick);

API MPI_Aint F77(aint_add)(const MPI_Aint *base, const MPI_Aint *disp) {
    return CALL(Aint_add)(*base, *disp);
}
SAME(aint_add);

API MPI_Aint F77(aint_diff)(const MPI_Aint *addr1, const MPI_Aint *addr2) {
    return CALL(Aint_diff)(*addr1, *addr2);
}
SAME(aint_diff);

API void F77(pcontrol)(const int *level) { CALL(Pcontrol)(*level); }
SAME(pcontrol);

/* Its call keeps the compiler from holding the buffer in registers. */
API void F77(f_sync_reg)(void *buf) { (void)buf; }
SAME(f_sync_reg);

API void F77(status_f2f08)(const int *f_status, int *f08_status, int *ierror) {
    memmove(f08_status, f_status, sizeof(MPI_Status));
    IERROR(MPI_SUCCESS);
}

API void F77(status_f082f)(const int *f08_status, int *f_status, int *ierror) {
    memmove(f_status, f08_status, sizeof(MPI_Status));
    IERROR(MPI_SUCCESS);
}

/* Module procedures tell the types apart, so each function knows the size. */
#define SIZEOF(NAME, SIZE)                                                \
    API void F77(sizeof_##NAME)(const void *x, int *size, int *ierror) {  \
        (void)x;                                                          \
        *size = SIZE;                                                     \
        IERROR(MPI_SUCCESS);                                              \
    }
SIZEOF(character, 1)
SIZEOF(logical1, 1)
SIZEOF(logical2, 2)
SIZEOF(logical4, 4)
SIZEOF(logical8, 8)
SIZEOF(integer1, 1)
SIZEOF(integer2, 2)
SIZEOF(integer4, 4)
SIZEOF(integer8, 8)
SIZEOF(integer16, 16)
SIZEOF(real4, 4)
SIZEOF(real8, 8)
SIZEOF(real10, 16)
SIZEOF(real16, 16)
SIZEOF(complex8, 8)
SIZEOF(complex16, 16)
SIZEOF(complex20, 32)
SIZEOF(complex32, 32)

/* Info: lengths do not count the character that ends a text in C. */

API void F77(info_create_env)(int *info, int *ierror) {
    MPI_Info c_info = MPI_INFO_NULL;
    int e = CALL(Info_create_env)(0, NULL, &c_info);
    if (e == MPI_SUCCESS) {
        *info = PMPI_Info_toint(c_info);
    }
    IERROR(e);
}
SAME(info_create_env);

API void F77(info_get)(const int *info, const char *key, const int *valuelen, char *value,
                       int *flag, int *ierror, size_t key_len, size_t value_len) {
    int e = MPI_ERR_NO_MEM, c_flag = 0;
    char *c_key = mpif_word(key, key_len);
    char *c_value = malloc(*valuelen > 0 ? (size_t)*valuelen + 1 : 1);
    if (c_key && c_value) {
        c_value[0] = 0;
        e = CALL(Info_get)(PMPI_Info_fromint(*info), c_key, *valuelen, c_value, &c_flag);
    }
    if (e == MPI_SUCCESS) {
        *flag = c_flag != 0;
        if (c_flag) {
            mpif_pad(value, value_len, c_value);
        }
    }
    free(c_key);
    free(c_value);
    IERROR(e);
}
SAME(info_get);

API void F77(info_get_string)(const int *info, const char *key, int *buflen, char *value,
                              int *flag, int *ierror, size_t key_len, size_t value_len) {
    int e = MPI_ERR_NO_MEM, c_flag = 0, n = *buflen > 0 ? *buflen + 1 : *buflen;
    char *c_key = mpif_word(key, key_len);
    char *c_value = malloc(n > 0 ? (size_t)n : 1);
    if (c_key && c_value) {
        c_value[0] = 0;
        e = CALL(Info_get_string)(PMPI_Info_fromint(*info), c_key, &n, c_value, &c_flag);
    }
    if (e == MPI_SUCCESS) {
        *flag = c_flag != 0;
        if (c_flag) {
            if (*buflen > 0) {
                mpif_pad(value, value_len, c_value);
            }
            *buflen = n - 1;
        }
    }
    free(c_key);
    free(c_value);
    IERROR(e);
}
SAME(info_get_string);

API void F77(session_get_nth_pset)(const int *session, const int *info, const int *n, int *pset_len,
                                   char *pset_name, int *ierror, size_t pset_name_len) {
    int e = MPI_ERR_NO_MEM, len = *pset_len > 0 ? *pset_len + 1 : *pset_len;
    char *name = malloc(len > 0 ? (size_t)len : 1);
    if (name) {
        name[0] = 0;
        e = CALL(Session_get_nth_pset)(PMPI_Session_fromint(*session), PMPI_Info_fromint(*info), *n,
                                       &len, name);
    }
    if (e == MPI_SUCCESS) {
        if (*pset_len > 0) {
            mpif_pad(pset_name, pset_name_len, name);
        }
        *pset_len = len - 1;
    }
    free(name);
    IERROR(e);
}
SAME(session_get_nth_pset);

/* Buffers: in mpif.h and module mpi the address is not used, as the standard says. */

static void detached(void **address) {
    if (*address == MPI_BUFFER_AUTOMATIC) {
        *address = &mpif_buffer_automatic_;
    }
}

#define DETACH(C, SUFFIX, COUNT, PARAMETER, ARGUMENT)                                       \
    API void F08(SUFFIX)(PARAMETER void **buffer_addr, COUNT *size, int *ierror) {          \
        void *address = NULL;                                                               \
        int e = CALL(C)(ARGUMENT &address, size);                                           \
        if (e == MPI_SUCCESS) {                                                             \
            detached(&address);                                                             \
            *buffer_addr = address;                                                         \
        }                                                                                   \
        IERROR(e);                                                                          \
    }
#define DETACH_F77(C, SUFFIX, PARAMETER, ARGUMENT)                                          \
    API void F77(SUFFIX)(PARAMETER void *buffer_addr, int *size, int *ierror) {             \
        void *address = NULL;                                                               \
        (void)buffer_addr;                                                                  \
        int e = CALL(C)(ARGUMENT &address, size);                                           \
        IERROR(e);                                                                          \
    }
#define NO_PARAMETER
#define COMM_PARAMETER const int *comm,
#define COMM_ARGUMENT PMPI_Comm_fromint(*comm),
#define SESSION_PARAMETER const int *session,
#define SESSION_ARGUMENT PMPI_Session_fromint(*session),
DETACH(Buffer_detach, buffer_detach, int, NO_PARAMETER, NO_PARAMETER)
DETACH(Buffer_detach_c, buffer_detach_c, MPI_Count, NO_PARAMETER, NO_PARAMETER)
DETACH_F77(Buffer_detach, buffer_detach, NO_PARAMETER, NO_PARAMETER)
DETACH(Comm_detach_buffer, comm_detach_buffer, int, COMM_PARAMETER, COMM_ARGUMENT)
DETACH(Comm_detach_buffer_c, comm_detach_buffer_c, MPI_Count, COMM_PARAMETER, COMM_ARGUMENT)
DETACH_F77(Comm_detach_buffer, comm_detach_buffer, COMM_PARAMETER, COMM_ARGUMENT)
DETACH(Session_detach_buffer, session_detach_buffer, int, SESSION_PARAMETER, SESSION_ARGUMENT)
DETACH(Session_detach_buffer_c, session_detach_buffer_c, MPI_Count, SESSION_PARAMETER,
       SESSION_ARGUMENT)
DETACH_F77(Session_detach_buffer, session_detach_buffer, SESSION_PARAMETER, SESSION_ARGUMENT)

/* Datatypes: a place that the call leaves alone stays as it is. */

static void types_toint(int *to, const MPI_Datatype *from, MPI_Count n) {
    for (MPI_Count i = 0; i < n; i++) {
        if (from[i]) {
            to[i] = PMPI_Type_toint(from[i]);
        }
    }
}

API void F77(type_get_contents)(const int *datatype, const int *max_integers,
                                const int *max_addresses, const int *max_datatypes,
                                int *array_of_integers, MPI_Aint *array_of_addresses,
                                int *array_of_datatypes, int *ierror) {
    int e = MPI_ERR_NO_MEM, n = *max_datatypes;
    MPI_Datatype *types = calloc(n > 0 ? (size_t)n : 1, sizeof *types);
    if (types) {
        e = CALL(Type_get_contents)(PMPI_Type_fromint(*datatype), *max_integers, *max_addresses, n,
                                    array_of_integers, array_of_addresses, types);
        if (e == MPI_SUCCESS) {
            types_toint(array_of_datatypes, types, n);
        }
    }
    free(types);
    IERROR(e);
}
SAME(type_get_contents);

API void F08(type_get_contents_c)(const int *datatype, const MPI_Count *max_integers,
                                  const MPI_Count *max_addresses, const MPI_Count *max_large_counts,
                                  const MPI_Count *max_datatypes, int *array_of_integers,
                                  MPI_Aint *array_of_addresses, MPI_Count *array_of_large_counts,
                                  int *array_of_datatypes, int *ierror) {
    int e = MPI_ERR_NO_MEM;
    MPI_Count n = *max_datatypes;
    MPI_Datatype *types = calloc(n > 0 ? (size_t)n : 1, sizeof *types);
    if (types) {
        e = CALL(Type_get_contents_c)(PMPI_Type_fromint(*datatype), *max_integers, *max_addresses,
                                      *max_large_counts, n, array_of_integers, array_of_addresses,
                                      array_of_large_counts, types);
        if (e == MPI_SUCCESS) {
            types_toint(array_of_datatypes, types, n);
        }
    }
    free(types);
    IERROR(e);
}

/* Processes. A list of texts is as long as its first blank one says. */

static int blank(const char *s, size_t n) {
    while (n > 0 && s[n - 1] == ' ') {
        n--;
    }
    return n == 0;
}

static void free_list(char **list) {
    for (size_t i = 0; list && list[i]; i++) {
        free(list[i]);
    }
    free(list);
}

/* A list as C has it. step is how many texts are from one of them to the next. Null: no memory. */
static char **text_list(const char *s, size_t len, size_t step) {
    size_t n = 0;
    while (!blank(s + n * step * len, len)) {
        n++;
    }
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        list[i] = mpif_text(s + i * step * len, len);
        if (!list[i]) {
            free_list(list);
            return NULL;
        }
    }
    return list;
}

/* Reports whether this rank is the root: only the root gives commands and their arguments. */
static int is_root(int root, MPI_Comm comm) {
    int rank = MPI_PROC_NULL;
    return PMPI_Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
}

API void F77(comm_spawn)(const char *command, const char *argv, const int *maxprocs,
                         const int *info, const int *root, const int *comm, int *intercomm,
                         int *array_of_errcodes, int *ierror, size_t command_len, size_t argv_len) {
    int e = MPI_ERR_NO_MEM;
    int null = argv == mpif_argv_null_ || !is_root(*root, PMPI_Comm_fromint(*comm));
    MPI_Comm c_intercomm = MPI_COMM_NULL;
    char *c_command = mpif_text(command, command_len);
    char **c_argv = null ? MPI_ARGV_NULL : text_list(argv, argv_len, 1);
    if (c_command && (null || c_argv)) {
        e = CALL(Comm_spawn)(c_command, c_argv, *maxprocs, PMPI_Info_fromint(*info), *root,
                             PMPI_Comm_fromint(*comm), &c_intercomm, ERRCODES(array_of_errcodes));
    }
    if (e == MPI_SUCCESS) {
        *intercomm = PMPI_Comm_toint(c_intercomm);
    }
    free(c_command);
    if (!null) {
        free_list(c_argv);
    }
    IERROR(e);
}
SAME(comm_spawn);

API void F77(comm_spawn_multiple)(const int *count, const char *array_of_commands,
                                  const char *array_of_argv, const int *array_of_maxprocs,
                                  const int *array_of_info, const int *root, const int *comm,
                                  int *intercomm, int *array_of_errcodes, int *ierror,
                                  size_t array_of_commands_len, size_t array_of_argv_len) {
    int e = MPI_ERR_NO_MEM, full = 1, gives = is_root(*root, PMPI_Comm_fromint(*comm));
    int null = array_of_argv == mpif_argvs_null_ || !gives;
    size_t n = gives && *count > 0 ? (size_t)*count : 0;
    MPI_Comm c_intercomm = MPI_COMM_NULL;
    char **commands = calloc(n + 1, sizeof *commands);
    char ***argvs = calloc(n + 1, sizeof *argvs);
    MPI_Info *infos = calloc(n + 1, sizeof *infos);
    for (size_t i = 0; commands && argvs && infos && i < n; i++) {
        infos[i] = PMPI_Info_fromint(array_of_info[i]);
        commands[i] =
            mpif_text(array_of_commands + i * array_of_commands_len, array_of_commands_len);
        if (!null) { /* Row i of the array, whose columns follow one another. */
            argvs[i] = text_list(array_of_argv + i * array_of_argv_len, array_of_argv_len, n);
        }
        full = full && commands[i] && (null || argvs[i]);
    }
    if (commands && argvs && infos && full) {
        e = CALL(Comm_spawn_multiple)((int)n, commands, null ? MPI_ARGVS_NULL : argvs,
                                      array_of_maxprocs, infos, *root, PMPI_Comm_fromint(*comm),
                                      &c_intercomm, ERRCODES(array_of_errcodes));
    }
    if (e == MPI_SUCCESS) {
        *intercomm = PMPI_Comm_toint(c_intercomm);
    }
    for (size_t i = 0; argvs && i < n; i++) {
        free_list(argvs[i]);
    }
    for (size_t i = 0; commands && i < n; i++) {
        free(commands[i]);
    }
    free(commands);
    free(argvs);
    free(infos);
    IERROR(e);
}
SAME(comm_spawn_multiple);

/* Attributes: integers of the size of an address. */

typedef void function(void);

#define CREATE_KEYVAL(NAME, C, COPY, DELETE, WORD)                                               \
    API void F77(NAME##_create_keyval)(COPY *copy, DELETE *delete, int *keyval,                  \
                                       const WORD *extra_state, int *ierror) {                   \
        MPI_##C##_copy_attr_function *c =                                                        \
            copy == (COPY *)mpi_##NAME##_dup_fn_         ? (MPI_##C##_copy_attr_function *)1     \
            : copy == (COPY *)mpi_##NAME##_null_copy_fn_ ? (MPI_##C##_copy_attr_function *)0     \
                                                         : mpif_##NAME##_copy;                   \
        MPI_##C##_delete_attr_function *d =                                                      \
            delete == (DELETE *)mpi_##NAME##_null_delete_fn_                                     \
                ? (MPI_##C##_delete_attr_function *)0                                            \
                : mpif_##NAME##_delete;                                                          \
        struct mpif_keyval *k = mpif_keyval((function *)copy, (function *)delete, *extra_state); \
        int e = k ? CALL(C##_create_keyval)(c, d, keyval, k) : MPI_ERR_NO_MEM;                   \
        IERROR(e);                                                                               \
    }                                                                                            \
    SAME(NAME##_create_keyval)
CREATE_KEYVAL(comm, Comm, mpif_copy, mpif_delete, MPI_Aint);
CREATE_KEYVAL(type, Type, mpif_copy, mpif_delete, MPI_Aint);
CREATE_KEYVAL(win, Win, mpif_copy, mpif_delete, MPI_Aint);

API void F77(keyval_create)(mpif_Copy_function *copy, mpif_Delete_function *delete, int *keyval,
                            const int *extra_state, int *ierror) {
    MPI_Copy_function *c = copy == mpi_dup_fn_         ? MPI_DUP_FN
                           : copy == mpi_null_copy_fn_ ? MPI_NULL_COPY_FN
                                                       : mpif_old_copy;
    MPI_Delete_function *d = delete == mpi_null_delete_fn_ ? MPI_NULL_DELETE_FN : mpif_old_delete;
    struct mpif_keyval *k = mpif_keyval((function *)copy, (function *)delete, *extra_state);
    int e = k ? CALL(Keyval_create)(c, d, keyval, k) : MPI_ERR_NO_MEM;
    IERROR(e);
}

#define SET_ATTR(NAME, C)                                                                        \
    API void F77(NAME##_set_attr)(const int *object, const int *keyval,                          \
                                  const MPI_Aint *attribute_val, int *ierror) {                  \
        int e = CALL(C##_set_attr)(PMPI_##C##_fromint(*object), *keyval, (void *)*attribute_val); \
        IERROR(e);                                                                               \
    }                                                                                            \
    SAME(NAME##_set_attr)
SET_ATTR(comm, Comm);
SET_ATTR(type, Type);
SET_ATTR(win, Win);

API void F77(attr_put)(const int *comm, const int *keyval, const int *attribute_val, int *ierror) {
    int e = CALL(Attr_put)(PMPI_Comm_fromint(*comm), *keyval, (void *)(MPI_Aint)*attribute_val);
    IERROR(e);
}

/* In C the attributes that the standard has named are addresses of numbers. */
static MPI_Aint attribute(int keyval, void *value) {
    switch (keyval) {
    case MPI_TAG_UB:
    case MPI_IO:
    case MPI_HOST:
    case MPI_WTIME_IS_GLOBAL:
    case MPI_APPNUM:
    case MPI_LASTUSEDCODE:
    case MPI_UNIVERSE_SIZE:
    case MPI_WIN_DISP_UNIT:
    case MPI_WIN_CREATE_FLAVOR:
    case MPI_WIN_MODEL:
        return *(int *)value;
    case MPI_WIN_SIZE:
        return *(MPI_Aint *)value;
    default:
        return (MPI_Aint)value;
    }
}

#define GET_ATTR(NAME, C)                                                                        \
    API void F77(NAME##_get_attr)(const int *object, const int *keyval, MPI_Aint *attribute_val, \
                                  int *flag, int *ierror) {                                      \
        void *value = NULL;                                                                      \
        int set = 0;                                                                             \
        int e = CALL(C##_get_attr)(PMPI_##C##_fromint(*object), *keyval, &value, &set);          \
        if (e == MPI_SUCCESS) {                                                                  \
            *flag = set != 0;                                                                    \
            if (set) {                                                                           \
                *attribute_val = attribute(*keyval, value);                                      \
            }                                                                                    \
        }                                                                                        \
        IERROR(e);                                                                               \
    }                                                                                            \
    SAME(NAME##_get_attr)
GET_ATTR(comm, Comm);
GET_ATTR(type, Type);
GET_ATTR(win, Win);

API void F77(attr_get)(const int *comm, const int *keyval, int *attribute_val, int *flag,
                       int *ierror) {
    void *value = NULL;
    int set = 0;
    int e = CALL(Attr_get)(PMPI_Comm_fromint(*comm), *keyval, &value, &set);
    if (e == MPI_SUCCESS) {
        *flag = set != 0;
        if (set) {
            *attribute_val = (int)attribute(*keyval, value);
        }
    }
    IERROR(e);
}

/* Generalised requests and data representations: a structure tells the program's functions. */

API void F77(grequest_start)(mpif_Grequest_query_function *query_fn,
                             mpif_Grequest_free_function *free_fn,
                             mpif_Grequest_cancel_function *cancel_fn, const MPI_Aint *extra_state,
                             int *request, int *ierror) {
    int e = MPI_ERR_NO_MEM;
    MPI_Request c_request = MPI_REQUEST_NULL;
    struct mpif_grequest *g = malloc(sizeof *g);
    if (g) {
        *g = (struct mpif_grequest){query_fn, free_fn, cancel_fn, *extra_state};
        e = CALL(Grequest_start)(mpif_grequest_query, mpif_grequest_free, mpif_grequest_cancel, g,
                                 &c_request);
    }
    if (e == MPI_SUCCESS) {
        *request = PMPI_Request_toint(c_request);
    } else {
        free(g);
    }
    IERROR(e);
}
SAME(grequest_start);

#define REGISTER(FUNCTION, C, SUFFIX, NULL_FUNCTION, NULL_VALUE)                              \
    API void FUNCTION(const char *datarep, mpif_Datarep_conversion_function##SUFFIX *read,    \
                      mpif_Datarep_conversion_function##SUFFIX *write,                        \
                      mpif_Datarep_extent_function *extent, const MPI_Aint *extra_state,      \
                      int *ierror, size_t datarep_len) {                                      \
        int e = MPI_ERR_NO_MEM;                                                               \
        char *name = mpif_text(datarep, datarep_len);                                         \
        struct mpif_datarep *d = malloc(sizeof *d);                                           \
        if (name && d) {                                                                      \
            *d = (struct mpif_datarep){(function *)read, (function *)write, extent,           \
                                       *extra_state};                                         \
            e = CALL(C)(name, read == NULL_FUNCTION ? NULL_VALUE : mpif_datarep_read##SUFFIX, \
                        write == NULL_FUNCTION ? NULL_VALUE : mpif_datarep_write##SUFFIX,     \
                        mpif_datarep_extent, d);                                              \
        }                                                                                     \
        if (e != MPI_SUCCESS) { /* else it lives as long as the program */                    \
            free(d);                                                                          \
        }                                                                                     \
        free(name);                                                                           \
        IERROR(e);                                                                            \
    }
REGISTER(F77(register_datarep), Register_datarep, , mpi_conversion_fn_null_,
         MPI_CONVERSION_FN_NULL)
SAME(register_datarep);
REGISTER(F08(register_datarep_c), Register_datarep_c, _c, mpi_conversion_fn_null_c_,
         MPI_CONVERSION_FN_NULL_C)
