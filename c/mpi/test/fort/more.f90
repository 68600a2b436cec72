! A program with module mpi_f08: processes that it spawns, generalised requests, sessions, buffers of
! communicators, and calls that go on with datatypes of each rank. It prints what is wrong, or "ok".
module callbacks
  use mpi_f08
  implicit none
  integer(MPI_ADDRESS_KIND) :: freed = 0
  logical :: cancelled = .false.
contains
  subroutine query(extra_state, status, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    call MPI_Status_set_elements(status, MPI_INTEGER, int(extra_state), ierror)
    call MPI_Status_set_cancelled(status, cancelled, ierror)
    status%MPI_SOURCE = 5
    status%MPI_TAG = 6
  end subroutine
  subroutine release(extra_state, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = freed + extra_state
    ierror = MPI_SUCCESS
  end subroutine
  subroutine cancel(extra_state, complete, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    cancelled = .not. complete
    ierror = MPI_SUCCESS
  end subroutine
end module

program more
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use callbacks
  implicit none
  integer :: rank, n, k, i, faults = 0, ierr, errcodes(2), length, size
  integer, allocatable :: from(:), to(:), counts(:), places(:)
  integer :: room(400)
  integer(MPI_ADDRESS_KIND) :: address
  type(MPI_Datatype), allocatable :: types(:)
  type(MPI_Comm) :: parent, children
  type(MPI_Info) :: info
  type(MPI_Request) :: request
  type(MPI_Session) :: session
  type(MPI_Status) :: status
  type(c_ptr) :: base
  logical :: flag
  character(256) :: path, argument
  character(40) :: arguments(3), lists(2, 2)
  character(256) :: commands(2)

  call MPI_Init()
  call MPI_Comm_get_parent(parent)
  if (parent /= MPI_COMM_NULL) then
    ! A child sends what its argument is, or how many it has.
    call get_command_argument(1, argument)
    call MPI_Comm_rank(parent, rank)
    k = command_argument_count()
    call MPI_Send(argument, 40, MPI_CHARACTER, 0, k, parent)
    call MPI_Comm_disconnect(parent)
    call MPI_Finalize()
    stop
  end if
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  call get_command_argument(0, path)

  ! Datatypes of each rank.
  from = [(rank * 100 + i, i = 0, n - 1)]
  counts = [(1, i = 0, n - 1)]
  places = [(4 * i, i = 0, n - 1)]
  allocate (to(n), types(n))
  types = MPI_INTEGER
  call MPI_Ialltoallw(from, counts, places, types, to, counts, places, types, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call MPI_F_sync_reg(to)
  call check(all(to == [(i * 100 + rank, i = 0, n - 1)]), 'MPI_Ialltoallw')
  call MPI_Alltoallw_init(from, counts, places, types, to, counts, places, types, MPI_COMM_WORLD, MPI_INFO_NULL, request)
  do k = 1, 3
    to = -1
    call MPI_Start(request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call MPI_F_sync_reg(to)
    call check(all(to == [(i * 100 + rank, i = 0, n - 1)]), 'MPI_Alltoallw_init')
  end do
  call MPI_Request_free(request)

  ! Generalised requests.
  call MPI_Grequest_start(query, release, cancel, 9_MPI_ADDRESS_KIND, request)
  call MPI_Test(request, flag, status)
  call check(.not. flag .and. request /= MPI_REQUEST_NULL, 'MPI_Grequest_start')
  call MPI_Cancel(request)
  call MPI_Grequest_complete(request)
  call MPI_Wait(request, status)
  call MPI_Get_elements(status, MPI_INTEGER, k)
  call MPI_Test_cancelled(status, flag)
  call check(k == 9 .and. flag .and. freed == 9 .and. status%MPI_SOURCE == 5 .and. status%MPI_TAG == 6, 'MPI_Grequest_complete')

  ! Sessions and buffers of communicators.
  call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session)
  call MPI_Session_get_num_psets(session, MPI_INFO_NULL, k)
  length = 0
  argument = '#'
  call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, length, argument)
  call check(k >= 1 .and. length > 0 .and. argument == '#', 'MPI_Session_get_nth_pset: length')
  call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, length, argument)
  call check(argument(:6) == 'mpi://' .and. len_trim(argument) == length, 'MPI_Session_get_nth_pset')
  call MPI_Session_finalize(session)
  call check(session == MPI_SESSION_NULL, 'MPI_Session_finalize')
  call MPI_Comm_attach_buffer(MPI_COMM_WORLD, room, 1600)
  call MPI_Comm_detach_buffer(MPI_COMM_WORLD, base, size)
  call MPI_Get_address(room, address)
  call check(size == 1600 .and. transfer(base, address) == address, 'MPI_Comm_detach_buffer')

  ! Processes.
  arguments = [character(40) :: 'with blanks in it', 'second', '']
  call MPI_Comm_spawn(path, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, errcodes)
  call check(all(errcodes == MPI_SUCCESS), 'MPI_Comm_spawn')
  if (rank == 0) then
    do i = 1, 2
      call MPI_Recv(argument, 40, MPI_CHARACTER, MPI_ANY_SOURCE, 2, children, MPI_STATUS_IGNORE)
      call check(argument(:40) == 'with blanks in it', 'MPI_Comm_spawn: arguments')
    end do
  end if
  call MPI_Comm_disconnect(children)
  call check(children == MPI_COMM_NULL, 'MPI_Comm_disconnect')
  commands = path
  lists = reshape([character(40) :: 'first', 'second', '', ''], [2, 2])
  call MPI_Comm_spawn_multiple(2, commands, lists, [1, 1], [MPI_INFO_NULL, MPI_INFO_NULL], 0, MPI_COMM_WORLD, children, &
    MPI_ERRCODES_IGNORE)
  if (rank == 0) then
    do i = 0, 1
      call MPI_Recv(argument, 40, MPI_CHARACTER, i, 1, children, MPI_STATUS_IGNORE)
      call check(argument(:40) == merge('first ', 'second', i == 0), 'MPI_Comm_spawn_multiple: arguments')
    end do
  end if
  call MPI_Comm_disconnect(children)
  call MPI_Comm_spawn(path, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, MPI_ERRCODES_IGNORE)
  if (rank == 0) call MPI_Recv(argument, 40, MPI_CHARACTER, 0, 0, children, MPI_STATUS_IGNORE)
  call MPI_Comm_disconnect(children)

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
