/* Calls of several chapters, with functions of the program that the library runs. Each rank checks
   what it gets. Rank 0 prints "ok" at the end. */
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

static void requests(void) {
    int got[2] = {-1, -1}, mine[2] = {rank, 10 * rank}, right = (rank + 1) % size;
    int left = (rank + size - 1) % size, flag = 0, count;
    MPI_Request r[4];
    MPI_Status s[4];
    OK(MPI_Irecv(&got[0], 1, MPI_INT, left, 1, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Irecv(&got[1], 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &r[1]));
    OK(MPI_Isend(&mine[0], 1, MPI_INT, right, 1, MPI_COMM_WORLD, &r[2]));
    OK(MPI_Issend(&mine[1], 1, MPI_INT, right, 2, MPI_COMM_WORLD, &r[3]));
    OK(MPI_Waitall(4, r, s));
    CHECK(got[0] == left && got[1] == 10 * left && s[1].MPI_SOURCE == left && s[1].MPI_TAG == 2);
    CHECK(r[0] == MPI_REQUEST_NULL);
    OK(MPI_Get_count(&s[0], MPI_INT, &count));
    CHECK(count == 1);
    OK(MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, right, 3, got, 1, MPI_INT, left, 3, MPI_COMM_WORLD, s));
    CHECK(got[0] == left);
}

