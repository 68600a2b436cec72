/* The contents of datatypes, and the numbers of datatypes in arrays. */
#include <stdio.h>

#include "convert.h"

#define COMBINER_SUBARRAY 111
#define COMBINER_DARRAY 112

/* Converts the integers of a datatype that its combiner gives other meanings than numbers. */
static void integers_out(int combiner, int large, int *ints, int n) {
    if (combiner != COMBINER_SUBARRAY && combiner != COMBINER_DARRAY) {
        return;
    }
    ints[n - 1] = (int)order_out(ints[n - 1]);
    if (combiner == COMBINER_DARRAY) { /* size, rank, ndims, gsizes, distribs, dargs, psizes... */
        int ndims = ints[2], *p = ints + 3 + (large ? 0 : ndims);
        EACH(p, ndims, distribution_out)
        p += ndims;
        EACH(p, ndims, dargument_out)
    }
}

/* What the constructor of a datatype has got, of the kinds of Type_get_envelope_c. */
struct envelope {
    MPI_Count ints, addresses, counts, types;
    int combiner;
};

static int contents(uint32_t number, const char *name, int datatype, MPI_Count ints,
                    MPI_Count addresses, MPI_Count counts, MPI_Count types, int *array_of_ints,
                    MPI_Aint *array_of_addresses, MPI_Count *array_of_counts, int *array_of_types,
                    int large) {
    uint64_t *m = room(items(types));
    if (!m) {
        return NO_MEMORY;
    }
    uint64_t args[9], n = 0;
    args[n++] = Datatype_in(datatype);
    args[n++] = INTEGER(ints);
    args[n++] = INTEGER(addresses);
    if (large) {
        args[n++] = INTEGER(counts);
    }
    args[n++] = INTEGER(types);
    args[n++] = ADDRESS(array_of_ints);
    args[n++] = ADDRESS(array_of_addresses);
    if (large) {
        args[n++] = ADDRESS(array_of_counts);
    }
    args[n++] = array_of_types ? ADDRESS(m) : 0;
    int code = code_out(mpi_call(number, name, args, (uint32_t)n));
    if (code == 0) {
        struct envelope e = {0};
        const uint64_t of[] = {args[0], ADDRESS(&e.ints), ADDRESS(&e.addresses), ADDRESS(&e.counts),
                               ADDRESS(&e.types), ADDRESS(&e.combiner)};
        code = code_out(mpi_call(CALL_MPI_Type_get_envelope_c, "MPI_Type_get_envelope_c", of, 6));
        for (MPI_Count i = 0; i < e.types; i++) {
            array_of_types[i] = Datatype_out(m[i]);
        }
        integers_out(e.combiner, large && e.counts > 0, array_of_ints, (int)e.ints);
    }
    free(m);
    return code;
}

API int PMPI_Type_get_contents(int datatype, int max_integers, int max_addresses, int max_datatypes,
                               int array_of_integers[], MPI_Aint array_of_addresses[],
                               int array_of_datatypes[]) {
    return contents(CALL_MPI_Type_get_contents, "MPI_Type_get_contents", datatype, max_integers,
                    max_addresses, 0, max_datatypes, array_of_integers, array_of_addresses, NULL,
                    array_of_datatypes, 0);
}
ALIAS(Type_get_contents);

API int PMPI_Type_get_contents_c(int datatype, MPI_Count max_integers, MPI_Count max_addresses,
                                 MPI_Count max_large_counts, MPI_Count max_datatypes,
                                 int array_of_integers[], MPI_Aint array_of_addresses[],
                                 MPI_Count array_of_large_counts[], int array_of_datatypes[]) {
    return contents(CALL_MPI_Type_get_contents_c, "MPI_Type_get_contents_c", datatype, max_integers,
                    max_addresses, max_large_counts, max_datatypes, array_of_integers,
                    array_of_addresses, array_of_large_counts, array_of_datatypes, 1);
}
ALIAS(Type_get_contents_c);

void too_many_handles(uint64_t h) {
    fprintf(stderr, "libmpich: handle %#llx has more than the %d bits of MPICH's handles: "
            "free objects that are not used\n", (unsigned long long)h, INDEX_BITS);
    abort();
}

/* Asks for an int of a communicator. */
static int ask(uint32_t number, const char *name, uint64_t comm) {
    int v = 0;
    const uint64_t args[] = {comm, ADDRESS(&v)};
    return mpi_call(number, name, args, 2) == 0 ? v : 0;
}
#define ASK(NAME, COMM) ask(CALL_MPI_##NAME, "MPI_" #NAME, COMM)

struct peers peers_of(int comm, int neighbors) {
    const uint64_t c = Comm_in(comm);
    struct peers p = {0, 0};
    if (!neighbors) {
        p.to = p.from = ASK(Comm_test_inter, c) ? ASK(Comm_remote_size, c) : ASK(Comm_size, c);
        return p;
    }
    switch (ASK(Topo_test, c)) {
    case 211: /* MPI_CART */
        p.to = p.from = 2 * ASK(Cartdim_get, c);
        break;
    case 212: { /* MPI_GRAPH */
        const uint64_t args[] = {c, INTEGER(ASK(Comm_rank, c)), ADDRESS(&p.to)};
        mpi_call(CALL_MPI_Graph_neighbors_count, "MPI_Graph_neighbors_count", args, 3);
        p.from = p.to;
        break;
    }
    case 213: { /* MPI_DIST_GRAPH */
        int weighted = 0;
        const uint64_t args[] = {c, ADDRESS(&p.from), ADDRESS(&p.to), ADDRESS(&weighted)};
        mpi_call(CALL_MPI_Dist_graph_neighbors_count, "MPI_Dist_graph_neighbors_count", args, 4);
        break;
    }
    }
    return p;
}
