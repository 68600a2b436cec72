/* A tool that counts calls of MPI_Barrier, and the limit of functions that a program in Fortran has. */
#include <mpi.h>
#include <stdint.h>

int barriers_(void);
int limits_(void);
void mpi_op_create_(void *f, const int *commute, int *op, int *ierror);
void mpi_op_free_(int *op, int *ierror);
void mpi_comm_create_errhandler_(void *f, int *errhandler, int *ierror);

static int barriers;

int MPI_Barrier(MPI_Comm comm) {
    barriers++;
    return PMPI_Barrier(comm);
}

int barriers_(void) { return barriers; }

/* The first function that is refused, of many different ones: 0 if it is the 257th for each type of
 * function, or what is wrong. A function that was given before is not refused. */
int limits_(void) {
    const int commute = 1;
    int op, handler, ierror;
    for (uintptr_t i = 1; i <= 257; i++) {
        mpi_op_create_((void *)(i * 16), &commute, &op, &ierror);
        if (ierror != (i <= 256 ? MPI_SUCCESS : MPI_ERR_NO_MEM)) {
            return (int)i;
        }
        mpi_comm_create_errhandler_((void *)(i * 16), &handler, &ierror);
        if (ierror != (i <= 256 ? MPI_SUCCESS : MPI_ERR_NO_MEM)) {
            return -(int)i;
        }
    }
    mpi_op_create_((void *)16, &commute, &op, &ierror);
    if (ierror != MPI_SUCCESS) {
        return 1000;
    }
    mpi_op_free_(&op, &ierror);
    return ierror;
}
