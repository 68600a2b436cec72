/*
 * A program for any library of the ABI: each rank passes a number on, and checks what it gets.
 * "alone": the calls that need no MPI_Init. "truncate": a message that is longer than the buffer.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x)                                                       \
    do {                                                               \
        if (!(x)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);    \
            exit(3);                                                   \
        }                                                              \
    } while (0)

static int alone(void) {
    int a = -1, b = -1;
    CHECK(MPI_Get_version(&a, &b) == MPI_SUCCESS && a == 5 && b == 0);
    CHECK(MPI_Get_version(NULL, &b) == MPI_ERR_ARG);
    CHECK(MPI_Abi_get_version(&a, &b) == MPI_SUCCESS && a == 1 && b == 0);
    CHECK(MPI_Abi_get_version(&a, NULL) == MPI_ERR_ARG);
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    CHECK(MPI_Get_library_version(text, &a) == MPI_SUCCESS && a == (int)strlen(text));
    CHECK(strncmp(text, "vmmc ", 5) == 0);
    double begin = MPI_Wtime();
    CHECK(MPI_Wtick() > 0 && MPI_Wtick() < 1 && MPI_Wtime() >= begin);
    CHECK(MPI_Pcontrol(1, "anything") == MPI_SUCCESS);
    int words[4];
    MPI_Aint at0, at3;
    CHECK(MPI_Get_address(&words[0], &at0) == MPI_SUCCESS);
    CHECK(MPI_Get_address(&words[3], &at3) == MPI_SUCCESS);
    CHECK(MPI_Get_address(&words[3], NULL) == MPI_ERR_ARG);
    CHECK(MPI_Aint_diff(at3, at0) == 12 && MPI_Aint_add(at0, 12) == at3);
    CHECK(MPI_Comm_toint(MPI_COMM_WORLD) == 0x101 && MPI_Comm_fromint(0x102) == MPI_COMM_SELF);
    CHECK(MPI_Comm_c2f(MPI_COMM_WORLD) == 0x101 && MPI_Type_f2c(0x209) == MPI_INT);
    CHECK(PMPI_Op_f2c(PMPI_Op_c2f(MPI_SUM)) == MPI_SUM);
    MPI_Status from = {1, 2, 3, {4, 5, 6, 7, 8}}, to;
    MPI_Fint f[MPI_F_STATUS_SIZE];
    CHECK(MPI_Status_c2f(&from, f) == MPI_SUCCESS && f[MPI_F_SOURCE] == 1 && f[MPI_F_TAG] == 2);
    CHECK(MPI_Status_f2c(f, &to) == MPI_SUCCESS && memcmp(&from, &to, sizeof to) == 0);
    CHECK(MPI_Status_f2c(f, MPI_STATUS_IGNORE) == MPI_ERR_ARG);
    int flag = -1;
    CHECK(MPI_Initialized(&flag) == MPI_SUCCESS && flag == 0);
    CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && flag == 0);
    puts("alone ok");
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "alone") == 0) {
        return alone();
    }
    int rank = -1, size = -1, flag = -1, sum = 0;
    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    CHECK(MPI_Initialized(&flag) == MPI_SUCCESS && flag == 1);
    CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
    CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS);
    MPI_Status s;
    if (argc > 1 && strcmp(argv[1], "truncate") == 0) {
        int two[2] = {1, 2};
        if (rank == 0) {
            MPI_Send(two, 2, MPI_INT, 1, 5, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Recv(two, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, &s);
        }
        MPI_Recv(two, 1, MPI_INT, rank, 6, MPI_COMM_WORLD, &s); /* the job ends here */
        return 4;
    }
    if (rank > 0) {
        CHECK(MPI_Recv(&sum, 1, MPI_INT, rank - 1, 7, MPI_COMM_WORLD, &s) == MPI_SUCCESS);
        CHECK(s.MPI_SOURCE == rank - 1 && s.MPI_TAG == 7);
    }
    sum += rank + 1;
    CHECK(MPI_Send(&sum, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD) == MPI_SUCCESS);
    if (rank == 0) {
        CHECK(MPI_Recv(&sum, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &s) ==
              MPI_SUCCESS);
        CHECK(s.MPI_SOURCE == size - 1 && s.MPI_TAG == 7);
        printf("%d ranks, sum %d\n", size, sum);
    }
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && flag == 1);
    return 0;
}
