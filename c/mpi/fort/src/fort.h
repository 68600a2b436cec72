/* What the files of libmpifort_abi share. It stands on the functions of libmpi_abi alone, so that
 * any library of that name serves it. */
#ifndef MPIF_FORT_H
#define MPIF_FORT_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

/* The callers are in Fortran, so no header declares the functions. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/*
 * calls.c and special.c are compiled twice: mpi_send_ calls MPI_Send, which may be a tool's, and
 * pmpi_send_ calls PMPI_Send. Module mpi_f08 calls mpi_send_f08_. Its arguments have the same bits:
 * a handle is a structure of one INTEGER, and a missing ierror is a null pointer.
 */
#ifdef PROFILE
#define F77(NAME) pmpi_##NAME##_
#define F08(NAME) pmpi_##NAME##_f08_
#define CPTR_NAME(NAME) pmpi_##NAME##_cptr_
#define CALL(NAME) PMPI_##NAME
#else
#define F77(NAME) mpi_##NAME##_
#define F08(NAME) mpi_##NAME##_f08_
#define CPTR_NAME(NAME) mpi_##NAME##_cptr_
#define CALL(NAME) MPI_##NAME
#endif

#define TEXT(X) #X
#define TEXT_OF(X) TEXT(X)
#define ANOTHER(NEW, OLD) \
    extern __typeof(OLD) NEW __attribute__((alias(TEXT_OF(OLD)), visibility("default")))
#define SAME(NAME) ANOTHER(F08(NAME), F77(NAME))
#define CPTR(NAME) ANOTHER(CPTR_NAME(NAME), F77(NAME))

#define IERROR(E)          \
    do {                   \
        if (ierror) {      \
            *ierror = (E); \
        }                  \
    } while (0)

/* Constants that are recognised by their addresses: common blocks, which the program has, too. */
extern API int mpif_bottom_, mpif_in_place_, mpif_buffer_automatic_;
extern API int mpif_status_ignore_[8], mpif_statuses_ignore_[8];
extern API int mpif_errcodes_ignore_[1], mpif_unweighted_[1], mpif_weights_empty_[1];
extern API char mpif_argv_null_[1], mpif_argvs_null_[1];

static inline void *mpif_buffer(const void *b) {
    return b == &mpif_bottom_             ? MPI_BOTTOM
           : b == &mpif_in_place_         ? MPI_IN_PLACE
           : b == &mpif_buffer_automatic_ ? MPI_BUFFER_AUTOMATIC
                                          : (void *)(uintptr_t)b;
}

static inline int *mpif_weights(const int *w) {
    return w == mpif_unweighted_      ? MPI_UNWEIGHTED
           : w == mpif_weights_empty_ ? MPI_WEIGHTS_EMPTY
                                      : (int *)(uintptr_t)w;
}

/* A status has the same eight integers in both languages. */
#define STATUS(S) ((S) == mpif_status_ignore_ ? MPI_STATUS_IGNORE : (MPI_Status *)(S))
#define STATUSES(S) ((S) == mpif_statuses_ignore_ ? MPI_STATUSES_IGNORE : (MPI_Status *)(S))
#define BUFFER(B) mpif_buffer(B)
#define WEIGHTS(W) mpif_weights(W)
#define ERRCODES(E) ((E) == mpif_errcodes_ignore_ ? MPI_ERRCODES_IGNORE : (E))

/* Texts. mpif_text makes a text of C without the blanks at the end, mpif_word without those at both
 * ends: free it. Null: no memory. mpif_pad fills a text of Fortran with blanks. */
char *mpif_text(const char *s, size_t n);
char *mpif_word(const char *s, size_t n);
void mpif_pad(char *to, size_t n, const char *from);

/* Room for n items, that the caller has if they are few. Null: no memory. */
#define FEW 32
void *mpif_room(void *few, long n, size_t size);
void mpif_leave(const void *few, void *room);

/* An array of datatypes for a call that goes on when it is over. It stays, and calls with the same
 * datatypes have the same one. Null: no memory. */
MPI_Datatype *mpif_types(const int *types, int n);

/* Indexes count from 1 in Fortran. */
static inline int mpif_index(int i) { return i == MPI_UNDEFINED ? i : i + 1; }
static inline void mpif_indexes(int *indexes, int n) {
    for (int i = 0; i < n; i++) {
        indexes[i]++;
    }
}

/* How many handles the arrays of MPI_Alltoallw and of MPI_Neighbor_alltoallw have. */
int mpif_peers(int comm);
int mpif_senders(const void *sendbuf, int comm);
int mpif_targets(int comm);
int mpif_sources(int comm);

/* Tells libmpi_abi what the Fortran compiler does, if no other library has. */
void mpif_register(void);

