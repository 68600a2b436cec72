/* Each rank writes rows of a table into one file with HDF5, all together, and reads those of
   another rank. Rank 0 prints "ok". Argument: the file. */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 40, COLUMNS = 300 };

static int rank, size;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #what); \
            MPI_Abort(MPI_COMM_WORLD, 3); \
        } \
    } while (0)

static int cells[ROWS][COLUMNS];

/* Selects the rows of a rank: every size-th one, so that ranks alternate in the file. */
static hid_t rows_of(hid_t data, int of) {
    hid_t space = H5Dget_space(data);
    hsize_t start[2] = {(hsize_t)of, 0}, stride[2] = {(hsize_t)size, 1}, count[2] = {ROWS, COLUMNS};
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL) >= 0);
    return space;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(argc == 2);
    for (int collective = 0; collective < 2; collective++) {
        hid_t access = H5Pcreate(H5P_FILE_ACCESS), transfer = H5Pcreate(H5P_DATASET_XFER);
        CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
        CHECK(H5Pset_dxpl_mpio(transfer, collective ? H5FD_MPIO_COLLECTIVE
                                                    : H5FD_MPIO_INDEPENDENT) >= 0);
        hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
        CHECK(file >= 0);
        hsize_t all[2] = {(hsize_t)(ROWS * size), COLUMNS}, mine[2] = {ROWS, COLUMNS};
        hid_t space = H5Screate_simple(2, all, NULL), memory = H5Screate_simple(2, mine, NULL);
        hid_t data = H5Dcreate2(file, "table", H5T_STD_I32BE, space, H5P_DEFAULT, H5P_DEFAULT,
                                H5P_DEFAULT);
        CHECK(data >= 0);
        for (int i = 0; i < ROWS; i++) {
            for (int k = 0; k < COLUMNS; k++) {
                cells[i][k] = 1000000 * rank + 1000 * i + k + collective;
            }
        }
        hid_t rows = rows_of(data, rank);
        CHECK(H5Dwrite(data, H5T_NATIVE_INT, memory, rows, transfer, cells) >= 0);
        CHECK(H5Sclose(rows) >= 0 && H5Dclose(data) >= 0 && H5Fclose(file) >= 0);
        file = H5Fopen(argv[1], H5F_ACC_RDONLY, access);
        CHECK(file >= 0);
        data = H5Dopen2(file, "table", H5P_DEFAULT);
        int other = (rank + 1) % size;
        rows = rows_of(data, other);
        CHECK(H5Dread(data, H5T_NATIVE_INT, memory, rows, transfer, cells) >= 0);
        for (int i = 0; i < ROWS; i++) {
            for (int k = 0; k < COLUMNS; k++) {
                CHECK(cells[i][k] == 1000000 * other + 1000 * i + k + collective);
            }
        }
        H5Sclose(rows), H5Sclose(memory), H5Sclose(space), H5Dclose(data);
        CHECK(H5Fclose(file) >= 0);
        H5Pclose(access), H5Pclose(transfer);
    }
    CHECK(H5close() >= 0);
    if (rank == 0) {
        printf("ok\n");
    }
    MPI_Finalize();
    return 0;
}