static void datatypes(void) {
    /* the second column of a matrix goes into the third */
    double a[4][5], b[4][5];
    MPI_Datatype column;
    MPI_Aint lb, extent;
    int i, bytes;
    for (i = 0; i < 20; i++) {
        a[i / 5][i % 5] = 100 * rank + i;
        b[i / 5][i % 5] = -1;
    }
    OK(MPI_Type_vector(4, 1, 5, MPI_DOUBLE, &column));
    OK(MPI_Type_commit(&column));
    OK(MPI_Type_size(column, &bytes));
    OK(MPI_Type_get_extent(column, &lb, &extent));
    CHECK(bytes == 32 && lb == 0 && extent == 16 * (MPI_Aint)sizeof(double));
    OK(MPI_Sendrecv(&a[0][1], 1, column, rank, 4, &b[0][2], 1, column, rank, 4, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    for (i = 0; i < 20; i++) {
        CHECK(b[i / 5][i % 5] == (i % 5 == 2 ? a[i / 5][1] : -1));
    }
    OK(MPI_Type_free(&column));
    CHECK(column == MPI_DATATYPE_NULL);
}

/* Maps x -> a x + b, one after the other: it is associative, and not commutative. */
struct map {
    long a, b;
};

static int used;

static void compose(void *in, void *inout, int *n, MPI_Datatype *type) {
    struct map *f = in, *g = inout;
    int i, bytes;
    used += MPI_Type_size(*type, &bytes) == MPI_SUCCESS && bytes == (int)sizeof(struct map);
    for (i = 0; i < *n; i++) {
        g[i].b += f[i].b * g[i].a;
        g[i].a *= f[i].a;
    }
}

static void collectives(void) {
    double mine[3] = {rank, 1, 0.5}, sum[3];
    struct map some = {2, rank + 1}, folded = {0, 0}, want = {1, 0};
    MPI_Datatype two;
    int all[64], counts[64], at[64], i, to[64];
    MPI_Op op;
    struct {
        double value;
        int where;
    } least = {size - rank, rank}, found;
    OK(MPI_Allreduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum[0] == size * (size - 1) / 2.0 && sum[1] == size && sum[2] == size * 0.5);
    OK(MPI_Allreduce(MPI_IN_PLACE, mine, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    CHECK(mine[0] == size - 1);
    OK(MPI_Allreduce(&least, &found, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
    CHECK(found.value == 1 && found.where == size - 1);
    OK(MPI_Type_contiguous(2, MPI_LONG, &two));
    OK(MPI_Type_commit(&two));
    OK(MPI_Op_create(compose, 0, &op));
    OK(MPI_Allreduce(&some, &folded, 1, two, op, MPI_COMM_WORLD));
    for (i = 0; i < size; i++) {
        want.b = want.b * 2 + i + 1;
        want.a *= 2;
    }
    CHECK(folded.a == want.a && folded.b == want.b);
    OK(MPI_Allreduce(MPI_IN_PLACE, &used, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(used > 0 || size == 1);
    OK(MPI_Type_free(&two));
    OK(MPI_Op_free(&op));
    for (i = 0; i < size; i++) {
        counts[i] = i + 1;
        at[i] = i * (i + 1) / 2;
        to[i] = -1;
    }
    if (size <= 8) {
        int own[8];
        for (i = 0; i <= rank; i++) {
            own[i] = 100 * rank + i;
        }
        OK(MPI_Allgatherv(own, rank + 1, MPI_INT, all, counts, at, MPI_INT, MPI_COMM_WORLD));
        for (i = 0; i < size; i++) {
            CHECK(all[at[i]] == 100 * i && all[at[i] + i] == 100 * i + i);
        }
    }
    for (i = 0; i < size; i++) {
        all[i] = 10 * rank + i;
    }
    OK(MPI_Alltoall(all, 1, MPI_INT, to, 1, MPI_INT, MPI_COMM_WORLD));
    for (i = 0; i < size; i++) {
        CHECK(to[i] == 10 * i + rank);
    }
}

static int copies, deletes;

static int copy(MPI_Comm comm, int key, void *extra, void *value, void *out, int *flag) {
    (void)comm, (void)key;
    copies += *(int *)extra;
    *(void **)out = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int drop(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value;
    deletes += *(int *)extra;
    return MPI_SUCCESS;
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
    int class;
    handled += *comm != MPI_COMM_NULL && MPI_Error_class(*code, &class) == MPI_SUCCESS &&
               class == MPI_ERR_RANK;
}

static void communicators(void) {
    MPI_Comm half, twin;
    MPI_Errhandler h;
    int key, flag, n, one = 1, same;
    int *value = &one, *found = NULL;
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half));
    OK(MPI_Comm_size(half, &n));
    CHECK(n == (size + 1 - rank % 2) / 2);
    OK(MPI_Comm_create_keyval(copy, drop, &key, &one));
    OK(MPI_Comm_set_attr(half, key, value));
    OK(MPI_Comm_dup(half, &twin));
    OK(MPI_Comm_get_attr(twin, key, &found, &flag));
    CHECK(flag && found == value && copies == 1);
    OK(MPI_Comm_compare(half, twin, &same));
    CHECK(same == MPI_CONGRUENT);
    OK(MPI_Comm_create_errhandler(handler, &h));
    OK(MPI_Comm_set_errhandler(twin, h));
    n = MPI_Send(&one, 1, MPI_INT, size, 0, twin);
    CHECK(handled == 1 && n != MPI_SUCCESS);
    OK(MPI_Error_string(n, text, &n));
    CHECK(n > 0 && (int)strlen(text) == n);
    OK(MPI_Comm_set_errhandler(twin, MPI_ERRORS_RETURN));
    CHECK(MPI_Send(&one, 1, MPI_INT, size, 0, twin) != MPI_SUCCESS && handled == 1);
    OK(MPI_Errhandler_free(&h));
    OK(MPI_Comm_disconnect(&twin));
    CHECK(twin == MPI_COMM_NULL);
    OK(MPI_Comm_get_parent(&twin));
    CHECK(twin == MPI_COMM_NULL);
    OK(MPI_Comm_free(&half));
    CHECK(deletes == 2);
    OK(MPI_Comm_free_keyval(&key));
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    requests();
    datatypes();
    collectives();
    communicators();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        printf("ok\n");
    }
    if (argc > 1) { /* what was printed is not lost, though no stream was flushed */
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
    OK(MPI_Finalize());
    return 0;
}
