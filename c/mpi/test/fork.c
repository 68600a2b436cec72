/*
 * A rank forks, and the child calls MPI. The child alone ends, and prints nothing of its parent's.
 */
#include <mpi.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank = -1, status = 0, sum = 0;
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS || MPI_Comm_rank(MPI_COMM_WORLD, &rank)) {
        return 2;
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
