/* Jobs that spawn, connect and join, generalized requests, and communicators made meanwhile.
   Without an argument it is the job that spawns: rank 0 prints "ok" at the end. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int rank, size;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #what); \
            MPI_Abort(MPI_COMM_WORLD, 3); \
        } \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

/* Threads of the library block signals. What they start does not begin so. */
static void signals_are_open(void) {
    sigset_t now;
    int s;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    for (s = 1; s < 32; s++) {
        CHECK(sigismember(&now, s) == 0);
    }
}

/* Tells the rank, the number of the command and the length of the argument. The parents add. */
static void child(const char *word) {
    MPI_Comm parent, both;
    int told[3], sum, *number, flag, n;
    signals_are_open();
    OK(MPI_Comm_get_parent(&parent));
    CHECK(parent != MPI_COMM_NULL);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag));
    CHECK(flag);
    told[0] = rank;
    told[1] = *number;
    told[2] = (int)strlen(word);
    OK(MPI_Send(told, 3, MPI_INT, 0, 7, parent));
    OK(MPI_Intercomm_merge(parent, 1, &both));
    OK(MPI_Comm_size(both, &n));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, both));
    OK(MPI_Comm_disconnect(&parent));
    OK(MPI_Finalize());
    exit(0);
}

static void spawn(char *self) {
    MPI_Comm inter, both;
    char *one[] = {"child", "one", NULL}, *three[] = {"child", "three", NULL};
    char *commands[] = {self, self}, **argvs[] = {one, three};
    int counts[] = {2, 1}, codes[3] = {-1, -1, -1}, told[3], remote, n, sum, i;
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Errhandler h;
    OK(MPI_Comm_spawn_multiple(2, commands, argvs, counts, infos, 0, MPI_COMM_WORLD, &inter,
                               codes));
    CHECK(codes[0] == MPI_SUCCESS && codes[1] == MPI_SUCCESS && codes[2] == MPI_SUCCESS);
    OK(MPI_Comm_remote_size(inter, &remote));
    CHECK(remote == 3);
    for (i = 0; rank == 0 && i < 3; i++) {
        OK(MPI_Recv(told, 3, MPI_INT, i, 7, inter, MPI_STATUS_IGNORE));
        CHECK(told[0] == i && told[1] == (i == 2) && told[2] == (i == 2 ? 5 : 3));
    }
    OK(MPI_Intercomm_merge(inter, 0, &both));
    OK(MPI_Comm_size(both, &n));
    CHECK(n == size + 3);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, both));
    CHECK(sum == size * (size - 1) / 2 + 3);
    OK(MPI_Comm_disconnect(&inter));
    CHECK(inter == MPI_COMM_NULL);
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &h));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    n = MPI_Comm_spawn("/nowhere/program", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
                       &inter, MPI_ERRCODES_IGNORE);
    OK(MPI_Error_class(n, &n));
    CHECK(n == (rank == 0 ? MPI_ERR_SPAWN : MPI_ERR_OTHER) && inter == MPI_COMM_NULL);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, h));
}

/* Two halves of the job meet by a name. */
static void ports(void) {
    MPI_Comm half, inter;
    char port[MPI_MAX_PORT_NAME] = "";
    int color = rank >= size / 2, n;
    if (size < 2) {
        return;
    }
    OK(MPI_Comm_split(MPI_COMM_WORLD, color, rank, &half));
    if (rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, port));
        OK(MPI_Publish_name("the halves", MPI_INFO_NULL, port));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (color == 0) {
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter));
    } else {
        if (rank == size / 2) {
            OK(MPI_Lookup_name("the halves", MPI_INFO_NULL, port));
        }
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter));
    }
    OK(MPI_Comm_remote_size(inter, &n));
    CHECK(n == (color ? size / 2 : size - size / 2));
    OK(MPI_Barrier(inter));
    OK(MPI_Comm_disconnect(&inter));
    if (rank == 0) {
        OK(MPI_Unpublish_name("the halves", MPI_INFO_NULL, port));
        OK(MPI_Close_port(port));
    }
    OK(MPI_Comm_free(&half));
}

