/* Sessions alone, one after another, in a program without MPI_Init; then MPI_Init beside one.
   Rank 0 prints "ok". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #what); \
            exit(3); \
        } \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

static int handled;

static void handler(MPI_Session *session, int *code, ...) {
    handled += *session != MPI_SESSION_NULL && *code != MPI_SUCCESS;
}

int main(void) {
    MPI_Session s;
    MPI_Group g;
    MPI_Comm c, inter;
    MPI_Errhandler h;
    char name[MPI_MAX_PSET_NAME_LEN];
    int round, n, len, sum;
    OK(MPI_Session_create_errhandler(handler, &h));
    for (round = 0; round < 3; round++) {
        OK(MPI_Session_init(MPI_INFO_NULL, h, &s));
        OK(MPI_Session_get_num_psets(s, MPI_INFO_NULL, &n));
        CHECK(n == 2);
        len = sizeof name;
        OK(MPI_Session_get_nth_pset(s, MPI_INFO_NULL, 0, &len, name));
        CHECK(strcmp(name, "mpi://WORLD") == 0);
        handled = 0;
        CHECK(MPI_Group_from_session_pset(s, "none", &g) != MPI_SUCCESS && handled == 1);
        OK(MPI_Group_from_session_pset(s, name, &g));
        OK(MPI_Comm_create_from_group(g, "org.example.library", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                      &c));
        OK(MPI_Comm_rank(c, &rank));
        OK(MPI_Comm_size(c, &size));
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, c));
        CHECK(sum == size * (size - 1) / 2);
        if (size > 1) {
            int first = 0, range[1][3] = {{1, size - 1, 1}};
            MPI_Group one, rest;
            OK(MPI_Group_incl(g, 1, &first, &one));
            OK(MPI_Group_range_incl(g, 1, range, &rest));
            OK(MPI_Intercomm_create_from_groups(rank ? rest : one, 0, rank ? one : rest, 0, "two",
                                                MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter));
            OK(MPI_Comm_remote_size(inter, &n));
            CHECK(n == (rank ? 1 : size - 1));
            OK(MPI_Barrier(inter));
            OK(MPI_Comm_free(&inter));
            OK(MPI_Group_free(&one));
            OK(MPI_Group_free(&rest));
        }
        OK(MPI_Group_free(&g));
        OK(MPI_Comm_free(&c));
        if (round == 2) { /* the last one goes on beside MPI_Init */
            OK(MPI_Init(NULL, NULL));
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Finalize());
        }
        OK(MPI_Session_finalize(&s));
        CHECK(s == MPI_SESSION_NULL);
    }
    OK(MPI_Errhandler_free(&h));
    if (rank == 0) {
        printf("ok\n");
    }
    return 0;
}
