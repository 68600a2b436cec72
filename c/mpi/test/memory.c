/* Shared windows, partitioned messages and external32. Each rank checks what it gets. Rank 0 prints
   "ok". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #what); \
            MPI_Abort(MPI_COMM_WORLD, 3); \
        } \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

static void shared(void) {
    MPI_Comm node;
    MPI_Win win;
    MPI_Aint bytes;
    long *mine, *others;
    int i, unit;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Comm_size(node, &i));
    CHECK(i == size);
    OK(MPI_Win_allocate_shared(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, node, &mine, &win));
    mine[0] = rank;
    mine[1] = -rank;
    OK(MPI_Win_fence(0, win));
    for (i = 0; i < size; i++) {
        OK(MPI_Win_shared_query(win, i, &bytes, &unit, &others));
        CHECK(bytes == 2 * sizeof(long) && unit == sizeof(long) && others == mine + 2 * (i - rank));
        CHECK(others[0] == i && others[1] == -i);
    }
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_free(&win));
    OK(MPI_Comm_free(&node));
}

static void partitioned(void) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size, round, i, flag = 0;
    double out[8] = {0}, in[8] = {0};
    MPI_Request r[2];
    OK(MPI_Psend_init(out, 4, 2, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]));
    OK(MPI_Precv_init(in, 2, 4, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]));
    for (round = 0; round < 3; round++) {
        int two[] = {3, 1};
        OK(MPI_Startall(2, r));
        for (i = 0; i < 8; i++) {
            out[i] = 100 * rank + 10 * round + i;
        }
        OK(MPI_Pready_list(2, two, r[0]));
        OK(MPI_Pready(0, r[0]));
        OK(MPI_Pready_range(2, 2, r[0]));
        while (!flag) {
            OK(MPI_Parrived(r[1], 1, &flag));
        }
        CHECK(in[4] == 100 * left + 10 * round + 4 && in[7] == 100 * left + 10 * round + 7);
        OK(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
        CHECK(in[0] == 100 * left + 10 * round && in[3] == in[0] + 3);
        flag = 0;
    }
    OK(MPI_Request_free(&r[0]));
    OK(MPI_Request_free(&r[1]));
}

static void external(void) {
    struct {
        long number;
        long double wide;
    } a = {-5, 0.1L}, b = {0, 0};
    MPI_Datatype t;
    int lengths[] = {1, 1};
    MPI_Aint at[] = {0, (char *)&a.wide - (char *)&a}, bytes, pos = 0;
    MPI_Datatype types[] = {MPI_LONG, MPI_LONG_DOUBLE};
    unsigned char packed[32];
    OK(MPI_Type_create_struct(2, lengths, at, types, &t));
    OK(MPI_Type_commit(&t));
    OK(MPI_Pack_external_size("external32", 1, t, &bytes));
    CHECK(bytes == 20);
    OK(MPI_Pack_external("external32", &a, 1, t, packed, sizeof packed, &pos));
    CHECK(pos == 20 && memcmp(packed, "\xff\xff\xff\xfb\x3f\xfb", 6) == 0);
    pos = 0;
    OK(MPI_Unpack_external("external32", packed, 20, &pos, &b, 1, t));
    CHECK(pos == 20 && b.number == a.number && b.wide == a.wide);
    OK(MPI_Type_free(&t));
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    shared();
    partitioned();
    external();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        printf("ok\n");
    }
    OK(MPI_Finalize());
    return 0;
}