/* Functions of the program in Fortran: all parameters are references, handles are integers. */
typedef void mpif_User_function(void *, void *, int *, int *);
typedef void mpif_User_function_c(void *, void *, MPI_Count *, int *);
typedef void mpif_Comm_errhandler_function(int *, int *);
typedef void mpif_Win_errhandler_function(int *, int *);
typedef void mpif_File_errhandler_function(int *, int *);
typedef void mpif_Session_errhandler_function(int *, int *);
typedef void mpif_Copy_function(int *, int *, int *, int *, int *, int *, int *);
typedef void mpif_Delete_function(int *, int *, int *, int *, int *);
typedef void mpif_copy(int *, int *, MPI_Aint *, MPI_Aint *, MPI_Aint *, int *, int *);
typedef void mpif_delete(int *, int *, MPI_Aint *, MPI_Aint *, int *);
typedef void mpif_Grequest_query_function(MPI_Aint *, int *, int *);
typedef void mpif_Grequest_free_function(MPI_Aint *, int *);
typedef void mpif_Grequest_cancel_function(MPI_Aint *, int *, int *);
typedef void mpif_Datarep_extent_function(int *, MPI_Aint *, MPI_Aint *, int *);
typedef void mpif_Datarep_conversion_function(void *, int *, int *, void *, MPI_Offset *,
                                              MPI_Aint *, int *);
typedef void mpif_Datarep_conversion_function_c(void *, int *, MPI_Count *, void *, MPI_Offset *,
                                                MPI_Aint *, int *);

/* The function in C that calls one in Fortran. Null: there are too many. */
MPI_User_function *mpif_wrap_User_function(mpif_User_function *f);
MPI_User_function_c *mpif_wrap_User_function_c(mpif_User_function_c *f);
MPI_Comm_errhandler_function *mpif_wrap_Comm_errhandler_function(mpif_Comm_errhandler_function *f);
MPI_Win_errhandler_function *mpif_wrap_Win_errhandler_function(mpif_Win_errhandler_function *f);
MPI_File_errhandler_function *mpif_wrap_File_errhandler_function(mpif_File_errhandler_function *f);
MPI_Session_errhandler_function *
mpif_wrap_Session_errhandler_function(mpif_Session_errhandler_function *f);

/* What a key of attributes has: its functions in Fortran, and their extra state. Two keys with the
 * same have one, as no function tells when a key's last attribute is gone. */
struct mpif_keyval {
    void (*copy)(void);
    void (*remove)(void);
    MPI_Aint extra;
    struct mpif_keyval *next;
};
struct mpif_keyval *mpif_keyval(void (*copy)(void), void (*remove)(void), MPI_Aint extra);

MPI_Comm_copy_attr_function mpif_comm_copy;
MPI_Comm_delete_attr_function mpif_comm_delete;
MPI_Type_copy_attr_function mpif_type_copy;
MPI_Type_delete_attr_function mpif_type_delete;
MPI_Win_copy_attr_function mpif_win_copy;
MPI_Win_delete_attr_function mpif_win_delete;
MPI_Copy_function mpif_old_copy;
MPI_Delete_function mpif_old_delete;

struct mpif_grequest {
    mpif_Grequest_query_function *query;
    mpif_Grequest_free_function *free;
    mpif_Grequest_cancel_function *cancel;
    MPI_Aint extra;
};
MPI_Grequest_query_function mpif_grequest_query;
MPI_Grequest_free_function mpif_grequest_free;
MPI_Grequest_cancel_function mpif_grequest_cancel;

struct mpif_datarep {
    void (*read)(void);
    void (*write)(void);
    mpif_Datarep_extent_function *extent;
    MPI_Aint extra;
};
MPI_Datarep_extent_function mpif_datarep_extent;
MPI_Datarep_conversion_function mpif_datarep_read, mpif_datarep_write;
MPI_Datarep_conversion_function_c mpif_datarep_read_c, mpif_datarep_write_c;

/* Functions for attributes that the library has. A program gives them to calls, as its own ones. */
#define COPY_FUNCTION int *, int *, MPI_Aint *, MPI_Aint *, MPI_Aint *, int *, int *
#define DELETE_FUNCTION int *, int *, MPI_Aint *, MPI_Aint *, int *
API void mpi_comm_dup_fn_(COPY_FUNCTION);
API void mpi_comm_null_copy_fn_(COPY_FUNCTION);
API void mpi_comm_null_delete_fn_(DELETE_FUNCTION);
API void mpi_type_dup_fn_(COPY_FUNCTION);
API void mpi_type_null_copy_fn_(COPY_FUNCTION);
API void mpi_type_null_delete_fn_(DELETE_FUNCTION);
API void mpi_win_dup_fn_(COPY_FUNCTION);
API void mpi_win_null_copy_fn_(COPY_FUNCTION);
API void mpi_win_null_delete_fn_(DELETE_FUNCTION);
API void mpi_dup_fn_(int *, int *, int *, int *, int *, int *, int *);
API void mpi_null_copy_fn_(int *, int *, int *, int *, int *, int *, int *);
API void mpi_null_delete_fn_(int *, int *, int *, int *, int *);
API void mpi_conversion_fn_null_(void *, int *, int *, void *, MPI_Offset *, MPI_Aint *, int *);
API void mpi_conversion_fn_null_c_(void *, int *, MPI_Count *, void *, MPI_Offset *, MPI_Aint *,
                                   int *);

#endif
