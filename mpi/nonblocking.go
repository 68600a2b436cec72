package mpi

import "context"

// start begins the plan, and returns its request. A goroutine runs it, so it makes progress
// whatever the caller does.
func (p plan) start() (*Request, error) {
	if p.err != nil {
		return nil, p.c.raise(p.err)
	}
	return p.startRound(p.c.begin(p.call)), nil
}

// startRound begins the plan with messages of a tag that it has already.
func (p plan) startRound(r *round) *Request {
	q := p.c.j.e.NewGeneral()
	go func() { q.EndGeneral(p.execute(context.Background(), r)) }()
	return &Request{q, p.call, p.c}
}

// Ibarrier begins [Comm.Barrier], and does not wait for it (MPI_Ibarrier, chapter Collective
// Communication).
//
// Experimental: it may change in any release.
func (c *Comm) Ibarrier() (*Request, error) {
	return barrierPlan(c, "MPI_Ibarrier").start()
}

// Ibcast begins [Bcast], and does not wait for it (MPI_Ibcast, chapter Collective Communication).
// The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Ibcast[T any](c *Comm, buf []T, root int) (*Request, error) {
	return bcastPlan(c, "MPI_Ibcast", buf, root).start()
}

// Ireduce begins [Reduce], and does not wait for it (MPI_Ireduce, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Ireduce[T any](c *Comm, send, recv []T, op Op[T], root int) (*Request, error) {
	return reducePlan(c, "MPI_Ireduce", send, recv, op, root).start()
}

// Iallreduce begins [Allreduce], and does not wait for it (MPI_Iallreduce, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Iallreduce[T any](c *Comm, send, recv []T, op Op[T]) (*Request, error) {
	return allreducePlan(c, "MPI_Iallreduce", send, recv, op).start()
}

// IreduceScatterBlock begins [ReduceScatterBlock], and does not wait for it
// (MPI_Ireduce_scatter_block, chapter Collective Communication). The buffers belong to it until it
// is over.
//
// Experimental: it may change in any release.
func IreduceScatterBlock[T any](c *Comm, send, recv []T, op Op[T]) (*Request, error) {
	return reduceScatterBlockPlan(c, "MPI_Ireduce_scatter_block", send, recv, op).start()
}

// IreduceScatter begins [ReduceScatter], and does not wait for it (MPI_Ireduce_scatter, chapter
// Collective Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IreduceScatter[T any](c *Comm, send, recv []T, counts []int, op Op[T]) (*Request, error) {
	return reduceScatterPlan(c, "MPI_Ireduce_scatter", send, recv, counts, op).start()
}

// Iscan begins [Scan], and does not wait for it (MPI_Iscan, chapter Collective Communication). The
// buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Iscan[T any](c *Comm, send, recv []T, op Op[T]) (*Request, error) {
	return scanPlan(c, "MPI_Iscan", send, recv, op).start()
}

// Iexscan begins [Exscan], and does not wait for it (MPI_Iexscan, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Iexscan[T any](c *Comm, send, recv []T, op Op[T]) (*Request, error) {
	return exscanPlan(c, "MPI_Iexscan", send, recv, op).start()
}

// Igather begins [Gather], and does not wait for it (MPI_Igather, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Igather[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return gatherPlan(c, "MPI_Igather", send, recv, root).start()
}

// Igatherv begins [Gatherv], and does not wait for it (MPI_Igatherv, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Igatherv[T any](c *Comm, send, recv []T, at Parts, root int) (*Request, error) {
	return gathervPlan(c, "MPI_Igatherv", send, recv, at, root).start()
}

// Iscatter begins [Scatter], and does not wait for it (MPI_Iscatter, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Iscatter[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return scatterPlan(c, "MPI_Iscatter", send, recv, root).start()
}

// Iscatterv begins [Scatterv], and does not wait for it (MPI_Iscatterv, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Iscatterv[T any](c *Comm, send []T, at Parts, recv []T, root int) (*Request, error) {
	return scattervPlan(c, "MPI_Iscatterv", send, at, recv, root).start()
}

// Iallgather begins [Allgather], and does not wait for it (MPI_Iallgather, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Iallgather[T any](c *Comm, send, recv []T) (*Request, error) {
	return allgatherPlan(c, "MPI_Iallgather", send, recv).start()
}

// Iallgatherv begins [Allgatherv], and does not wait for it (MPI_Iallgatherv, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Iallgatherv[T any](c *Comm, send, recv []T, at Parts) (*Request, error) {
	return allgathervPlan(c, "MPI_Iallgatherv", send, recv, at).start()
}

// Ialltoall begins [Alltoall], and does not wait for it (MPI_Ialltoall, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Ialltoall[T any](c *Comm, send, recv []T) (*Request, error) {
	return alltoallPlan(c, "MPI_Ialltoall", send, recv).start()
}

// Ialltoallv begins [Alltoallv], and does not wait for it (MPI_Ialltoallv, chapter Collective
// Communication). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func Ialltoallv[T any](c *Comm, send []T, to Parts, recv []T, from Parts) (*Request, error) {
	return alltoallvPlan(c, "MPI_Ialltoallv", send, to, recv, from).start()
}

// IneighborAllgather begins [NeighborAllgather], and does not wait for it (MPI_Ineighbor_allgather,
// chapter Process Topologies). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IneighborAllgather[T any](t Topology, send, recv []T) (*Request, error) {
	return neighborAllgatherPlan(t, "MPI_Ineighbor_allgather", send, recv).start()
}

// IneighborAlltoall begins [NeighborAlltoall], and does not wait for it (MPI_Ineighbor_alltoall,
// chapter Process Topologies). The buffers belong to it until it is over.
//
// Experimental: it may change in any release.
func IneighborAlltoall[T any](t Topology, send, recv []T) (*Request, error) {
	return neighborAlltoallPlan(t, "MPI_Ineighbor_alltoall", send, recv).start()
}
