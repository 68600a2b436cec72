// MPI's classes of C++, whose library stands on libmpich: an operation, an error handler, attributes.
// Rank 0 prints "ok".
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

static int deletes, handled;

static void check(bool is, const char *what) {
    if (!is) {
        std::fprintf(stderr, "not so: %s\n", what);
        MPI::COMM_WORLD.Abort(3);
    }
}

static void larger(const void *in, void *inout, int n, const MPI::Datatype &type) {
    check(type.Get_size() == 4, "the datatype of an operation");
    const int *a = static_cast<const int *>(in);
    int *b = static_cast<int *>(inout);
    for (int i = 0; i < n; i++) {
        b[i] = a[i] > b[i] ? a[i] : b[i];
    }
}

static void handler(MPI::Comm &comm, int *code, ...) {
    handled += comm.Get_size() == 1 && MPI::Get_error_class(*code) == MPI_ERR_RANK;
}

static int remove(MPI::Comm &comm, int, void *value, void *) {
    deletes += comm.Get_size() == 1 && *static_cast<int *>(value) == 7;
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    MPI::Init(argc, argv);
    int rank = MPI::COMM_WORLD.Get_rank(), size = MPI::COMM_WORLD.Get_size(), most = -1, seven = 7;
    MPI::Op op;
    op.Init(larger, true);
    MPI::COMM_WORLD.Allreduce(&rank, &most, 1, MPI::INT, op);
    check(most == size - 1, "an operation");
    op.Free();
    MPI::Intracomm self = MPI::COMM_SELF.Dup();
    self.Set_errhandler(MPI::Comm::Create_errhandler(handler));
    self.Send(&rank, 1, MPI::INT, 5, 0);
    check(handled == 1, "an error handler");
    int key = MPI::Comm::Create_keyval(MPI::Comm::NULL_COPY_FN, remove, NULL);
    self.Set_attr(key, &seven);
    void *value = NULL;
    check(self.Get_attr(key, &value) && value == &seven, "an attribute");
    self.Free();
    check(deletes == 1, "a deleted attribute");
    if (rank == 0) {
        std::printf("ok\n");
    }
    MPI::Finalize();
}
