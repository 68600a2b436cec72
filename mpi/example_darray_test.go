package mpi_test

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// Columns of a matrix are dealt to two ranks in turn. Rank 1 has the odd ones.
func ExampleDatatype_Darray() {
	run(func(context.Context, *mpi.Comm) error {
		item, err := mpi.TypeOf[byte]()
		if err != nil {
			return err
		}
		var rows mpi.Distribution // each rank has all of them
		odd, err := item.Darray(1, mpi.OrderC, []int{2, 4}, []mpi.Distribution{rows, mpi.DistributeCyclic(1)}, []int{1, 2})
		if err != nil {
			return err
		}
		half, err := item.Darray(1, mpi.OrderFortran, []int{2, 4}, []mpi.Distribution{mpi.DistributeBlock(1), {}}, []int{2, 1})
		if err != nil {
			return err
		}
		top, err := item.SubarrayIn(mpi.OrderC, []int{2, 4}, []int{1, 4}, []int{0, 0})
		if err != nil {
			return err
		}
		for _, d := range []mpi.Datatype{odd, half, top} {
			b, err := mpi.Pack(nil, []byte("abcdefgh"), 1, d)
			if err != nil {
				return err
			}
			fmt.Println(string(b))
		}
		return nil
	})
	// Output:
	// bdfh
	// bdfh
	// abcd
}
