! A program with a tool in C, which sees the calls of MPI_, not those of PMPI_.
program profiled
  use mpi_f08
  implicit none
  interface
    integer function barriers()
    end function
    integer function limits()
    end function
  end interface
  integer :: logical_true(1), logical_false(1)
  logical :: known
  call MPI_Init()
  call MPI_Barrier(MPI_COMM_WORLD)
  call PMPI_Barrier(MPI_COMM_WORLD)
  call old_barrier()
  if (barriers() /= 2) print '(a, i0, a)', 'the tool has seen ', barriers(), ' calls of MPI_Barrier, want 2'
  if (limits() /= 0) print '(a, i0)', 'limits: ', limits()
  call MPI_Abi_get_fortran_booleans(4, logical_true, logical_false, known)
  if (.not. known .or. logical_true(1) /= 1 .or. logical_false(1) /= 0) print '(a)', 'LOGICAL is not known'
  call MPI_Finalize()
  print '(a)', 'ok'
end program

subroutine old_barrier()
  implicit none
  include 'mpif.h'
  integer :: ierror
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
end subroutine
