/* Constants, texts and lengths of arrays. */
#define _GNU_SOURCE
#include "fort.h"

#include <pthread.h>
#include <string.h>

/* The linker has the program and the library share each block. */
int mpif_bottom_, mpif_in_place_, mpif_buffer_automatic_;
int mpif_status_ignore_[8], mpif_statuses_ignore_[8];
int mpif_errcodes_ignore_[1], mpif_unweighted_[1], mpif_weights_empty_[1];
char mpif_argv_null_[1], mpif_argvs_null_[1];

char *mpif_text(const char *s, size_t n) {
    while (n > 0 && s[n - 1] == ' ') {
        n--;
    }
    char *text = malloc(n + 1);
    if (text) {
        memcpy(text, s, n);
        text[n] = 0;
    }
    return text;
}

char *mpif_word(const char *s, size_t n) {
    while (n > 0 && *s == ' ') {
        s++;
        n--;
    }
    return mpif_text(s, n);
}

void mpif_pad(char *to, size_t n, const char *from) {
    size_t k = strnlen(from, n);
    memcpy(to, from, k);
    memset(to + k, ' ', n - k);
}

void *mpif_room(void *few, long n, size_t size) {
    return n <= FEW ? few : malloc((size_t)n * size);
}

void mpif_leave(const void *few, void *room) {
    if (room != few) {
        free(room);
    }
}

/* No call tells when the request of another one is over, which another thread may wait for. */
MPI_Datatype *mpif_types(const int *types, int n) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct array {
        struct array *next;
        int n;
        MPI_Datatype types[];
    } *all;
    size_t size = n > 0 ? (size_t)n * sizeof(MPI_Datatype) : 0;
    struct array *a = malloc(sizeof *a + size);
    if (!a) {
        return NULL;
    }
    a->n = n;
    for (int i = 0; i < n; i++) {
        a->types[i] = PMPI_Type_fromint(types[i]);
    }
    pthread_mutex_lock(&lock);
    struct array *old = all;
    while (old && (old->n != n || memcmp(old->types, a->types, size) != 0)) {
        old = old->next;
    }
    if (old) {
        free(a);
    } else {
        a->next = all;
        old = all = a;
    }
    pthread_mutex_unlock(&lock);
    return old->types;
}

int mpif_peers(int comm) {
    MPI_Comm c = PMPI_Comm_fromint(comm);
    int inter = 0, n = 0;
    if (PMPI_Comm_test_inter(c, &inter) == MPI_SUCCESS) {
        if (inter) {
            PMPI_Comm_remote_size(c, &n);
        } else {
            PMPI_Comm_size(c, &n);
        }
    }
    return n;
}

/* The datatypes do not count if the data is in the receive buffer. */
int mpif_senders(const void *sendbuf, int comm) {
    return sendbuf == &mpif_in_place_ ? 0 : mpif_peers(comm);
}

static void neighbors(int comm, int *sources, int *targets) {
    MPI_Comm c = PMPI_Comm_fromint(comm);
    int topology = MPI_UNDEFINED, rank, n = 0, weighted;
    *sources = *targets = 0;
    if (PMPI_Topo_test(c, &topology) != MPI_SUCCESS) {
        return;
    }
    switch (topology) {
    case MPI_DIST_GRAPH:
        PMPI_Dist_graph_neighbors_count(c, sources, targets, &weighted);
        return;
    case MPI_GRAPH:
        if (PMPI_Comm_rank(c, &rank) == MPI_SUCCESS) {
            PMPI_Graph_neighbors_count(c, rank, &n);
        }
        break;
    case MPI_CART:
        PMPI_Cartdim_get(c, &n);
        n *= 2;
        break;
    default: /* The call finds the error. */
        break;
    }
    *sources = *targets = n;
}

int mpif_sources(int comm) {
    int sources, targets;
    neighbors(comm, &sources, &targets);
    return sources;
}

int mpif_targets(int comm) {
    int sources, targets;
    neighbors(comm, &sources, &targets);
    return targets;
}

static void set(MPI_Info info, const char *key, const char *value) {
    PMPI_Info_set(info, key, value);
}

/*
 * The types are gfortran's. libmpi_abi may know them already, as ours does: the standard has the
 * first call count, and others fail.
 */
void mpif_register(void) {
    static const char *const supported[] = {
        "logical1", "logical2", "logical4",  "logical8",  "logical16", "integer1",
        "integer2", "integer4", "integer8",  "integer16", "real4",     "real8",
        "real16",   "complex8", "complex16", "complex32", "double_complex"};
    static const char *const unsupported[] = {"real2", "complex4"};
    static int done;
    if (__atomic_exchange_n(&done, 1, __ATOMIC_RELAXED)) {
        return;
    }
    MPI_Info info = MPI_INFO_NULL;
    if (PMPI_Abi_get_fortran_info(&info) != MPI_SUCCESS || info == MPI_INFO_NULL) {
        if (PMPI_Info_create(&info) != MPI_SUCCESS) {
            return;
        }
        char key[64];
        set(info, "mpi_logical_size", "4");
        set(info, "mpi_integer_size", "4");
        set(info, "mpi_real_size", "4");
        set(info, "mpi_double_precision_size", "8");
        for (size_t i = 0; i < sizeof supported / sizeof *supported; i++) {
            strcpy(key, "mpi_");
            set(info, strcat(strcat(key, supported[i]), "_supported"), "true");
        }
        for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
            strcpy(key, "mpi_");
            set(info, strcat(strcat(key, unsupported[i]), "_supported"), "false");
        }
        PMPI_Abi_set_fortran_info(info);
    }
    PMPI_Info_free(&info);
    int yes = 1, no = 0, is_set = 0, a, b;
    if (PMPI_Abi_get_fortran_booleans(sizeof yes, &a, &b, &is_set) == MPI_SUCCESS && !is_set) {
        PMPI_Abi_set_fortran_booleans(sizeof yes, &yes, &no);
    }
}

/* The operators == and /= of handles. */
#define OPERATORS(NAME)                                                            \
    API int mpif_##NAME##_eq_(const int *a, const int *b) { return *a == *b; }     \
    API int mpif_##NAME##_ne_(const int *a, const int *b) { return *a != *b; }
OPERATORS(comm)
OPERATORS(datatype)
OPERATORS(errhandler)
OPERATORS(file)
OPERATORS(group)
OPERATORS(info)
OPERATORS(message)
OPERATORS(op)
OPERATORS(request)
OPERATORS(session)
OPERATORS(win)
