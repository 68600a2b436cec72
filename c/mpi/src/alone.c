/* The calls that need nothing of Go, so that they work before MPI_Init and after MPI_Finalize. */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "core.h"

/* Of a call whose result has no place. */
static int missing(const void *p) { return p ? MPI_SUCCESS : MPI_ERR_ARG; }

/* They answer before Go is loaded: a program may fork before MPI_Init. */
API int PMPI_Initialized(int *flag) {
    if (flag) {
        *flag = mpi_initialized();
    }
    return missing(flag);
}
ALIAS(Initialized);

API int PMPI_Finalized(int *flag) {
    if (flag) {
        *flag = mpi_finalized();
    }
    return missing(flag);
}
ALIAS(Finalized);

API double PMPI_Wtime(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
ALIAS(Wtime);

API double PMPI_Wtick(void) {
    struct timespec t;
    clock_getres(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
ALIAS(Wtick);

/* For tools, which define it themselves. */
API int PMPI_Pcontrol(const int level, ...) {
    (void)level;
    return MPI_SUCCESS;
}
ALIAS(Pcontrol);

/* Addresses wrap around, which signed integers of C do not. */
API MPI_Aint PMPI_Aint_add(MPI_Aint base, MPI_Aint disp) {
    return (MPI_Aint)((uintptr_t)base + (uintptr_t)disp);
}
ALIAS(Aint_add);

API MPI_Aint PMPI_Aint_diff(MPI_Aint addr1, MPI_Aint addr2) {
    return (MPI_Aint)((uintptr_t)addr1 - (uintptr_t)addr2);
}
ALIAS(Aint_diff);

API int PMPI_Get_address(const void *location, MPI_Aint *address) {
    if (address) {
        *address = (MPI_Aint)location;
    }
    return missing(address);
}
ALIAS(Get_address);

API int PMPI_Address(void *location, MPI_Aint *address) {
    return PMPI_Get_address(location, address);
}
ALIAS(Address);

static int give_version(int *major, int *minor, int a, int b) {
    if (!major || !minor) {
        return MPI_ERR_ARG;
    }
    *major = a;
    *minor = b;
    return MPI_SUCCESS;
}

API int PMPI_Get_version(int *version, int *subversion) {
    return give_version(version, subversion, MPI_VERSION, MPI_SUBVERSION);
}
ALIAS(Get_version);

API int PMPI_Abi_get_version(int *abi_major, int *abi_minor) {
    return give_version(abi_major, abi_minor, MPI_ABI_VERSION, MPI_ABI_SUBVERSION);
}
ALIAS(Abi_get_version);

API int PMPI_Get_library_version(char *version, int *resultlen) {
    static const char text[] = "vmmc " VMMC_VERSION ", libmpi_abi of MPI 5.0's ABI 1.0";
    if (!version || !resultlen) {
        return MPI_ERR_ARG;
    }
    memcpy(version, text, sizeof text);
    *resultlen = (int)sizeof text - 1;
    return MPI_SUCCESS;
}
ALIAS(Get_library_version);

/* A status has the same eight integers in C and in both modules of Fortran. */
static int copy_status(void *to, const void *from) {
    if (!to || !from) { /* MPI_STATUS_IGNORE has nothing to convert */
        return MPI_ERR_ARG;
    }
    memmove(to, from, sizeof(MPI_Status));
    return MPI_SUCCESS;
}

API int PMPI_Status_f2c(const MPI_Fint *f_status, MPI_Status *c_status) {
    return copy_status(c_status, f_status);
}
ALIAS(Status_f2c);

API int PMPI_Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status) {
    return copy_status(f_status, c_status);
}
ALIAS(Status_c2f);

API int PMPI_Status_f082c(const MPI_F08_Status *f08_status, MPI_Status *c_status) {
    return copy_status(c_status, f08_status);
}
ALIAS(Status_f082c);

API int PMPI_Status_c2f08(const MPI_Status *c_status, MPI_F08_Status *f08_status) {
    return copy_status(f08_status, c_status);
}
ALIAS(Status_c2f08);

/* Handles are small numbers: below 0x1000 the standard's, from there on indexes of tables. */
#define CONVERTERS(NAME, TYPE)                                                        \
    API TYPE PMPI_##NAME##_fromint(int h) { return (TYPE)(intptr_t)h; }               \
    ALIAS(NAME##_fromint);                                                            \
    API int PMPI_##NAME##_toint(TYPE h) { return (int)(intptr_t)h; }                  \
    ALIAS(NAME##_toint);                                                              \
    API TYPE PMPI_##NAME##_f2c(MPI_Fint h) { return (TYPE)(intptr_t)h; }              \
    ALIAS(NAME##_f2c);                                                                \
    API MPI_Fint PMPI_##NAME##_c2f(TYPE h) { return (MPI_Fint)(intptr_t)h; }          \
    ALIAS(NAME##_c2f)

CONVERTERS(Comm, MPI_Comm);
CONVERTERS(Errhandler, MPI_Errhandler);
CONVERTERS(File, MPI_File);
CONVERTERS(Group, MPI_Group);
CONVERTERS(Info, MPI_Info);
CONVERTERS(Message, MPI_Message);
CONVERTERS(Op, MPI_Op);
CONVERTERS(Request, MPI_Request);
CONVERTERS(Session, MPI_Session);
CONVERTERS(Type, MPI_Datatype);
CONVERTERS(Win, MPI_Win);
