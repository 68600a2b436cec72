/* What MPICH's ABI lays down and the standard's has other values for. Each rank checks what it
   gets. Rank 0 prints "ok" at the end. Argument: a folder for files. */
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

static int class_of(int code) {
    int class = -1;
    OK(MPI_Error_class(code, &class));
    return class;
}

/* Bits of handles: how they were made, and their type. */
static void handles(void) {
    MPI_Comm dup;
    MPI_Datatype three;
    MPI_Group group;
    MPI_Info info;
    MPI_Request request;
    int n;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    OK(MPI_Type_contiguous(3, MPI_INT, &three));
    OK(MPI_Comm_group(dup, &group));
    OK(MPI_Info_create(&info));
    OK(MPI_Irecv(&n, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, dup, &request));
    CHECK((unsigned)dup >> 31 == 1 && (dup >> 26 & 15) == 1);
    CHECK((unsigned)group >> 31 == 1 && (group >> 26 & 15) == 2);
    CHECK((unsigned)three >> 31 == 1 && (three >> 26 & 15) == 3);
    CHECK((unsigned)info >> 31 == 1 && (info >> 26 & 15) == 7);
    CHECK((request >> 26 & 15) == 11);
    CHECK(MPI_Type_f2c(MPI_Type_c2f(three)) == three);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(request == MPI_REQUEST_NULL);
    OK(MPI_Info_free(&info));
    OK(MPI_Group_free(&group));
    OK(MPI_Type_free(&three));
    OK(MPI_Comm_free(&dup));
    CHECK(info == MPI_INFO_NULL && group == MPI_GROUP_NULL && three == MPI_DATATYPE_NULL);
    CHECK(dup == MPI_COMM_NULL);
    /* What is none is refused, also numbers that are handles of the standard's ABI. */
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Comm_size((MPI_Comm)0x101, &n)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Comm_size((MPI_Comm)0x1000, &n)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Comm_size(MPI_COMM_NULL, &n)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Send(&n, 1, (MPI_Datatype)0x209, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Send(&n, 1, MPI_INT, -4, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Send(&n, 1, MPI_INT, rank, -2, MPI_COMM_WORLD)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Send(&n, -1, MPI_INT, rank, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

static void datatypes(void) {
    static const struct { MPI_Datatype type; int size; } named[] = {
        {MPI_CHAR, 1}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_LONG, 8}, {MPI_LONG_LONG, 8},
        {MPI_BYTE, 1}, {MPI_FLOAT, 4}, {MPI_DOUBLE, 8}, {MPI_LONG_DOUBLE, 16},
        {MPI_UNSIGNED_LONG, 8}, {MPI_WCHAR, 4}, {MPI_C_BOOL, 1},
        {MPI_C_DOUBLE_COMPLEX, 16}, {MPI_INT8_T, 1}, {MPI_UINT64_T, 8},
        {MPI_AINT, 8}, {MPI_COUNT, 8}, {MPI_OFFSET, 8}, {MPI_2INT, 8}, {MPI_DOUBLE_INT, 12},
        {MPI_FLOAT_INT, 8}, {MPI_SHORT_INT, 6}, {MPI_LONG_INT, 12}, {MPI_PACKED, 1},
        {MPI_INTEGER, 4}, {MPI_REAL, 4}, {MPI_DOUBLE_PRECISION, 8}, {MPI_COMPLEX, 8},
        {MPI_DOUBLE_COMPLEX, 16}, {MPI_LOGICAL, 4}, {MPI_CHARACTER, 1}, {MPI_INTEGER8, 8},
        {MPI_REAL8, 8}, {MPI_COMPLEX16, 16}, {MPI_2INTEGER, 8}, {MPI_2DOUBLE_PRECISION, 16},
        {MPI_CXX_BOOL, 1}, {MPI_CXX_DOUBLE_COMPLEX, 16},
    };
    int bytes, ints[64], n_ints, n_addresses, n_types, combiner;
    MPI_Aint addresses[8];
    MPI_Datatype type, types[8];
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        OK(MPI_Type_size(named[i].type, &bytes));
        CHECK(bytes == named[i].size);
        OK(MPI_Type_get_envelope(named[i].type, &n_ints, &n_addresses, &n_types, &combiner));
        CHECK(combiner == MPI_COMBINER_NAMED);
    }
    OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &type));
    CHECK(type == MPI_REAL8 || type == MPI_DOUBLE || type == MPI_DOUBLE_PRECISION);
    int gsizes[2] = {8, 6}, distribs[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE};
    int dargs[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, psizes[2] = {2, 1};
    OK(MPI_Type_create_darray(2, 1, 2, gsizes, distribs, dargs, psizes, MPI_ORDER_FORTRAN,
                              MPI_INT, &type));
    OK(MPI_Type_size(type, &bytes));
    CHECK(bytes == 4 * 24);
    OK(MPI_Type_get_envelope(type, &n_ints, &n_addresses, &n_types, &combiner));
    CHECK(combiner == MPI_COMBINER_DARRAY && n_ints == 12 && n_addresses == 0 && n_types == 1);
    OK(MPI_Type_get_contents(type, 12, 0, 1, ints, addresses, types));
    CHECK(ints[0] == 2 && ints[1] == 1 && ints[2] == 2 && ints[3] == 8 && ints[4] == 6);
    CHECK(ints[5] == MPI_DISTRIBUTE_BLOCK && ints[6] == MPI_DISTRIBUTE_NONE);
    CHECK(ints[7] == MPI_DISTRIBUTE_DFLT_DARG && ints[11] == MPI_ORDER_FORTRAN);
    CHECK(types[0] == MPI_INT);
    OK(MPI_Type_free(&type));
    int sizes[2] = {4, 6}, parts[2] = {2, 3}, starts[2] = {1, 2};
    OK(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &type));
    OK(MPI_Type_get_envelope(type, &n_ints, &n_addresses, &n_types, &combiner));
    CHECK(combiner == MPI_COMBINER_SUBARRAY && n_ints == 8);
    OK(MPI_Type_get_contents(type, 8, 0, 1, ints, addresses, types));
    CHECK(ints[0] == 2 && ints[7] == MPI_ORDER_C && types[0] == MPI_DOUBLE);
    OK(MPI_Type_free(&type));
    /* A structure of types that the program and the standard have named. */
    MPI_Datatype pair, of[2];
    int lengths[2] = {1, 2};
    MPI_Aint at[2] = {0, 16};
    OK(MPI_Type_contiguous(2, MPI_LONG, &pair));
    of[0] = pair;
    of[1] = MPI_SHORT;
    OK(MPI_Type_create_struct(2, lengths, at, of, &type));
    OK(MPI_Type_get_contents(type, 3, 2, 2, ints, addresses, types));
    CHECK(ints[0] == 2 && ints[2] == 2 && addresses[1] == 16 && types[1] == MPI_SHORT);
    OK(MPI_Type_size(types[0], &bytes));
    CHECK(bytes == 16);
    OK(MPI_Type_free(&types[0]));
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free(&pair));
}

