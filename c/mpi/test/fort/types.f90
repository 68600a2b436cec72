! A program with module mpi: attributes, error handlers, windows, files, info, sizes. It prints what is
! wrong, or "ok".
module callbacks
  use mpi
  implicit none
  integer :: copies = 0, deletions = 0, handled = 0, last = 0
contains
  subroutine copy_attribute(comm, keyval, extra, in, out, flag, ierror)
    integer :: comm, keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra, in, out
    logical :: flag
    copies = copies + 1
    out = in + extra
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine
  subroutine delete_attribute(comm, keyval, attribute, extra, ierror)
    integer :: comm, keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute, extra
    deletions = deletions + 1
    ierror = MPI_SUCCESS
  end subroutine
  subroutine on_error(comm, code)
    integer :: comm, code
    if (comm == MPI_COMM_WORLD) handled = handled + 1
    last = code
  end subroutine
  subroutine maximum(in, inout, n, datatype)
    integer :: n, datatype
    double precision :: in(n), inout(n)
    inout = max(in, inout)
  end subroutine
end module

program types
  use, intrinsic :: iso_c_binding
  use mpi
  use callbacks
  implicit none
  integer :: ierr, rank, n, keyval, comm, win, fh, info, length, class, faults = 0, handler, op, i, size, k
  integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 3), requests(3), numbers(4), integers(8), types_(4)
  integer :: column, provided, kinds(4)
  integer(MPI_ADDRESS_KIND) :: value, bytes, addresses(4)
  integer(MPI_OFFSET_KIND) :: place
  logical :: flag
  double precision :: matrix(4, 3), row(3), x
  double precision, pointer :: memory(:)
  type(c_ptr) :: base
  character(16) :: text
  character(MPI_MAX_LIBRARY_VERSION_STRING) :: version
  character(64) :: path

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided, ierr)
  call check(ierr == MPI_SUCCESS .and. provided >= MPI_THREAD_SINGLE, 'MPI_Init_thread')
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  call MPI_Get_library_version(version, length, ierr)
  call check(version(:4) == 'vmmc' .and. len_trim(version) == length, 'MPI_Get_library_version')

  ! Attributes are integers of the size of addresses.
  call MPI_Comm_create_keyval(copy_attribute, delete_attribute, keyval, 5_MPI_ADDRESS_KIND, ierr)
  value = 2_MPI_ADDRESS_KIND**40
  call MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, value, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
  call MPI_Comm_get_attr(comm, keyval, value, flag, ierr)
  call check(flag .and. value == 2_MPI_ADDRESS_KIND**40 + 5 .and. copies == 1, 'MPI_Comm_get_attr')
  call MPI_Comm_delete_attr(comm, keyval, ierr)
  call MPI_Comm_get_attr(comm, keyval, value, flag, ierr)
  call check(.not. flag .and. deletions == 1, 'MPI_Comm_delete_attr')
  call MPI_Comm_free(comm, ierr)
  call MPI_Comm_free_keyval(keyval, ierr)
  call check(keyval == MPI_KEYVAL_INVALID, 'MPI_Comm_free_keyval')
  call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, keyval, 0_MPI_ADDRESS_KIND, ierr)
  call MPI_Comm_set_attr(MPI_COMM_SELF, keyval, value, ierr)
  call MPI_Comm_dup(MPI_COMM_SELF, comm, ierr)
  call MPI_Comm_get_attr(comm, keyval, value, flag, ierr)
  call check(.not. flag, 'MPI_COMM_NULL_COPY_FN')
  call MPI_Comm_free(comm, ierr)
  call MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, keyval, 0_MPI_ADDRESS_KIND, ierr)
  call MPI_Type_set_attr(MPI_INTEGER, keyval, 17_MPI_ADDRESS_KIND, ierr)
  call MPI_Type_dup(MPI_INTEGER, column, ierr)
  call MPI_Type_get_attr(column, keyval, value, flag, ierr)
  call check(flag .and. value == 17, 'MPI_Type_get_attr')
  call MPI_Type_free(column, ierr)

  ! An error handler and an operation in Fortran.
  call MPI_Comm_create_errhandler(on_error, handler, ierr)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler, ierr)
  call MPI_Send(rank, -1, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, ierr)
  call check(handled == 1 .and. last == ierr, 'MPI_Comm_create_errhandler')
  call MPI_Error_class(ierr, class, k)
  call check(class == MPI_ERR_COUNT, 'MPI_Error_class')
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
  call MPI_Errhandler_free(handler, ierr)
  call check(handler == MPI_ERRHANDLER_NULL, 'MPI_Errhandler_free')
  call MPI_Op_create(maximum, .true., op, ierr)
  call MPI_Op_commutative(op, flag, ierr)
  call check(flag, 'MPI_Op_commutative')
  x = rank
  call MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD, ierr)
  call check(x == n - 1, 'MPI_Op_create')
  call MPI_Op_free(op, ierr)

  ! A row of a matrix, and what its datatype is made of.
  call MPI_Type_vector(3, 1, 4, MPI_DOUBLE_PRECISION, column, ierr)
  call MPI_Type_commit(column, ierr)
  call MPI_Type_get_envelope(column, kinds(1), kinds(2), kinds(3), kinds(4), ierr)
  call check(all(kinds == [3, 0, 1, MPI_COMBINER_VECTOR]), 'MPI_Type_get_envelope')
  types_ = -1
  call MPI_Type_get_contents(column, 8, 4, 4, integers, addresses, types_, ierr)
  call check(all(integers(:3) == [3, 1, 4]) .and. all(types_ == [MPI_DOUBLE_PRECISION, -1, -1, -1]), 'MPI_Type_get_contents')
  matrix = reshape([(i, i = 1, 12)], [4, 3])
  call MPI_Sendrecv(matrix(2, 1), 1, column, rank, 0, row, 3, MPI_DOUBLE_PRECISION, rank, 0, MPI_COMM_WORLD, status, ierr)
  call check(all(row == [2, 6, 10]), 'MPI_Type_vector')
  call MPI_Type_size(MPI_DOUBLE_COMPLEX, size, ierr)
  call check(size == 16, 'MPI_Type_size')
  call MPI_Type_free(column, ierr)

  ! An array section that is not contiguous is copied.
  row = 0
  call MPI_Sendrecv(matrix(3, :), 3, MPI_DOUBLE_PRECISION, rank, 0, row, 3, MPI_DOUBLE_PRECISION, rank, 0, &
    MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call check(all(row == [3, 7, 11]), 'array section')

  ! Sizes.
  call MPI_Sizeof(x, size, ierr)
  call check(size == 8, 'MPI_Sizeof of a double')
  call MPI_Sizeof(matrix, size, ierr)
  call check(size == 8, 'MPI_Sizeof of a matrix')
  call MPI_Sizeof(text, size, ierr)
  call check(size == 1, 'MPI_Sizeof of a text')

  ! Windows.
  call MPI_Win_allocate(80_MPI_ADDRESS_KIND, 8, MPI_INFO_NULL, MPI_COMM_WORLD, base, win, ierr)
  call c_f_pointer(base, memory, [10])
  memory = -1
  call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag, ierr)
  call check(flag .and. value == 80, 'MPI_WIN_SIZE')
  call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, value, flag, ierr)
  call check(flag .and. value == 8, 'MPI_WIN_DISP_UNIT')
  call MPI_Win_get_attr(win, MPI_WIN_BASE, value, flag, ierr)
  call check(flag .and. value == transfer(base, value), 'MPI_WIN_BASE')
  call MPI_Win_fence(0, win, ierr)
  x = rank
  call MPI_Put(x, 1, MPI_DOUBLE_PRECISION, mod(rank + 1, n), 3_MPI_ADDRESS_KIND, 1, MPI_DOUBLE_PRECISION, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  call check(memory(4) == mod(rank + n - 1, n) .and. memory(3) == -1, 'MPI_Put')
  call MPI_Win_free(win, ierr)
  call check(win == MPI_WIN_NULL, 'MPI_Win_free')
  call MPI_Alloc_mem(800_MPI_ADDRESS_KIND, MPI_INFO_NULL, base, ierr)
  call c_f_pointer(base, memory, [100])
  memory = 1
  call MPI_Free_mem(memory, ierr)
  call check(ierr == MPI_SUCCESS, 'MPI_Free_mem')

  ! Files.
  call get_command_argument(1, path)
  call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, fh, ierr)
  call check(ierr == MPI_SUCCESS, 'MPI_File_open')
  call MPI_File_set_view(fh, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, ierr)
  place = 4 * rank
  numbers = rank
  call MPI_File_write_at_all(fh, place, numbers, 4, MPI_INTEGER, status, ierr)
  call MPI_Get_count(status, MPI_INTEGER, i, ierr)
  call check(i == 4, 'MPI_File_write_at_all')
  text = '#'
  call MPI_File_get_view(fh, place, i, k, text, ierr)
  call check(place == 0 .and. i == MPI_INTEGER .and. text == 'native', 'MPI_File_get_view')
  call MPI_File_sync(fh, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  place = 4 * mod(rank + 1, n)
  call MPI_File_iread_at(fh, place, numbers, 4, MPI_INTEGER, requests(1), ierr)
  call MPI_Wait(requests(1), status, ierr)
  call MPI_F_sync_reg(numbers)
  call check(all(numbers == mod(rank + 1, n)), 'MPI_File_iread_at')
  call MPI_File_get_size(fh, place, ierr)
  call check(place == 16 * n, 'MPI_File_get_size')
  call MPI_File_close(fh, ierr)
  call check(fh == MPI_FILE_NULL, 'MPI_File_close')
  call MPI_File_open(MPI_COMM_WORLD, '/nowhere/at all ', MPI_MODE_RDONLY, MPI_INFO_NULL, fh, ierr)
  call MPI_Error_class(ierr, class, k)
  call check(class == MPI_ERR_NO_SUCH_FILE, 'MPI_File_open of no file')

  ! Info: blanks around keys and values do not count.
  call MPI_Info_create(info, ierr)
  call MPI_Info_set(info, '  name ', ' some value   ', ierr)
  text = '#'
  call MPI_Info_get(info, 'name', 16, text, flag, ierr)
  call check(flag .and. text == 'some value', 'MPI_Info_get')
  length = 4
  text = '#'
  call MPI_Info_get_string(info, 'name', length, text, flag, ierr)
  call check(flag .and. length == 10 .and. text == 'some', 'MPI_Info_get_string')
  call MPI_Info_get(info, 'another', 16, text, flag, ierr)
  call check(.not. flag, 'MPI_Info_get of no key')
  call MPI_Info_get_nthkey(info, 0, text, ierr)
  call check(text == 'name', 'MPI_Info_get_nthkey')
  call MPI_Info_free(info, ierr)
  call MPI_Comm_set_name(MPI_COMM_WORLD, 'all of them  ', ierr)
  call MPI_Comm_get_name(MPI_COMM_WORLD, text, length, ierr)
  call check(length == 11 .and. text == 'all of them', 'MPI_Comm_set_name')

  ! Splitting, and requests that go on after others.
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, comm, ierr)
  call MPI_Comm_size(comm, size, ierr)
  call MPI_Comm_rank(comm, i, ierr)
  call check(size == (n + 1 - mod(rank, 2)) / 2 .and. i == size - 1 - rank / 2, 'MPI_Comm_split')
  call MPI_Send_init(rank, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Recv_init(i, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, requests(2), ierr)
  i = -1
  call MPI_Startall(2, requests, ierr)
  call MPI_Waitall(2, requests, statuses, ierr)
  call MPI_F_sync_reg(i) ! The compiler does not see that MPI_Waitall changes it.
  call check(i == rank .and. statuses(MPI_SOURCE, 2) == rank .and. requests(1) /= MPI_REQUEST_NULL, 'MPI_Startall')
  call MPI_Request_free(requests(1), ierr)
  call MPI_Request_free(requests(2), ierr)

  i = faults
  call MPI_Allreduce(MPI_IN_PLACE, i, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. i == 0) print '(a)', 'ok'
  call MPI_Finalize(ierr)
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
