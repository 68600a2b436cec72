C     A program in fixed form with mpif.h: point-to-point, reductions, packing, attributes of MPI-1,
C     topologies. It prints what is wrong, or "ok".
      program old
      implicit none
      include 'mpif.h'
      integer ierr, rank, n, i, faults, left, right, got, len, class
      integer status(MPI_STATUS_SIZE), requests(2), index, outcount
      integer statuses(MPI_STATUS_SIZE, 2), indices(2), flags
      integer grid, dims(2), coords(2), keyval, value, copied, position
      integer pair(2), best(2), buf(16)
      integer(kind=MPI_ADDRESS_KIND) places(2), base
      integer lengths(2), types(2), mixed
      double precision x, total, began
      complex z, zs
      real real2(2), most(2)
      logical flag, periods(2), yes
      character*(MPI_MAX_PROCESSOR_NAME) name
      character*(MPI_MAX_ERROR_STRING) text
      character bytes(64)
      external twice
      common /mixed/ x, i
      faults = 0
      call MPI_INIT(ierr)
      call check(ierr .eq. MPI_SUCCESS, 'MPI_INIT', faults)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, n, ierr)
      began = MPI_WTIME()
      call check(began .ge. 0 .and. MPI_WTICK() .gt. 0, 'MPI_WTIME',
     &           faults)
      right = mod(rank + 1, n)
      left = mod(rank + n - 1, n)

C     Nonblocking, with an array of statuses.
      call MPI_IRECV(got, 1, MPI_INTEGER, left, 7, MPI_COMM_WORLD,
     &               requests(1), ierr)
      call MPI_ISEND(rank, 1, MPI_INTEGER, right, 7, MPI_COMM_WORLD,
     &               requests(2), ierr)
      call MPI_WAITALL(2, requests, statuses, ierr)
C     The compiler does not see that MPI_WAITALL changes it.
      call MPI_F_SYNC_REG(got)
      call check(got .eq. left, 'MPI_WAITALL: data', faults)
      call check(statuses(MPI_SOURCE, 1) .eq. left .and.
     &           statuses(MPI_TAG, 1) .eq. 7, 'MPI_WAITALL: status',
     &           faults)
      call MPI_GET_COUNT(statuses(1, 1), MPI_INTEGER, i, ierr)
      call check(i .eq. 1, 'MPI_GET_COUNT', faults)
      call check(requests(1) .eq. MPI_REQUEST_NULL, 'request', faults)

C     Indexes count from 1.
      requests(1) = MPI_REQUEST_NULL
      call MPI_ISEND(rank, 1, MPI_INTEGER, rank, 8, MPI_COMM_WORLD,
     &               requests(2), ierr)
      call MPI_RECV(got, 1, MPI_INTEGER, rank, 8, MPI_COMM_WORLD,
     &              MPI_STATUS_IGNORE, ierr)
      call MPI_WAITANY(2, requests, index, MPI_STATUS_IGNORE, ierr)
      call check(index .eq. 2, 'MPI_WAITANY', faults)
      call MPI_WAITANY(2, requests, index, MPI_STATUS_IGNORE, ierr)
      call check(index .eq. MPI_UNDEFINED, 'MPI_WAITANY: none', faults)
      call MPI_IRECV(got, 1, MPI_INTEGER, rank, 8, MPI_COMM_WORLD,
     &               requests(2), ierr)
      call MPI_SEND(rank, 1, MPI_INTEGER, rank, 8, MPI_COMM_WORLD, ierr)
      call MPI_WAITSOME(2, requests, outcount, indices,
     &                  MPI_STATUSES_IGNORE, ierr)
      call check(outcount .eq. 1 .and. indices(1) .eq. 2,
     &           'MPI_WAITSOME', faults)
      call MPI_IPROBE(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, flag, status,
     &                ierr)
      call check(.not. flag, 'MPI_IPROBE', faults)

