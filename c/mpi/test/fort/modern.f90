! A program with module mpi_f08: types of handles, no ierror, large counts, functions of the program.
! It prints what is wrong, or "ok".
module callbacks
  use, intrinsic :: iso_c_binding
  use mpi_f08
  implicit none
  integer :: handled = 0, copies = 0
contains
  subroutine sums(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    double complex, pointer :: a(:), b(:)
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    if (datatype == MPI_DOUBLE_COMPLEX) b = a + b
  end subroutine
  subroutine large_sums(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer(MPI_COUNT_KIND) :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    b = a + b
  end subroutine
  subroutine on_error(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    if (comm == MPI_COMM_WORLD) handled = error_code
  end subroutine
  subroutine on_file_error(file, error_code)
    type(MPI_File) :: file
    integer :: error_code
    if (file == MPI_FILE_NULL) handled = -error_code
  end subroutine
  subroutine copy_attribute(oldcomm, comm_keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    type(MPI_Comm) :: oldcomm
    integer :: comm_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    copies = copies + 1
    attribute_val_out = attribute_val_in * extra_state
    flag = oldcomm == MPI_COMM_WORLD
    ierror = MPI_SUCCESS
  end subroutine
end module

program modern
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use callbacks
  implicit none
  integer :: rank, n, ierr, k, faults = 0, index, outcount, indices(2), class, keyval, old_status(MPI_STATUS_SIZE)
  integer :: left, right, indegree, outdegree, neighbors(4), weights(4)
  integer(MPI_COUNT_KIND) :: many, count
  integer(MPI_ADDRESS_KIND) :: value, extent, lb
  type(MPI_Comm) :: comm
  type(MPI_Datatype) :: type
  type(MPI_Errhandler) :: handler
  type(MPI_File) :: file
  type(MPI_Group) :: world, even
  type(MPI_Message) :: message
  type(MPI_Op) :: op
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status, statuses(2)
  type(MPI_Win) :: win
  double complex :: z, zs
  integer :: room(100)
  integer, pointer :: memory(:)
  integer :: size
  type(c_ptr) :: base
  logical :: flag, weighted
  character(MPI_MAX_ERROR_STRING) :: text

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  call check(ierr == MPI_SUCCESS .and. n >= 1, 'MPI_Comm_size')
  right = mod(rank + 1, n)
  left = mod(rank + n - 1, n)

  ! Nonblocking calls, and statuses.
  call MPI_Irecv(k, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, requests(1))
  call MPI_Isend(rank, 1, MPI_INTEGER, right, 11, MPI_COMM_WORLD, requests(2))
  call MPI_Waitall(2, requests, statuses)
  call MPI_F_sync_reg(k) ! The compiler does not see that MPI_Waitall changes it.
  call check(k == left .and. statuses(1)%MPI_SOURCE == left .and. statuses(1)%MPI_TAG == 11, 'MPI_Waitall')
  call check(all([requests(1) == MPI_REQUEST_NULL, requests(2) == MPI_REQUEST_NULL]), 'requests')
  call MPI_Status_f082f(statuses(1), old_status)
  call check(old_status(MPI_SOURCE) == left .and. old_status(MPI_TAG) == 11, 'MPI_Status_f082f')
  call MPI_Status_f2f08(old_status, status)
  call MPI_Get_count(status, MPI_INTEGER, k)
  call check(k == 1, 'MPI_Status_f2f08')
  call MPI_Get_count(status, MPI_INTEGER, count)
  call check(count == 1, 'MPI_Get_count with a large count')
  call MPI_Isend(rank, 1, MPI_INTEGER, rank, 12, MPI_COMM_WORLD, requests(2))
  call MPI_Mprobe(rank, 12, MPI_COMM_WORLD, message, status)
  call MPI_Mrecv(k, 1, MPI_INTEGER, message, MPI_STATUS_IGNORE)
  call check(message == MPI_MESSAGE_NULL .and. k == rank, 'MPI_Mrecv')
  call MPI_Waitsome(2, requests, outcount, indices, MPI_STATUSES_IGNORE)
  call check(outcount == 1 .and. indices(1) == 2, 'MPI_Waitsome')
  call MPI_Testany(2, requests, index, flag, status)
  call check(flag .and. index == MPI_UNDEFINED, 'MPI_Testany')

  ! A message with a large count goes to a receive with a small one.
  room = rank
  many = 100
  call MPI_Sendrecv_replace(room, many, MPI_INTEGER, right, 1, left, 1, MPI_COMM_WORLD, status)
  call check(all(room == left), 'MPI_Sendrecv_replace with a large count')
  call MPI_Isend(room, many, MPI_INTEGER, rank, 2, MPI_COMM_WORLD, requests(1))
  call MPI_Recv(room, 100, MPI_INTEGER, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
  call MPI_Type_get_extent(MPI_DOUBLE_COMPLEX, lb, extent)
  call check(extent == 16, 'MPI_Type_get_extent')
  call MPI_Type_contiguous(5_MPI_COUNT_KIND, MPI_INTEGER, type)
  call MPI_Type_size(type, count)
  call check(count == 20, 'MPI_Type_size with a large count')
  call MPI_Type_free(type)
  call check(type == MPI_DATATYPE_NULL, 'MPI_Type_free')

  ! Operations.
  z = cmplx(rank, 1, kind=kind(z))
  call MPI_Op_create(sums, .false., op)
  call MPI_Allreduce(z, zs, 1, MPI_DOUBLE_COMPLEX, op, MPI_COMM_WORLD)
  call check(zs == cmplx(n * (n - 1) / 2, n, kind=kind(z)), 'MPI_Op_create')
  call MPI_Op_free(op)
  call MPI_Op_create_c(large_sums, .true., op)
  k = 1
  call MPI_Allreduce(MPI_IN_PLACE, k, 1, MPI_INTEGER, op, MPI_COMM_WORLD)
  call check(k == n, 'MPI_Op_create_c')
  call MPI_Op_free(op)
  call PMPI_Allreduce(MPI_IN_PLACE, k, 1_MPI_COUNT_KIND, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call check(k == n * n, 'PMPI_Allreduce')

  ! Attributes.
  call MPI_Comm_create_keyval(copy_attribute, MPI_COMM_NULL_DELETE_FN, keyval, 3_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, 7_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_get_attr(comm, keyval, value, flag)
  call check(flag .and. value == 21 .and. copies == 1 .and. comm /= MPI_COMM_WORLD, 'MPI_Comm_get_attr')
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag)
  call check(flag .and. value >= 32767, 'MPI_TAG_UB')
  call MPI_Comm_free(comm)

  ! Error handlers.
  call MPI_Comm_create_errhandler(on_error, handler)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler)
  call MPI_Bcast(k, 1, MPI_INTEGER, n, MPI_COMM_WORLD, ierr)
  call MPI_Error_class(ierr, class)
  call check(class == MPI_ERR_ROOT .and. handled == ierr, 'MPI_Comm_create_errhandler')
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL)
  call MPI_Errhandler_free(handler)
  call MPI_File_create_errhandler(on_file_error, handler)
  call MPI_File_set_errhandler(MPI_FILE_NULL, handler)
  call MPI_File_open(MPI_COMM_SELF, '/nowhere/at all', MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierr)
  call check(ierr /= MPI_SUCCESS .and. handled == -ierr, 'MPI_File_create_errhandler')
  call MPI_Error_string(ierr, text, k)
  call check(k > 0 .and. k == len_trim(text), 'MPI_Error_string')

  ! Groups and graphs.
  call MPI_Comm_group(MPI_COMM_WORLD, world)
  call MPI_Group_range_incl(world, 1, reshape([0, n - 1, 2], [3, 1]), even)
  call MPI_Group_size(even, k)
  call check(k == (n + 1) / 2, 'MPI_Group_range_incl')
  call MPI_Group_free(even)
  call MPI_Group_free(world)
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [left], MPI_UNWEIGHTED, 1, [right], MPI_UNWEIGHTED, &
    MPI_INFO_NULL, .false., comm)
  call MPI_Dist_graph_neighbors_count(comm, indegree, outdegree, weighted)
  call check(indegree == 1 .and. outdegree == 1 .and. .not. weighted, 'MPI_UNWEIGHTED')
  call MPI_Neighbor_allgather(rank, 1, MPI_INTEGER, neighbors, 1, MPI_INTEGER, comm)
  call check(neighbors(1) == left, 'MPI_Neighbor_allgather')
  call MPI_Neighbor_alltoallw([rank], [1], [0_MPI_ADDRESS_KIND], [MPI_INTEGER], neighbors, [1], [0_MPI_ADDRESS_KIND], &
    [MPI_INTEGER], comm)
  call check(neighbors(1) == left, 'MPI_Neighbor_alltoallw')
  call MPI_Comm_free(comm)
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [left], [3], 1, [right], [4], MPI_INFO_NULL, .false., comm)
  call MPI_Dist_graph_neighbors(comm, 1, neighbors, weights, 1, neighbors(2:), weights(2:))
  call check(all(neighbors(:2) == [left, right]) .and. all(weights(:2) == [3, 4]), 'MPI_Dist_graph_neighbors')
  call MPI_Comm_free(comm)

  ! Datatypes of each rank.
  block
    integer :: from(n), to(n), counts(n), places(n), i
    type(MPI_Datatype) :: types(n)
    from = [(rank * 100 + i, i = 0, n - 1)]
    counts = 1
    places = [(4 * i, i = 0, n - 1)]
    types = MPI_INTEGER
    call MPI_Alltoallw(from, counts, places, types, to, counts, places, types, MPI_COMM_WORLD)
    call check(all(to == [(i * 100 + rank, i = 0, n - 1)]), 'MPI_Alltoallw')
    call MPI_Alltoallw(MPI_IN_PLACE, counts, places, types, to, counts, places, types, MPI_COMM_WORLD)
    call check(all(to == from), 'MPI_Alltoallw in place')
  end block

  ! Buffers and windows.
  call MPI_Buffer_attach(room, 400)
  call MPI_Buffer_detach(base, size)
  call MPI_Get_address(room, value)
  call check(size == 400 .and. transfer(base, value) == value, 'MPI_Buffer_detach')
  call MPI_Win_allocate(40_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win)
  call c_f_pointer(base, memory, [10])
  memory = rank
  call MPI_Win_fence(0, win)
  call MPI_Get(k, 1, MPI_INTEGER, right, 2_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win)
  call MPI_Win_fence(0, win)
  call MPI_F_sync_reg(k)
  call check(k == right, 'MPI_Get')
  call MPI_Win_free(win)
  call check(win == MPI_WIN_NULL, 'MPI_Win_free')
  call MPI_F_sync_reg(room)
  call check(MPI_Aint_add(5_MPI_ADDRESS_KIND, -2_MPI_ADDRESS_KIND) == 3 .and. MPI_Wtime() >= 0, 'MPI_Aint_add')
  call check(MPI_COMM_WORLD%MPI_VAL == 257 .and. .not. MPI_SUBARRAYS_SUPPORTED, 'constants')

  call MPI_Allreduce(MPI_IN_PLACE, faults, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0 .and. faults == 0) print '(a)', 'ok'
  call MPI_Finalize()
contains
  subroutine check(good, what)
    logical, intent(in) :: good
    character(*), intent(in) :: what
    if (.not. good) then
      faults = faults + 1
      print '(2a)', 'wrong: ', what
    end if
  end subroutine
end program
