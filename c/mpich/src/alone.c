/* The calls that need nothing of Go, so that they work before MPI_Init and after MPI_Finalize. */
#include <stdarg.h>
#include <time.h>

#include "convert.h"

/* They answer before Go is loaded: a program may fork before MPI_Init. */
API int PMPI_Initialized(int *flag) {
    if (!flag) {
        return WRONG_ARGUMENT;
    }
    *flag = mpi_initialized();
    return 0;
}
ALIAS(Initialized);

API int PMPI_Finalized(int *flag) {
    if (!flag) {
        return WRONG_ARGUMENT;
    }
    *flag = mpi_finalized();
    return 0;
}
ALIAS(Finalized);

static double seconds(int (*of)(clockid_t, struct timespec *)) {
    struct timespec t;
    of(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

API double PMPI_Wtime(void) { return seconds(clock_gettime); }
ALIAS(Wtime);

API double PMPI_Wtick(void) { return seconds(clock_getres); }
ALIAS(Wtick);

/* For tools, which define it themselves. */
API int PMPI_Pcontrol(const int level, ...) {
    (void)level;
    return 0;
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
    if (!address) {
        return WRONG_ARGUMENT;
    }
    *address = (MPI_Aint)location;
    return 0;
}
ALIAS(Get_address);

API int PMPI_Address(void *location, MPI_Aint *address) {
    return PMPI_Get_address(location, address);
}
ALIAS(Address);

static int give_version(int *major, int *minor, int a, int b) {
    if (!major || !minor) {
        return WRONG_ARGUMENT;
    }
    *major = a;
    *minor = b;
    return 0;
}

/* The version is that of the header which programs for this interface are compiled with. */
API int PMPI_Get_version(int *version, int *subversion) {
    return give_version(version, subversion, 4, 0);
}
ALIAS(Get_version);

API int PMPI_Abi_get_version(int *abi_major, int *abi_minor) {
    return give_version(abi_major, abi_minor, -1, -1); /* It is not the standard's. */
}
ALIAS(Abi_get_version);

API int PMPI_Get_library_version(char *version, int *resultlen) {
    static const char text[] = "vmmc " VMMC_VERSION ", MPICH's ABI (libmpich.so.12)";
    if (!version || !resultlen) {
        return WRONG_ARGUMENT;
    }
    memcpy(version, text, sizeof text);
    *resultlen = (int)sizeof text - 1;
    return 0;
}
ALIAS(Get_library_version);

/* A status has the same five integers in C and in both modules of Fortran. */
static int copy_status(void *to, const void *from) {
    if (!to || !from || to == STATUS_IGNORE || from == STATUS_IGNORE) {
        return WRONG_ARGUMENT;
    }
    memmove(to, from, sizeof(struct mpich_status));
    return 0;
}

#define COPY(NAME, FROM, TO)                                                   \
    API int PMPI_Status_##NAME(const FROM *from, TO *to) { return copy_status(to, from); } \
    ALIAS(Status_##NAME)

COPY(f2c, MPI_Fint, struct mpich_status);
COPY(c2f, struct mpich_status, MPI_Fint);
COPY(f082c, struct mpich_status, struct mpich_status);
COPY(c2f08, struct mpich_status, struct mpich_status);

/* Handles are the same integers in Fortran. The header has no functions for it, but has a name. */
#define CONVERTERS(NAME)                                          \
    API int PMPI_##NAME##_fromint(int h) { return h; }            \
    ALIAS(NAME##_fromint);                                        \
    API int PMPI_##NAME##_toint(int h) { return h; }              \
    ALIAS(NAME##_toint);                                          \
    API int PMPI_##NAME##_f2c(MPI_Fint h) { return h; }           \
    ALIAS(NAME##_f2c);                                            \
    API MPI_Fint PMPI_##NAME##_c2f(int h) { return h; }           \
    ALIAS(NAME##_c2f)

CONVERTERS(Comm);
CONVERTERS(Errhandler);
CONVERTERS(Group);
CONVERTERS(Info);
CONVERTERS(Message);
CONVERTERS(Op);
CONVERTERS(Request);
CONVERTERS(Session);
CONVERTERS(Type);
CONVERTERS(Win);

API void *PMPI_File_fromint(int h) { return (void *)(intptr_t)h; }
ALIAS(File_fromint);
API int PMPI_File_toint(void *h) { return (int)(intptr_t)h; }
ALIAS(File_toint);
API void *PMPI_File_f2c(MPI_Fint h) { return (void *)(intptr_t)h; }
ALIAS(File_f2c);
API MPI_Fint PMPI_File_c2f(void *h) { return (MPI_Fint)(intptr_t)h; }
ALIAS(File_c2f);
