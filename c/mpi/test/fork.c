/*
 * A rank forks, and the child calls MPI. The child alone ends, and prints nothing of its parent's.
 * A child that only asks whether MPI is initialized, or exits, is not disturbed. A process that
 * has forked before MPI_Init has loaded nothing.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The status of a child that calls what needs no communication, and exits. */
static int asking(int initialized) {
    int status = 0, is = 7, was = 7;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (MPI_Initialized(&is) || MPI_Finalized(&was) || is != initialized || was != 0) {
            _exit(8);
        }
        printf("asked, ");
        exit(5);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
    int rank = -1, status = 0, sum = 0;
    if (asking(0) != 5) {
        return 5;
    }
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS || MPI_Comm_rank(MPI_COMM_WORLD, &rank)) {
        return 2;
    }
    if (asking(1) != 5) {
        return 6;
    }
    if (rank == 0) {
        printf("buffered, ");
        pid_t child = fork();
        if (child == 0) {
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            _exit(9);
        }
        if (waitpid(child, &status, 0) != child) {
            return 3;
        }
        printf("the child has ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    rank++;
    if (MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) || sum != 3) {
        return 4;
    }
    return MPI_Finalize();
}
