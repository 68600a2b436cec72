package mpi

import "context"

// LockWaiters is how many ranks are counted as waiters of the lock of a rank's window.
func (w *Win[T]) LockWaiters(target int) (int, error) {
	now, err := w.ranks[target].control.add(context.Background(), 8, 0, 0)
	return int(now / oneWaiter), err
}