C     Reductions.
      x = rank + 0.5d0
      call MPI_ALLREDUCE(x, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      call check(total .eq. n * (n - 1) / 2 + n * 0.5d0,
     &           'MPI_ALLREDUCE', faults)
      z = cmplx(rank, -1)
      call MPI_ALLREDUCE(z, zs, 1, MPI_COMPLEX, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      call check(zs .eq. cmplx(n * (n - 1) / 2, -n), 'complex', faults)
      real2(1) = -rank
      real2(2) = rank
      call MPI_ALLREDUCE(real2, most, 1, MPI_2REAL, MPI_MAXLOC,
     &                   MPI_COMM_WORLD, ierr)
      call check(most(1) .eq. 0 .and. most(2) .eq. 0, 'MPI_2REAL',
     &           faults)
      pair(1) = rank
      pair(2) = rank + 100
      call MPI_ALLREDUCE(pair, best, 1, MPI_2INTEGER, MPI_MAXLOC,
     &                   MPI_COMM_WORLD, ierr)
      call check(best(1) .eq. n - 1 .and. best(2) .eq. n + 99,
     &           'MPI_2INTEGER', faults)
      i = 1
      call MPI_ALLREDUCE(MPI_IN_PLACE, i, 1, MPI_INTEGER, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      call check(i .eq. n, 'MPI_IN_PLACE', faults)
      flag = rank .eq. 0
      call MPI_ALLREDUCE(flag, yes, 1, MPI_LOGICAL, MPI_LOR,
     &                   MPI_COMM_WORLD, ierr)
      call check(yes, 'MPI_LOR', faults)
      call MPI_ALLREDUCE(flag, yes, 1, MPI_LOGICAL, MPI_LAND,
     &                   MPI_COMM_WORLD, ierr)
      call check(yes .eqv. n .eq. 1, 'MPI_LAND', faults)
      call MPI_OP_CREATE(twice, .true., i, ierr)
      got = rank + 1
      call MPI_ALLREDUCE(got, value, 1, MPI_INTEGER, i, MPI_COMM_WORLD,
     &                   ierr)
      call MPI_OP_FREE(i, ierr)
      call check(value .ge. got .and. i .eq. MPI_OP_NULL,
     &           'MPI_OP_CREATE', faults)

C     A datatype of absolute addresses, and MPI_BOTTOM.
      call MPI_GET_ADDRESS(x, places(1), ierr)
      call MPI_GET_ADDRESS(i, places(2), ierr)
      base = MPI_AINT_DIFF(places(2), places(1))
      call check(base .eq. 8, 'MPI_AINT_DIFF', faults)
      lengths(1) = 1
      lengths(2) = 1
      types(1) = MPI_DOUBLE_PRECISION
      types(2) = MPI_INTEGER
      call MPI_TYPE_CREATE_STRUCT(2, lengths, places, types, mixed,
     &                            ierr)
      call MPI_TYPE_COMMIT(mixed, ierr)
      x = rank
      i = -rank
      call MPI_SENDRECV_REPLACE(MPI_BOTTOM, 1, mixed, right, 5, left, 5,
     &                          MPI_COMM_WORLD, status, ierr)
      call check(x .eq. left .and. i .eq. -left, 'MPI_BOTTOM', faults)
      call MPI_TYPE_FREE(mixed, ierr)
      call check(mixed .eq. MPI_DATATYPE_NULL, 'MPI_TYPE_FREE', faults)

C     Packed.
      position = 0
      x = 2.5
      call MPI_PACK(rank, 1, MPI_INTEGER, bytes, 64, position,
     &              MPI_COMM_SELF, ierr)
      call MPI_PACK(x, 1, MPI_DOUBLE_PRECISION, bytes, 64, position,
     &              MPI_COMM_SELF, ierr)
      call check(position .eq. 12, 'MPI_PACK', faults)
      position = 4
      call MPI_UNPACK(bytes, 64, position, total, 1,
     &                MPI_DOUBLE_PRECISION, MPI_COMM_SELF, ierr)
      call check(total .eq. 2.5d0, 'MPI_UNPACK', faults)

C     Topologies.
      dims(1) = 0
      dims(2) = 1
      call MPI_DIMS_CREATE(n, 2, dims, ierr)
      call check(dims(1) .eq. n, 'MPI_DIMS_CREATE', faults)
      periods(1) = .true.
      periods(2) = .false.
      call MPI_CART_CREATE(MPI_COMM_WORLD, 2, dims, periods, .false.,
     &                     grid, ierr)
      call MPI_CART_SHIFT(grid, 0, 1, buf(1), buf(2), ierr)
      call check(buf(1) .eq. left .and. buf(2) .eq. right,
     &           'MPI_CART_SHIFT', faults)
      periods(1) = .false.
      periods(2) = .true.
      call MPI_CART_GET(grid, 2, dims, periods, coords, ierr)
      call check(periods(1) .and. .not. periods(2) .and.
     &           coords(1) .eq. rank, 'MPI_CART_GET', faults)
      call MPI_COMM_FREE(grid, ierr)
      call check(grid .eq. MPI_COMM_NULL, 'MPI_COMM_FREE', faults)

C     Attributes of MPI-1.
      call MPI_KEYVAL_CREATE(MPI_DUP_FN, MPI_NULL_DELETE_FN, keyval, 3,
     &                       ierr)
      call MPI_ATTR_PUT(MPI_COMM_WORLD, keyval, -42, ierr)
      call MPI_COMM_DUP(MPI_COMM_WORLD, grid, ierr)
      call MPI_ATTR_GET(grid, keyval, value, flag, ierr)
      call check(flag .and. value .eq. -42, 'MPI_ATTR_GET', faults)
      call MPI_ATTR_GET(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
      call check(flag .and. value .ge. 32767, 'MPI_TAG_UB', faults)
      call MPI_COMM_FREE(grid, ierr)

C     Texts are padded with blanks.
      name = '#'
      call MPI_GET_PROCESSOR_NAME(name, len, ierr)
      call check(len .gt. 0 .and. len .eq. len_trim(name),
     &           'MPI_GET_PROCESSOR_NAME', faults)

C     Errors.
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD, MPI_ERRORS_RETURN,
     &                             ierr)
      call MPI_SEND(rank, 1, MPI_INTEGER, n, 0, MPI_COMM_WORLD, ierr)
      call MPI_ERROR_CLASS(ierr, class, flags)
      call check(class .eq. MPI_ERR_RANK, 'MPI_ERR_RANK', faults)
      call MPI_ERROR_STRING(ierr, text, len, flags)
      call check(len .gt. 0 .and. len .eq. len_trim(text),
     &           'MPI_ERROR_STRING', faults)

      call MPI_REDUCE(faults, i, 1, MPI_INTEGER, MPI_SUM, 0,
     &                MPI_COMM_WORLD, ierr)
      if (rank .eq. 0 .and. i .eq. 0) print '(a)', 'ok'
      call MPI_FINALIZE(ierr)
      end

      subroutine check(good, what, faults)
      logical good
      character*(*) what
      integer faults
      if (.not. good) then
         faults = faults + 1
         print '(2a)', 'wrong: ', what
      end if
      end

C     The most of two numbers.
      subroutine twice(in, inout, n, type)
      include 'mpif.h'
      integer n, type, i, in(n), inout(n)
      if (type .ne. MPI_INTEGER) stop 3
      do 10 i = 1, n
   10 inout(i) = max(in(i), inout(i))
      end
