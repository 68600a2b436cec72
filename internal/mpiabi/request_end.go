package mpiabi

import (
	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Point-to-Point Communication": MPI_Wait, MPI_Test and their kin.

func wait(e *Env, a *arguments) error {
	rs, err := e.requests(a, 0, 1)
	if err != nil {
		return err
	}
	if q := rs.all[0]; q != nil {
		if a.tries && !pollFor(q.poll) {
			return errWouldWait
		}
		if err := q.wait(a.ctx); err != nil {
			return err
		}
	}
	st, err := rs.complete(0)
	if err != nil {
		return err
	}
	return a.setStatus(1, st)
}

func test(e *Env, a *arguments) error {
	rs, err := e.requests(a, 0, 1)
	if err != nil {
		return err
	}
	if q := rs.all[0]; q != nil && !q.poll() {
		return a.setFlag(1, false)
	}
	if err := a.setFlag(1, true); err != nil {
		return err
	}
	st, err := rs.complete(0)
	if err != nil {
		return err
	}
	return a.setStatus(2, st)
}

// requestStatus is test of a request that stays.
func requestStatus(e *Env, a *arguments) error {
	q, err := e.request(a, 0, a.Handle(0))
	if err != nil {
		return err
	}
	if q == nil {
		q = &request{}
	}
	if !q.poll() {
		return a.setFlag(1, false)
	}
	if err := a.setFlag(1, true); err != nil {
		return err
	}
	st, err := q.result()
	if err != nil {
		return err
	}
	return a.setStatus(2, st)
}

// waitall waits for all requests, also when one has failed.
func waitall(e *Env, a *arguments) error {
	rs, err := e.counted(a)
	if err != nil {
		return err
	}
	if a.tries && !pollFor(rs.over) {
		return errWouldWait
	}
	for _, q := range rs.all {
		if q == nil {
			continue
		}
		if err := q.wait(a.ctx); err != nil {
			return err
		}
	}
	return rs.completeAll(2)
}

// over reports whether all requests are over, or inactive.
func (rs *requests) over() bool {
	for _, q := range rs.all {
		if q != nil && !q.poll() {
			return false
		}
	}
	return true
}

// completeAll ends all requests, which are over.
func (rs *requests) completeAll(statuses int) error {
	sts, errs := make([]mpi.Status, len(rs.all)), make([]error, len(rs.all))
	for k := range rs.all {
		sts[k], errs[k] = rs.complete(k)
	}
	return rs.a.setStatuses(statuses, sts, errs)
}

// testall ends all requests if all are over. Without end they stay.
func (e *Env) testall(a *arguments, end bool) error {
	rs, err := e.counted(a)
	if err != nil {
		return err
	}
	for _, q := range rs.all {
		if q != nil && !q.poll() {
			return a.setFlag(2, false)
		}
	}
	if err := a.setFlag(2, true); err != nil {
		return err
	}
	if end {
		return rs.completeAll(3)
	}
	sts, errs := make([]mpi.Status, len(rs.all)), make([]error, len(rs.all))
	for k, q := range rs.all {
		if sts[k] = emptyStatus; q != nil {
			sts[k], errs[k] = q.result()
		}
	}
	return a.setStatuses(3, sts, errs)
}

// first is the index of a request that is over. active reports whether one is active at all.
func (rs *requests) first() (k int, active bool) {
	for k, q := range rs.all {
		if !rs.live(k) {
			continue
		}
		if active = true; q.poll() {
			return k, true
		}
	}
	return undefined, active
}

// wait waits until one of the active requests is over. Without one it returns at once.
func (rs *requests) wait() error {
	if rs.a.tries && !pollFor(func() bool {
		k, active := rs.first()
		return k != undefined || !active
	}) {
		return errWouldWait
	}
	for {
		if k, active := rs.first(); k != undefined || !active {
			return nil
		}
		waiting := make([]part, len(rs.all))
		over := false
		for k, q := range rs.all {
			if rs.live(k) {
				waiting[k] = q.next()
				over = over || waiting[k] == nil
			}
		}
		if over {
			continue
		}
		if err := waitPart(rs.a.ctx, waiting); err != nil {
			return err
		}
	}
}

func waitany(e *Env, a *arguments) error {
	rs, err := e.counted(a)
	if err != nil {
		return err
	}
	if err := a.setInt(2, undefined); err != nil {
		return err
	}
	if err := rs.wait(); err != nil {
		return err
	}
	k, _ := rs.first()
	return rs.endAny(k, 3)
}

// endAny ends request k, which is over, and stores its index in argument 2. There is none if k is
// MPI_UNDEFINED.
func (rs *requests) endAny(k, status int) error {
	if err := rs.a.setInt(2, k); err != nil {
		return err
	}
	if k == undefined {
		return rs.a.setStatus(status, emptyStatus)
	}
	st, err := rs.complete(k)
	if err != nil {
		return err
	}
	return rs.a.setStatus(status, st)
}

// testany ends a request that is over. Without end it stays.
func (e *Env) testany(a *arguments, end bool) error {
	rs, err := e.counted(a)
	if err != nil {
		return err
	}
	k, active := rs.first()
	if err := a.setInt(2, k); err != nil {
		return err
	}
	if err := a.setFlag(3, k != undefined || !active); err != nil {
		return err
	}
	switch {
	case k == undefined && active:
		return nil
	case end || k == undefined:
		return rs.endAny(k, 4)
	}
	st, err := rs.all[k].result()
	if err != nil {
		return err
	}
	return a.setStatus(4, st)
}

// some ends all requests that are over, and waits for the first if it is to wait. Without end they stay.
func (e *Env) some(a *arguments, waits, end bool) error {
	rs, err := e.counted(a)
	if err != nil {
		return err
	}
	if err := a.setInt(2, undefined); err != nil {
		return err
	}
	if len(rs.all) > 0 && a.Addr(3) == 0 {
		return fail(a.name(3), errArg, "it is NULL, want an array of %d", len(rs.all))
	}
	if waits {
		if err := rs.wait(); err != nil {
			return err
		}
	}
	var indexes []int32
	var sts []mpi.Status
	var errs []error
	active := false
	for k, q := range rs.all {
		if !rs.live(k) {
			continue
		}
		if active = true; !q.poll() {
			continue
		}
		st, err := q.result()
		if end {
			st, err = rs.complete(k)
		}
		indexes, sts, errs = append(indexes, int32(k)), append(sts, st), append(errs, err)
	}
	if !active {
		return nil // The number of requests is MPI_UNDEFINED.
	}
	if err := a.setInt(2, len(indexes)); err != nil {
		return err
	}
	if err := a.access(3, func() { copy(slice[int32](a.Addr(3), len(indexes)), indexes) }); err != nil {
		return err
	}
	return a.setStatuses(4, sts, errs)
}