static void statuses(void) {
    MPI_Status s, all[3];
    MPI_Request r[3];
    int n = 5, got[3] = {0, 0, 0}, flag, count, index[3], some;
    MPI_Message message;
    OK(MPI_Recv(&n, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &s));
    CHECK(s.MPI_SOURCE == MPI_PROC_NULL && s.MPI_TAG == MPI_ANY_TAG && n == 5);
    OK(MPI_Get_count(&s, MPI_INT, &count));
    CHECK(count == 0);
    /* A test that finds nothing leaves the status as it is. */
    memset(&s, 0x5a, sizeof s);
    OK(MPI_Irecv(&got[0], 1, MPI_INT, rank, 7, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Test(&r[0], &flag, &s));
    CHECK(!flag && s.MPI_TAG == 0x5a5a5a5a && s.MPI_ERROR == 0x5a5a5a5a);
    CHECK(r[0] != MPI_REQUEST_NULL);
    OK(MPI_Cancel(&r[0]));
    OK(MPI_Wait(&r[0], &s));
    OK(MPI_Test_cancelled(&s, &flag));
    CHECK(flag && s.MPI_ERROR == 0x5a5a5a5a);
    OK(MPI_Wait(&r[0], &s)); /* MPI_REQUEST_NULL: the empty status */
    CHECK(s.MPI_SOURCE == MPI_ANY_SOURCE && s.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Status_set_cancelled(&s, 1));
    OK(MPI_Status_set_elements_x(&s, MPI_BYTE, (MPI_Count)5 << 32 | 3));
    MPI_Count large = 0;
    OK(MPI_Get_elements_x(&s, MPI_BYTE, &large));
    OK(MPI_Test_cancelled(&s, &flag));
    CHECK(large == ((MPI_Count)5 << 32 | 3) && flag);
    CHECK(s.count_lo == 3 && s.count_hi_and_cancelled == (5 << 1 | 1));
    MPI_Fint f[MPI_F_STATUS_SIZE];
    MPI_Status t;
    OK(MPI_Status_c2f(&s, f));
    OK(MPI_Status_f2c(f, &t));
    CHECK(memcmp(&s, &t, sizeof s) == 0 && f[MPI_F_TAG] == s.MPI_TAG);
    /* Some of three: the third never comes. */
    for (int i = 0; i < 3; i++) {
        OK(MPI_Irecv(&got[i], 1, MPI_INT, MPI_ANY_SOURCE, 10 + i, MPI_COMM_SELF, &r[i]));
    }
    n = 1;
    OK(MPI_Send(&n, 1, MPI_INT, 0, 11, MPI_COMM_SELF));
    OK(MPI_Waitsome(3, r, &some, index, all));
    CHECK(some == 1 && index[0] == 1 && all[0].MPI_TAG == 11 && got[1] == 1);
    CHECK(r[1] == MPI_REQUEST_NULL && r[0] != MPI_REQUEST_NULL);
    OK(MPI_Send(&n, 1, MPI_INT, 0, 10, MPI_COMM_SELF));
    OK(MPI_Waitany(3, r, index, &s));
    CHECK(index[0] == 0 && s.MPI_TAG == 10);
    OK(MPI_Cancel(&r[2]));
    OK(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
    OK(MPI_Isend(&n, 1, MPI_INT, 0, 20, MPI_COMM_SELF, &r[0]));
    OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &message, &s));
    CHECK(message != MPI_MESSAGE_NULL && s.MPI_TAG == 20);
    OK(MPI_Mrecv(got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    CHECK(message == MPI_MESSAGE_NULL);
    OK(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
    OK(MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_SELF, &message, &s));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Mrecv(got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    /* The error of one of several requests is in its status. */
    int two[2] = {1, 2};
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Irecv(&n, 1, MPI_INT, 0, 21, MPI_COMM_SELF, &r[0]));
    OK(MPI_Irecv(&got, 1, MPI_INT, 0, 22, MPI_COMM_SELF, &r[1]));
    OK(MPI_Send(two, 2, MPI_INT, 0, 21, MPI_COMM_SELF));
    OK(MPI_Send(two, 1, MPI_INT, 0, 22, MPI_COMM_SELF));
    CHECK(class_of(MPI_Waitall(2, r, all)) == MPI_ERR_IN_STATUS);
    CHECK(class_of(all[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
    CHECK(all[1].MPI_ERROR == MPI_SUCCESS || all[1].MPI_ERROR == MPI_ERR_PENDING);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
}

static int copied, deleted;

static int copy(MPI_Win win, int key, void *extra, void *value, void *out, int *flag) {
    (void)win, (void)key, (void)extra;
    copied++;
    *(void **)out = (char *)value + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int forget(MPI_Datatype type, int key, void *value, void *extra) {
    (void)value, (void)extra;
    deleted += type != MPI_DATATYPE_NULL && key != MPI_KEYVAL_INVALID;
    return MPI_SUCCESS;
}

static int refuse(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    return MPI_ERR_OTHER;
}

static void attributes(void) {
    int key, key2, flag, *number, minus = 0;
    void *value;
    MPI_Datatype type, dup;
    MPI_Comm comm, comm2;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag));
    CHECK(flag && *number >= 32767);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &number, &flag));
    CHECK(!flag || *number == MPI_PROC_NULL);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &number, &flag));
    CHECK(flag && *number == MPI_ANY_SOURCE);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag));
    CHECK(flag && *number >= MPI_ERR_RMA_FLAVOR);
    OK(MPI_Type_create_keyval(copy, forget, &key, NULL));
    CHECK(key != MPI_KEYVAL_INVALID && (key >> 26 & 15) == 9);
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, (void *)-1)); /* any number may be a value */
    OK(MPI_Type_get_attr(type, key, &value, &flag));
    CHECK(flag && value == (void *)-1);
    OK(MPI_Type_set_attr(type, key, &minus));
    CHECK(deleted == 1);
    OK(MPI_Type_dup(type, &dup));
    OK(MPI_Type_get_attr(dup, key, &value, &flag));
    CHECK(copied == 1 && flag && value == (char *)&minus + 1);
    OK(MPI_Type_delete_attr(dup, key));
    OK(MPI_Type_get_attr(dup, key, &value, &flag));
    CHECK(!flag && deleted == 2);
    OK(MPI_Type_free(&dup));
    OK(MPI_Type_free(&type));
    CHECK(deleted == 3);
    OK(MPI_Type_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, refuse, &key, NULL));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key2, NULL));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_set_attr(comm, key, &key));
    OK(MPI_Comm_set_attr(comm, key2, &key2));
    OK(MPI_Comm_dup(comm, &comm2));
    OK(MPI_Comm_get_attr(comm2, key, &value, &flag));
    CHECK(flag && value == &key);
    OK(MPI_Comm_get_attr(comm2, key2, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Comm_delete_attr(comm, key)) == MPI_ERR_OTHER);
    OK(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(flag && value == &key);
    CHECK(class_of(MPI_Comm_set_attr(comm, MPI_TAG_UB, &key)) != MPI_SUCCESS);
}

