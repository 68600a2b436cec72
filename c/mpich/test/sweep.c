/* Calls each function that standard input names with arguments that are all zero: no handle is one,
   and no address is there. It must return, whatever it says. Prints how many have returned an
   error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

typedef int call(long, long, long, long, long, long, long, long, long, long, long, long, long,
                 long);

int main(int argc, char **argv) {
    char name[256];
    int calls = 0, errors = 0, flag, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    while (scanf("%255s", name) == 1) {
        call *f = (call *)dlsym(RTLD_DEFAULT, name);
        if (!f) {
            printf("%s is not there\n", name);
            return 3;
        }
        fprintf(stderr, "%s\n", name); /* the last line names the one that has not returned */
        int code = f(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        calls++;
        errors += code != MPI_SUCCESS;
    }
    /* MPI works as before. */
    if (MPI_Initialized(&flag) != MPI_SUCCESS || !flag || MPI_Comm_size(MPI_COMM_WORLD, &size)) {
        printf("MPI does not work any more\n");
        return 3;
    }
    printf("%d %d\n", calls, errors);
    MPI_Finalize();
    return 0;
}
