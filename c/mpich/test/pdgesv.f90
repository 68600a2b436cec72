! Solves a system of linear equations on all ranks with ScaLAPACK. Rank 0 prints "ok".
program solve
  implicit none
  integer, parameter :: n = 60, nb = 8
  integer :: context, rows, columns, row, column, ranks, me, mine, info, i, j, la, lb
  integer :: a_of(9), b_of(9)
  integer, external :: numroc, indxl2g
  double precision, allocatable :: a(:, :), b(:)
  integer, allocatable :: pivots(:)
  double precision :: off, most

  call blacs_pinfo(me, ranks)
  rows = 1
  do i = 1, int(sqrt(dble(ranks)))
    if (mod(ranks, i) == 0) rows = i
  end do
  columns = ranks / rows
  call blacs_get(-1, 0, context)
  call blacs_gridinit(context, 'R', rows, columns)
  call blacs_gridinfo(context, rows, columns, row, column)
  la = max(1, numroc(n, nb, row, 0, rows))
  lb = max(1, numroc(n, nb, column, 0, columns))
  mine = numroc(1, nb, column, 0, columns)
  allocate (a(la, lb), b(la), pivots(la + nb))
  call descinit(a_of, n, n, nb, nb, 0, 0, context, la, info)
  if (info /= 0) call fail("descinit of the matrix")
  call descinit(b_of, n, 1, nb, nb, 0, 0, context, la, info)
  if (info /= 0) call fail("descinit of the right side")
  ! The solution is 1, 2, ..., n.
  do j = 1, numroc(n, nb, column, 0, columns)
    do i = 1, numroc(n, nb, row, 0, rows)
      a(i, j) = entry(indxl2g(i, nb, row, 0, rows), indxl2g(j, nb, column, 0, columns))
    end do
  end do
  b = 0
  if (mine > 0) then
    do i = 1, numroc(n, nb, row, 0, rows)
      do j = 1, n
        b(i) = b(i) + entry(indxl2g(i, nb, row, 0, rows), j) * j
      end do
    end do
  end if
  call pdgesv(n, 1, a, 1, 1, a_of, pivots, b, 1, 1, b_of, info)
  if (info /= 0) call fail("pdgesv")
  off = 0
  if (mine > 0) then
    do i = 1, numroc(n, nb, row, 0, rows)
      off = max(off, abs(b(i) - indxl2g(i, nb, row, 0, rows)))
    end do
  end if
  most = off
  call dgamx2d(context, 'A', ' ', 1, 1, most, 1, -1, -1, -1, -1, -1)
  if (most > 1d-8) call fail("the solution")
  if (me == 0) print '(a)', "ok"
  call blacs_gridexit(context)
  call blacs_exit(0)
contains
  double precision function entry(i, j)
    integer, intent(in) :: i, j
    entry = 1d0 / (i + j) + merge(dble(n), 0d0, i == j) + merge(1d0, 0d0, mod(i, 7) == mod(j, 5))
  end function

  subroutine fail(what)
    character(*) :: what
    print *, "not so: ", what
    call blacs_abort(context, 3)
  end subroutine
end program