struct work {
    MPI_Request request;
    int result, queries, frees;
};

static int query(void *extra, MPI_Status *status) {
    struct work *w = extra;
    w->queries++;
    MPI_Status_set_elements(status, MPI_INT, w->result);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 11;
    status->MPI_TAG = 12;
    return MPI_SUCCESS;
}

static int release(void *extra) {
    ((struct work *)extra)->frees++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) {
    (void)extra, (void)complete;
    return MPI_SUCCESS;
}

static void *worker(void *arg) {
    struct work *w = arg;
    usleep(1000);
    w->result = 42;
    OK(MPI_Grequest_complete(w->request));
    return NULL;
}

/* The first call that this thread makes runs a function of the program, which calls MPI. */
static void *waiter(void *arg) {
    struct work *w = arg;
    OK(MPI_Wait(&w->request, MPI_STATUS_IGNORE));
    return NULL;
}

static void waited_by_a_new_thread(void) {
    struct work w = {.result = 42};
    pthread_t t;
    OK(MPI_Grequest_start(query, release, cancel, &w, &w.request));
    OK(MPI_Grequest_complete(w.request));
    CHECK(pthread_create(&t, NULL, waiter, &w) == 0);
    CHECK(pthread_join(t, NULL) == 0);
    CHECK(w.request == MPI_REQUEST_NULL && w.queries == 1 && w.frees == 1);
}

static void generalized(void) {
    struct work w = {.result = 0};
    MPI_Request r;
    MPI_Status s;
    pthread_t t;
    int n;
    OK(MPI_Grequest_start(query, release, cancel, &w, &w.request));
    r = w.request;
    CHECK(pthread_create(&t, NULL, worker, &w) == 0);
    OK(MPI_Wait(&r, &s));
    CHECK(pthread_join(t, NULL) == 0);
    OK(MPI_Get_elements(&s, MPI_INT, &n));
    CHECK(n == 42 && s.MPI_SOURCE == 11 && s.MPI_TAG == 12 && w.queries == 1 && w.frees == 1);
    CHECK(r == MPI_REQUEST_NULL);
}

static void neighbours(void) {
    MPI_Comm ring, twin;
    MPI_Request r[2];
    MPI_Datatype t;
    int periodic = 1, got[2] = {-1, -1}, left = (rank + size - 1) % size, bytes;
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring));
    OK(MPI_Comm_idup(ring, &twin, &r[0]));
    OK(MPI_Ineighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, ring, &r[1]));
    OK(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    CHECK(got[0] == left && got[1] == (rank + 1) % size);
    got[0] = got[1] = -1;
    OK(MPI_Neighbor_allgather_init(&rank, 1, MPI_INT, got, 1, MPI_INT, twin, MPI_INFO_NULL, &r[0]));
    OK(MPI_Start(&r[0]));
    OK(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
    CHECK(got[0] == left && got[1] == (rank + 1) % size);
    OK(MPI_Request_free(&r[0]));
    OK(MPI_Comm_free(&ring));
    OK(MPI_Comm_free(&twin));
    OK(MPI_Type_create_f90_real(15, 307, &t));
    OK(MPI_Type_size(t, &bytes));
    CHECK(bytes == 8);
}

/* A socket whose other end is closed joins nothing. */
static void joins_nothing(void) {
    int fds[2], n;
    MPI_Comm inter;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK(close(fds[1]) == 0);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Error_class(MPI_Comm_join(fds[0], &inter), &n));
    CHECK(n == MPI_ERR_OTHER && inter == MPI_COMM_NULL);
    CHECK(close(fds[0]) == 0);
}

int main(int argc, char **argv) {
    int provided;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    if (argc > 2) {
        child(argv[2]);
    }
    neighbours();
    generalized();
    waited_by_a_new_thread();
    ports();
    joins_nothing();
    spawn(argv[0]);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        printf("ok\n");
    }
    OK(MPI_Finalize());
    return 0;
}
