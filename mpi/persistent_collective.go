package mpi

// BarrierInit makes a [Comm.Barrier] that is started any number of times (MPI_Barrier_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func (c *Comm) BarrierInit() (*Persistent, error) {
	return barrierPlan(c, "MPI_Barrier_init").persistent()
}

// BcastInit makes a [Bcast] that is started any number of times (MPI_Bcast_init, chapter Collective
// Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func BcastInit[T any](c *Comm, buf []T, root int) (*Persistent, error) {
	return bcastPlan(c, "MPI_Bcast_init", buf, root).persistent()
}

// ReduceInit makes a [Reduce] that is started any number of times (MPI_Reduce_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func ReduceInit[T any](c *Comm, send, recv []T, op Op[T], root int) (*Persistent, error) {
	return reducePlan(c, "MPI_Reduce_init", send, recv, op, root).persistent()
}

// AllreduceInit makes a [Allreduce] that is started any number of times (MPI_Allreduce_init,
// chapter Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func AllreduceInit[T any](c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	return allreducePlan(c, "MPI_Allreduce_init", send, recv, op).persistent()
}

// ReduceScatterBlockInit makes a [ReduceScatterBlock] that is started any number of times
// (MPI_Reduce_scatter_block_init, chapter Collective Communication). All ranks call it, in the same
// order as other collectives.
//
// Experimental: it may change in any release.
func ReduceScatterBlockInit[T any](c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	return reduceScatterBlockPlan(c, "MPI_Reduce_scatter_block_init", send, recv, op).persistent()
}

// ReduceScatterInit makes a [ReduceScatter] that is started any number of times
// (MPI_Reduce_scatter_init, chapter Collective Communication). All ranks call it, in the same order as
// other collectives.
//
// Experimental: it may change in any release.
func ReduceScatterInit[T any](c *Comm, send, recv []T, counts []int, op Op[T]) (*Persistent, error) {
	return reduceScatterPlan(c, "MPI_Reduce_scatter_init", send, recv, counts, op).persistent()
}

// ScanInit makes a [Scan] that is started any number of times (MPI_Scan_init, chapter Collective
// Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func ScanInit[T any](c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	return scanPlan(c, "MPI_Scan_init", send, recv, op).persistent()
}

// ExscanInit makes a [Exscan] that is started any number of times (MPI_Exscan_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func ExscanInit[T any](c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	return exscanPlan(c, "MPI_Exscan_init", send, recv, op).persistent()
}

// GatherInit makes a [Gather] that is started any number of times (MPI_Gather_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func GatherInit[T any](c *Comm, send, recv []T, root int) (*Persistent, error) {
	return gatherPlan(c, "MPI_Gather_init", send, recv, root).persistent()
}

// GathervInit makes a [Gatherv] that is started any number of times (MPI_Gatherv_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func GathervInit[T any](c *Comm, send, recv []T, at Parts, root int) (*Persistent, error) {
	return gathervPlan(c, "MPI_Gatherv_init", send, recv, at, root).persistent()
}

// ScatterInit makes a [Scatter] that is started any number of times (MPI_Scatter_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func ScatterInit[T any](c *Comm, send, recv []T, root int) (*Persistent, error) {
	return scatterPlan(c, "MPI_Scatter_init", send, recv, root).persistent()
}

// ScattervInit makes a [Scatterv] that is started any number of times (MPI_Scatterv_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func ScattervInit[T any](c *Comm, send []T, at Parts, recv []T, root int) (*Persistent, error) {
	return scattervPlan(c, "MPI_Scatterv_init", send, at, recv, root).persistent()
}

// AllgatherInit makes a [Allgather] that is started any number of times (MPI_Allgather_init,
// chapter Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func AllgatherInit[T any](c *Comm, send, recv []T) (*Persistent, error) {
	return allgatherPlan(c, "MPI_Allgather_init", send, recv).persistent()
}

// AllgathervInit makes a [Allgatherv] that is started any number of times (MPI_Allgatherv_init,
// chapter Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func AllgathervInit[T any](c *Comm, send, recv []T, at Parts) (*Persistent, error) {
	return allgathervPlan(c, "MPI_Allgatherv_init", send, recv, at).persistent()
}

// AlltoallInit makes a [Alltoall] that is started any number of times (MPI_Alltoall_init, chapter
// Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func AlltoallInit[T any](c *Comm, send, recv []T) (*Persistent, error) {
	return alltoallPlan(c, "MPI_Alltoall_init", send, recv).persistent()
}

// AlltoallvInit makes a [Alltoallv] that is started any number of times (MPI_Alltoallv_init,
// chapter Collective Communication). All ranks call it, in the same order as other collectives.
//
// Experimental: it may change in any release.
func AlltoallvInit[T any](c *Comm, send []T, to Parts, recv []T, from Parts) (*Persistent, error) {
	return alltoallvPlan(c, "MPI_Alltoallv_init", send, to, recv, from).persistent()
}

// NeighborAllgatherInit makes a [NeighborAllgather] that is started any number of times
// (MPI_Neighbor_allgather_init, chapter Process Topologies). All ranks call it, in the same order
// as other collectives.
//
// Experimental: it may change in any release.
func NeighborAllgatherInit[T any](t Topology, send, recv []T) (*Persistent, error) {
	return neighborAllgatherPlan(t, "MPI_Neighbor_allgather_init", send, recv).persistent()
}

// NeighborAlltoallInit makes a [NeighborAlltoall] that is started any number of times
// (MPI_Neighbor_alltoall_init, chapter Process Topologies). All ranks call it, in the same order as
// other collectives.
//
// Experimental: it may change in any release.
func NeighborAlltoallInit[T any](t Topology, send, recv []T) (*Persistent, error) {
	return neighborAlltoallPlan(t, "MPI_Neighbor_alltoall_init", send, recv).persistent()
}
