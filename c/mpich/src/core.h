/* What the files of libmpich share. */
#ifndef MPICH_CORE_H
#define MPICH_CORE_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

/* A tool may define MPI_NAME itself and call PMPI_NAME, so the first is a weak alias. */
#define ALIAS(NAME)                         \
    extern __typeof(PMPI_##NAME) MPI_##NAME \
        __attribute__((weak, alias("PMPI_" #NAME), visibility("default")))

/* How arguments travel to Go: in 64 bits each, integers with their sign. */
#define INTEGER(x) ((uint64_t)(int64_t)(x))
#define ADDRESS(x) ((uint64_t)(uintptr_t)(x))

/* Types of MPICH's ABI. Its handles are ints, but MPI_File, which is a pointer. */
typedef long MPI_Aint;
typedef long MPI_Offset;
typedef long MPI_Count;
typedef int MPI_Fint;

struct mpich_status {
    int count_lo;
    int count_hi_and_cancelled; /* Bit 0: cancelled. The others: bits 32 to 62 of the count. */
    int source;
    int tag;
    int error;
};

/* No value of the standard's ABI has this number. */
#define NO_VALUE INT32_MIN

/* MPICH's MPI_ERR_ARG, MPI_ERR_NO_MEM, MPI_ERR_UNSUPPORTED_OPERATION. */
#define WRONG_ARGUMENT 12
#define NO_MEMORY 34
#define UNSUPPORTED 44

/* The hash of calls.txt, which Go compares with its own. */
extern const uint64_t mpi_table;

/* Report what MPI_Initialized and MPI_Finalized do, also in a child of fork. */
int mpi_initialized(void);
int mpi_finalized(void);

/* Has Go execute a call, and returns its return code. The number is that of calls.txt. */
int mpi_call(uint32_t number, const char *name, const uint64_t *args, uint32_t n);

#endif
