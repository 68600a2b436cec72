/* What the files of libmpi_abi share. */
#ifndef MPI_CORE_H
#define MPI_CORE_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "private.h"

#define API __attribute__((visibility("default")))

/* A tool may define MPI_NAME itself and call PMPI_NAME, so the first is a weak alias. */
#define ALIAS(NAME)                       \
    extern __typeof(PMPI_##NAME) MPI_##NAME \
        __attribute__((weak, alias("PMPI_" #NAME), visibility("default")))

/* How arguments travel to Go: in 64 bits each, integers with their sign. */
#define INTEGER(x) ((uint64_t)(int64_t)(x))
#define ADDRESS(x) ((uint64_t)(uintptr_t)(x))

/* The hash of calls.txt, which Go compares with its own. */
extern const uint64_t mpi_table;

/* Report what MPI_Initialized and MPI_Finalized do, also in a child of fork. */
int mpi_initialized(void);
int mpi_finalized(void);

/* Has Go execute a call, and returns its return code. The number is that of calls.txt. */
int mpi_call(uint32_t number, const char *name, const uint64_t *args, uint32_t n);

/* The number of the call by which the program's end ends the job that sessions have begun. */
#define MPI_CALL_EXIT UINT32_MAX

#endif
