/* Names that MPICH's library has beside MPI's: data, and extensions. */
#include "attribute.h"

/*
 * libmpichfort and programs define some of these names too, and then all use those. Their sizes are
 * those of MPICH's library.
 */
API int MPIR_F08_MPI_IN_PLACE;
API int MPIR_F08_MPI_BOTTOM;
API struct mpich_status MPIR_F08_MPI_STATUS_IGNORE_OBJ;
API struct mpich_status MPIR_F08_MPI_STATUSES_IGNORE_OBJ[1];
API struct mpich_status *MPI_F08_STATUS_IGNORE = &MPIR_F08_MPI_STATUS_IGNORE_OBJ;
API struct mpich_status *MPI_F08_STATUSES_IGNORE = MPIR_F08_MPI_STATUSES_IGNORE_OBJ;
API MPI_Fint *MPI_F_STATUS_IGNORE;
API MPI_Fint *MPI_F_STATUSES_IGNORE;
API int MPIR_C_MPI_UNWEIGHTED[2];
API int MPIR_C_MPI_WEIGHTS_EMPTY[2];
API int *const MPI_UNWEIGHTED = MPIR_C_MPI_UNWEIGHTED;
API int *const MPI_WEIGHTS_EMPTY = MPIR_C_MPI_WEIGHTS_EMPTY;
static int all_handles;
API void *const MPI_T_PVAR_ALL_HANDLES = &all_handles;

extern API const char MPII_Version_string[], MPII_Version_date[], MPII_Version_ABI[],
    MPII_Version_configure[], MPII_Version_device[], MPII_Version_CC[], MPII_Version_CXX[],
    MPII_Version_F77[], MPII_Version_FC[], MPII_Version_custom[];
const char MPII_Version_string[] = "4.0.2";
const char MPII_Version_date[] = "";
const char MPII_Version_ABI[] = "14:2:2";
const char MPII_Version_configure[] = "";
const char MPII_Version_device[] = "vmmc";
const char MPII_Version_CC[] = "";
const char MPII_Version_CXX[] = "";
const char MPII_Version_F77[] = "";
const char MPII_Version_FC[] = "";
const char MPII_Version_custom[] = "vmmc " VMMC_VERSION;

/* Raises MPI_ERR_UNSUPPORTED_OPERATION on a communicator. */
static int unsupported(uint64_t comm) {
    const uint64_t args[] = {comm, 55};
    int code = mpi_call(CALL_MPI_Comm_call_errhandler, "MPI_Comm_call_errhandler", args, 2);
    return code ? code_out(code) : UNSUPPORTED;
}

#define COMM_SELF 0x102

#define EXTENSION(NAME) \
    extern __typeof(PMPIX_##NAME) MPIX_##NAME \
        __attribute__((weak, alias("PMPIX_" #NAME), visibility("default")))

/* Recovery from failed processes. */
#define OF_COMM(NAME, ...)                          \
    API int PMPIX_##NAME(int comm, ##__VA_ARGS__) { \
        return unsupported(Comm_in(comm));          \
    }                                               \
    EXTENSION(NAME)

OF_COMM(Comm_revoke);
OF_COMM(Comm_failure_ack);

#define OF_COMM_TO(NAME)                            \
    API int PMPIX_##NAME(int comm, int *result) {   \
        (void)result;                               \
        return unsupported(Comm_in(comm));          \
    }                                               \
    EXTENSION(NAME)

OF_COMM_TO(Comm_shrink);
OF_COMM_TO(Comm_agree);
OF_COMM_TO(Comm_failure_get_acked);

/* Generalized requests that a function polls. */
API int PMPIX_Grequest_start(any_function *query, any_function *end, any_function *cancel,
                             any_function *poll, any_function *wait, void *extra, int *request) {
    (void)query, (void)end, (void)cancel, (void)poll, (void)wait, (void)extra, (void)request;
    return unsupported(COMM_SELF);
}
EXTENSION(Grequest_start);

API int PMPIX_Grequest_class_create(any_function *query, any_function *end, any_function *cancel,
                                    any_function *poll, any_function *wait, int *class) {
    (void)query, (void)end, (void)cancel, (void)poll, (void)wait, (void)class;
    return unsupported(COMM_SELF);
}
EXTENSION(Grequest_class_create);

API int PMPIX_Grequest_class_allocate(int class, void *extra, int *request) {
    (void)class, (void)extra, (void)request;
    return unsupported(COMM_SELF);
}
EXTENSION(Grequest_class_allocate);

/* Names from before the standard's MPI_Remove_error_class and the like. */
int PMPI_Remove_error_class(int);
int PMPI_Remove_error_code(int);
int PMPI_Remove_error_string(int);

API int PMPIX_Delete_error_class(int class) { return PMPI_Remove_error_class(class); }
EXTENSION(Delete_error_class);
API int PMPIX_Delete_error_code(int code) { return PMPI_Remove_error_code(code); }
EXTENSION(Delete_error_code);
API int PMPIX_Delete_error_string(int code) { return PMPI_Remove_error_string(code); }
EXTENSION(Delete_error_string);

/* Memory of graphics processors is not supported. */
API int PMPIX_GPU_query_support(int type, int *supported) {
    if (type < 0 || type > 2 || !supported) {
        return WRONG_ARGUMENT;
    }
    *supported = 0;
    return 0;
}
EXTENSION(GPU_query_support);
API int PMPIX_Query_cuda_support(void) { return 0; }
EXTENSION(Query_cuda_support);
API int PMPIX_Query_hip_support(void) { return 0; }
EXTENSION(Query_hip_support);
API int PMPIX_Query_ze_support(void) { return 0; }
EXTENSION(Query_ze_support);

/* Of a library that makes error codes of its own: MPI's classes are the codes here. */
API int MPIR_Err_create_code(int last, int fatal, const char *function, int line, int class,
                             const char *generic, const char *specific, ...) {
    (void)last, (void)fatal, (void)function, (void)line, (void)generic, (void)specific;
    return class;
}

/* The object is one of MPICH's own library, which this one has not made. */
API int MPIR_Err_return_comm(void *comm, const char *function, int code) {
    (void)comm, (void)function;
    const uint64_t args[] = {COMM_SELF, INTEGER(code_in(code))};
    mpi_call(CALL_MPI_Comm_call_errhandler, "MPI_Comm_call_errhandler", args, 2);
    return code;
}

API int MPIR_Err_return_win(void *win, const char *function, int code) {
    return MPIR_Err_return_comm(win, function, code);
}

/* Several tools that wrap calls. One can, by the names with PMPI_. */
API int QMPI_Register_tool_name(const char *name, void (*init)(int)) {
    (void)name, (void)init;
    return UNSUPPORTED;
}

API int QMPI_Register_tool_storage(int tool, void *storage) {
    (void)tool, (void)storage;
    return UNSUPPORTED;
}

API int QMPI_Register_function(int tool, int which, any_function *function) {
    (void)tool, (void)which, (void)function;
    return UNSUPPORTED;
}

API int QMPI_Get_function(int tool, int which, any_function **function, int *next) {
    (void)tool, (void)which, (void)function, (void)next;
    return UNSUPPORTED;
}

/* The first parameter of both is a structure of one pointer. */
API int QMPI_Get_tool_storage(void *context, int tool, void **storage) {
    (void)context, (void)tool, (void)storage;
    return UNSUPPORTED;
}

API int QMPI_Get_calling_address(void *context, void **address) {
    (void)context, (void)address;
    return UNSUPPORTED;
}