static void errors(void) {
    int class, code, found, n, *last, flag;
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Add_error_class(&class));
    CHECK(class > MPI_ERR_LASTCODE);
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_string(code, "one of ours"));
    OK(MPI_Error_class(code, &found));
    CHECK(found == class);
    OK(MPI_Error_string(code, text, &n));
    CHECK(strcmp(text, "one of ours") == 0 && n == (int)strlen(text));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag));
    CHECK(flag && *last >= class);
    OK(MPI_Error_string(MPI_ERR_NO_SUCH_FILE, text, &n));
    CHECK(strstr(text, "ile"));
    CHECK(class_of(MPI_ERR_RMA_FLAVOR) == MPI_ERR_RMA_FLAVOR);
}

static void ranks(void) {
    int two[2] = {0, MPI_PROC_NULL}, to[2], source, dest, dims[1] = {size}, flat[1] = {0}, n;
    MPI_Group all, none;
    MPI_Comm line, near;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    OK(MPI_Group_translate_ranks(all, 2, two, all, to));
    CHECK(to[0] == 0 && to[1] == MPI_PROC_NULL);
    OK(MPI_Group_excl(all, 1, two, &none));
    OK(MPI_Group_translate_ranks(all, 1, two, none, to));
    CHECK(to[0] == MPI_UNDEFINED);
    OK(MPI_Group_compare(all, none, &n));
    CHECK(n == MPI_UNEQUAL && (size > 1 || none == MPI_GROUP_EMPTY));
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, flat, 0, &line));
    OK(MPI_Topo_test(line, &n));
    CHECK(n == MPI_CART);
    OK(MPI_Topo_test(MPI_COMM_WORLD, &n));
    CHECK(n == MPI_UNDEFINED);
    OK(MPI_Cart_shift(line, 0, 1, &source, &dest));
    CHECK(source == (rank ? rank - 1 : MPI_PROC_NULL));
    CHECK(dest == (rank < size - 1 ? rank + 1 : MPI_PROC_NULL));
    n = -1;
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, dest, 1, &n, 1, MPI_INT, source, MPI_ANY_TAG, line,
                    MPI_STATUS_IGNORE));
    CHECK(n == rank - 1);
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near));
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank ? 0 : MPI_UNDEFINED, 0, &line));
    CHECK((line == MPI_COMM_NULL) == (rank == 0));
    /* A graph without weights, and one with. */
    MPI_Comm graph;
    int right = (rank + 1) % size, left = (rank + size - 1) % size, w = 7, in, out, weighted;
    int weight = 0;
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right,
                                      MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
    CHECK(in == 1 && out == 1 && !weighted);
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, &w, 1, &right, &w, MPI_INFO_NULL, 0,
                                      &graph));
    OK(MPI_Dist_graph_neighbors(graph, 1, &in, &weight, 1, &out, MPI_UNWEIGHTED));
    CHECK(in == left && out == right && weight == 7);
    OK(MPI_Topo_test(graph, &n));
    CHECK(n == MPI_DIST_GRAPH);
    int one = 1, got = -1;
    MPI_Aint at = 0;
    MPI_Datatype type = MPI_INT;
    OK(MPI_Neighbor_alltoallw(&rank, &one, &at, &type, &got, &one, &at, &type, graph));
    CHECK(got == left);
}

