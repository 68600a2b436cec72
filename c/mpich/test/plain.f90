! Calls of MPI by "use mpi": a ring, reductions, an operation, attributes and an error handler whose
! functions are the program's. Rank 0 prints "ok".
module functions
  use mpi
  implicit none
  integer :: copies = 0, deletes = 0, handled = 0
contains
  subroutine affine(in, inout, n, datatype)
    integer :: n, datatype
    integer :: in(2, n), inout(2, n)
    integer :: bytes, ierr
    call MPI_Type_size(datatype, bytes, ierr)
    if (bytes /= 8) call fail("the datatype of an operation")
    inout(2, :) = inout(2, :) + in(2, :) * inout(1, :)
    inout(1, :) = inout(1, :) * in(1, :)
  end subroutine

  subroutine copy(comm, key, extra, old, new, flag, ierr)
    integer :: comm, key, ierr
    integer(kind=MPI_ADDRESS_KIND) :: extra, old, new
    logical :: flag
    copies = copies + int(extra)
    new = old + 1
    flag = comm /= MPI_COMM_NULL .and. key /= MPI_KEYVAL_INVALID
    ierr = MPI_SUCCESS
  end subroutine

  subroutine remove(comm, key, val, extra, ierr)
    integer :: comm, key, ierr
    integer(kind=MPI_ADDRESS_KIND) :: val, extra
    deletes = deletes + int(extra)
    ierr = MPI_SUCCESS
  end subroutine

  subroutine handler(comm, code)
    integer :: comm, code
    integer :: class, ierr
    call MPI_Error_class(code, class, ierr)
    if (class == MPI_ERR_RANK) handled = handled + 1
  end subroutine

  subroutine fail(what)
    character(*) :: what
    integer :: ierr
    print *, "not so: ", what
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine
end module

program plain
  use functions
  implicit none
  integer :: rank, ranks, ierr, token, op, pairs, key, comm, i, left, right, requests(2), errhandler, n
  integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2), f(2), folded(2), want(2), got(2)
  integer(kind=MPI_ADDRESS_KIND) :: extra, val
  double precision :: x(3), total(3)
  logical :: flag, true
  character(len=MPI_MAX_PROCESSOR_NAME) :: name

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call MPI_Get_processor_name(name, n, ierr)
  if (n < 1 .or. n /= len_trim(name)) call fail("the machine's name")
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  token = 0
  if (rank > 0) then
    call MPI_Recv(token, 1, MPI_INTEGER, left, 5, MPI_COMM_WORLD, status, ierr)
    if (status(MPI_SOURCE) /= left .or. status(MPI_TAG) /= 5) call fail("a status")
  end if
  token = token + 1
  call MPI_Send(token, 1, MPI_INTEGER, right, 5, MPI_COMM_WORLD, ierr)
  if (rank == 0) then
    call MPI_Recv(token, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    if (token /= ranks) call fail("a ring")
  end if
  call MPI_Irecv(got(1), 1, MPI_INTEGER, left, 6, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Isend(rank, 1, MPI_INTEGER, right, 6, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_Waitall(2, requests, statuses, ierr)
  if (got(1) /= left .or. statuses(MPI_SOURCE, 1) /= left) call fail("requests")
  if (requests(1) /= MPI_REQUEST_NULL) call fail("requests that are over")
  call MPI_Recv(got(1), 1, MPI_INTEGER, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
  if (status(MPI_SOURCE) /= MPI_PROC_NULL) call fail("MPI_PROC_NULL")

  x = [dble(rank), 1d0, 0.5d0]
  call MPI_Allreduce(x, total, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (total(1) /= ranks * (ranks - 1) / 2d0 .or. total(2) /= ranks) call fail("MPI_Allreduce")
  call MPI_Allreduce(MPI_IN_PLACE, x, 3, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  if (x(1) /= ranks - 1) call fail("MPI_IN_PLACE")
  flag = rank == 0
  call MPI_Allreduce(flag, true, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  if (.not. true) call fail("MPI_LOR")

  call MPI_Type_contiguous(2, MPI_INTEGER, pairs, ierr)
  call MPI_Type_commit(pairs, ierr)
  call MPI_Op_create(affine, .false., op, ierr)
  f = [2, rank + 1]
  call MPI_Allreduce(f, folded, 1, pairs, op, MPI_COMM_WORLD, ierr)
  want = [1, 0]
  do i = 0, ranks - 1
    want = [want(1) * 2, want(2) * 2 + i + 1]
  end do
  if (any(folded /= want)) call fail("an operation")
  call MPI_Op_free(op, ierr)
  call MPI_Type_free(pairs, ierr)

  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, val, flag, ierr)
  if (.not. flag .or. val < 32767) call fail("MPI_TAG_UB")
  extra = 3
  call MPI_Comm_create_keyval(copy, remove, key, extra, ierr)
  val = -5
  call MPI_Comm_set_attr(MPI_COMM_SELF, key, val, ierr)
  call MPI_Comm_dup(MPI_COMM_SELF, comm, ierr)
  call MPI_Comm_get_attr(comm, key, val, flag, ierr)
  if (.not. flag .or. val /= -4 .or. copies /= 3) call fail("a copied attribute")

  call MPI_Comm_create_errhandler(handler, errhandler, ierr)
  call MPI_Comm_set_errhandler(comm, errhandler, ierr)
  call MPI_Send(token, 1, MPI_INTEGER, 9, 0, comm, ierr)
  if (ierr == MPI_SUCCESS .or. handled /= 1) call fail("an error handler")
  call MPI_Comm_free(comm, ierr)
  call MPI_Comm_delete_attr(MPI_COMM_SELF, key, ierr)
  if (deletes /= 6) call fail("deleted attributes")
  call MPI_Comm_free_keyval(key, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a)', "ok"
  call MPI_Finalize(ierr)
end program
