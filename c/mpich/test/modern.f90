! Calls of MPI by "use mpi_f08", with sections of arrays, and a window. Rank 0 prints "ok".
program modern
  use mpi_f08
  use iso_c_binding
  implicit none
  integer :: rank, ranks, i, n
  integer :: grid(4, 6), got(4, 6)
  integer, target :: shared(3)
  integer(kind=MPI_ADDRESS_KIND) :: bytes, at
  type(MPI_Status) :: status
  type(MPI_Request) :: requests(2)
  type(MPI_Comm) :: half
  type(MPI_Datatype) :: row
  type(MPI_Win) :: win
  type(MPI_Op) :: op
  double precision :: x

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  grid = reshape([(100 * rank + i, i = 1, 24)], [4, 6])
  got = 0
  call MPI_Type_vector(6, 1, 4, MPI_INTEGER, row)
  call MPI_Type_commit(row)
  call MPI_Irecv(got(2, 1), 1, row, mod(rank + ranks - 1, ranks), 3, MPI_COMM_WORLD, requests(1))
  call MPI_Isend(grid(3, 1), 1, row, mod(rank + 1, ranks), 3, MPI_COMM_WORLD, requests(2))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  if (any(got(2, :) /= grid(3, :) - 100 * rank + 100 * mod(rank + ranks - 1, ranks))) call fail("a row")
  if (any(got(1, :) /= 0)) call fail("what is no row")
  call MPI_Type_free(row)
  call MPI_Sendrecv(grid(1::2, 2), 2, MPI_INTEGER, rank, 4, got(:, 5), 4, MPI_INTEGER, rank, 4, MPI_COMM_WORLD, status)
  call MPI_Get_count(status, MPI_INTEGER, n)
  if (n /= 2 .or. got(1, 5) /= grid(1, 2) .or. got(2, 5) /= grid(3, 2)) call fail("a section")
  if (status%MPI_SOURCE /= rank .or. status%MPI_TAG /= 4) call fail("a status")

  x = rank + 1
  call MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE_PRECISION, MPI_PROD, MPI_COMM_WORLD)
  if (x /= product([(dble(i), i = 1, ranks)])) call fail("MPI_PROD")
  call MPI_Op_create(greatest, .true., op)
  n = rank
  call MPI_Allreduce(MPI_IN_PLACE, n, 1, MPI_INTEGER, op, MPI_COMM_WORLD)
  if (n /= ranks - 1) call fail("an operation")
  call MPI_Op_free(op)

  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half)
  call MPI_Comm_size(half, n)
  if (n /= (ranks + 1 - mod(rank, 2)) / 2) call fail("MPI_Comm_split")
  call MPI_Comm_free(half)
  if (half /= MPI_COMM_NULL) call fail("MPI_Comm_free")

  shared = rank
  bytes = 12
  call MPI_Win_create(shared, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
  call MPI_Win_fence(0, win)
  at = 1
  n = 50 + rank
  call MPI_Put(n, 1, MPI_INTEGER, mod(rank + 1, ranks), at, 1, MPI_INTEGER, win)
  call MPI_Win_fence(0, win)
  if (shared(2) /= 50 + mod(rank + ranks - 1, ranks)) call fail("MPI_Put")
  call MPI_Win_free(win)
  if (rank == 0) print '(a)', "ok"
  call MPI_Finalize()
contains
  subroutine greatest(in, inout, n, datatype)
    type(c_ptr), value :: in, inout
    integer :: n
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    if (datatype /= MPI_INTEGER) call fail("the datatype of an operation")
    call c_f_pointer(in, a, [n])
    call c_f_pointer(inout, b, [n])
    b = max(a, b)
  end subroutine

  subroutine fail(what)
    character(*) :: what
    print *, "not so: ", what
    call MPI_Abort(MPI_COMM_WORLD, 3)
  end subroutine
end program