static void collectives(void) {
    int n = rank, sum = 0, *counts = malloc(4 * size), *at = malloc(4 * size), i;
    int *to = malloc(4 * size), *from = malloc(4 * size), thread;
    MPI_Datatype *types = malloc(sizeof *types * size);
    OK(MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(n == size * (size - 1) / 2);
    OK(MPI_Reduce(rank ? &rank : MPI_IN_PLACE, rank ? NULL : memcpy(&sum, &rank, 4), 1, MPI_INT,
                  MPI_MAX, 0, MPI_COMM_WORLD));
    CHECK(rank || sum == size - 1);
    for (i = 0; i < size; i++) {
        counts[i] = 1;
        at[i] = 4 * i;
        types[i] = i % 2 ? MPI_FLOAT : MPI_INT;
        to[i] = 100 * rank + i;
    }
    for (i = 0; i < size; i++) {
        types[i] = (i + rank) % 2 ? MPI_FLOAT : MPI_INT;
    }
    OK(MPI_Alltoallw(to, counts, at, types, from, counts, at, types, MPI_COMM_WORLD));
    for (i = 0; i < size; i++) {
        CHECK(from[i] == 100 * i + rank);
    }
    OK(MPI_Query_thread(&thread));
    CHECK(thread == MPI_THREAD_MULTIPLE);
    free(counts), free(at), free(to), free(from), free(types);
}

static void windows(void) {
    int *base, *found, flag, *number, got = -1;
    MPI_Aint *bytes;
    MPI_Win win;
    OK(MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &found, &flag));
    CHECK(flag && found == base);
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag));
    CHECK(flag && *bytes == 4 * sizeof(int));
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &number, &flag));
    CHECK(flag && *number == sizeof(int));
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &number, &flag));
    CHECK(flag && *number == MPI_WIN_FLAVOR_ALLOCATE);
    OK(MPI_Win_get_attr(win, MPI_WIN_MODEL, &number, &flag));
    CHECK(flag && (*number == MPI_WIN_UNIFIED || *number == MPI_WIN_SEPARATE));
    base[0] = rank;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    OK(MPI_Get(&got, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, win));
    CHECK(got == (rank + 1) % size);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOCHECK, win));
    OK(MPI_Get(&got, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    OK(MPI_Win_unlock(0, win));
    CHECK(got == 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    OK(MPI_Accumulate(&size, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_REPLACE, win));
    OK(MPI_Win_unlock(0, win));
    OK(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL);
}

static void files(const char *folder) {
    char name[512];
    int mode, n = 10 + rank, got = 0;
    MPI_Offset at, disp;
    MPI_Datatype etype, ftype;
    MPI_File f;
    MPI_Status s;
    snprintf(name, sizeof name, "%s/values", folder);
    OK(MPI_File_open(MPI_COMM_WORLD, name,
                     MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &f));
    CHECK(f != MPI_FILE_NULL && MPI_File_f2c(MPI_File_c2f(f)) == f);
    OK(MPI_File_get_amode(f, &mode));
    CHECK(mode == (MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE));
    OK(MPI_File_set_view(f, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_get_view(f, &disp, &etype, &ftype, name));
    CHECK(disp == 8 && etype == MPI_INT && ftype == MPI_INT && strcmp(name, "native") == 0);
    OK(MPI_File_write_at_all(f, rank, &n, 1, MPI_INT, &s));
    OK(MPI_File_sync(f));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_seek(f, 1, MPI_SEEK_SET));
    OK(MPI_File_seek(f, rank - 1, MPI_SEEK_CUR));
    OK(MPI_File_get_position(f, &at));
    CHECK(at == rank);
    OK(MPI_File_read(f, &got, 1, MPI_INT, &s));
    OK(MPI_Get_count(&s, MPI_INT, &n));
    CHECK(got == 10 + rank && n == 1);
    OK(MPI_File_seek(f, -1, MPI_SEEK_END));
    OK(MPI_File_read(f, &got, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(got == 10 + size - 1);
    OK(MPI_File_close(&f));
    CHECK(f == MPI_FILE_NULL);
    n = MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &f);
    CHECK(class_of(n) == MPI_ERR_NO_SUCH_FILE && class_of(n) == class_of(class_of(n)));
}

int main(int argc, char **argv) {
    int thread, n;
    char name[MPI_MAX_PROCESSOR_NAME];
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread));
    CHECK(thread == MPI_THREAD_MULTIPLE);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Get_processor_name(name, &n));
    CHECK(n > 0 && n == (int)strlen(name));
    handles();
    datatypes();
    statuses();
    attributes();
    errors();
    ranks();
    collectives();
    windows();
    files(argc > 1 ? argv[1] : "/tmp");
    if (rank == 0) {
        printf("ok\n");
    }
    OK(MPI_Finalize());
    return 0;
}
