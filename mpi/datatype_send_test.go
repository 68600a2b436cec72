package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// A column of a matrix is sent, and received as a row, as a column, and in part.
func TestItems(t *testing.T) {
	const rows, columns = 3000, 3 // longer than an eager message
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			each(t, job(t, w, 2), func(ctx context.Context, c *mpi.Comm) error {
				one, err := mpi.TypeOf[int64]()
				if err != nil {
					return err
				}
				column, err := one.Vector(rows, 1, columns)
				if err != nil {
					return err
				}
				row, err := one.Contiguous(rows)
				if err != nil {
					return err
				}
				whole := values(5, rows*columns)
				if c.Rank() == 0 {
					for range 2 {
						if err := mpi.SendItems(ctx, c, whole[1:], 1, column, 1, 0); err != nil {
							return err
						}
					}
					if err := mpi.SendItems(ctx, c, whole, 1, row, 1, 0); err != nil {
						return err
					}
					if err := mpi.SendItems(ctx, c, whole[2:], 1, column, 1, 0); err != nil {
						return err
					}
					if err := mpi.SendItems(ctx, c, whole[3:], 1, column, 1, 0); !errors.Is(err, mpi.ErrBuffer) {
						return fmt.Errorf("beyond the buffer: %w", err)
					}
					return mpi.Send(ctx, c, []int64{7, 8}, 1, 0)
				}
				want := make([]int64, rows)
				for i := range want {
					want[i] = whole[i*columns+1]
				}
				got := make([]int64, rows)
				if _, err := mpi.RecvItems(ctx, c, got, 1, row, 0, 0); err != nil {
					return err
				}
				if err := differs("a column as a row", got, want); err != nil {
					return err
				}
				got, want = make([]int64, rows*columns), make([]int64, rows*columns)
				for i := range rows {
					want[i*columns+1] = whole[i*columns+1]
				}
				if _, err := mpi.RecvItems(ctx, c, got[1:], 1, column, 0, 0); err != nil {
					return err
				}
				if err := differs("a column as a column", got, want); err != nil {
					return err
				}
				for i := range rows {
					want[i*columns+2] = whole[i]
				}
				if _, err := mpi.RecvItems(ctx, c, got[2:], 1, column, 0, 0); err != nil {
					return err
				}
				if err := differs("a row as a column", got, want); err != nil {
					return err
				}
				if _, err := mpi.RecvItems(ctx, c, got, 2, one, 0, 0); !errors.Is(err, mpi.ErrTruncate) {
					return fmt.Errorf("a column in two values: %w", err)
				}
				if err := differs("after an error", got, want); err != nil {
					return err
				}
				st, err := mpi.RecvItems(ctx, c, got, 1, column, 0, 0)
				if err != nil || st.Bytes != 16 {
					return fmt.Errorf("two values of a column: %d bytes, %w", st.Bytes, err)
				}
				want[0], want[columns] = 7, 8
				return differs("two values of a column", got, want)
			})
		})
	}
}
