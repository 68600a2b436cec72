/*
 * mpi: what two processes of MPI do. The first prints objects of JSON, one a line.
 *
 *   mpi EVERY WORK...
 *
 * WORK is send:SIZE:COUNT and put:SIZE:COUNT (half a round trip), get:SIZE:COUNT (the round trip),
 * sendbw:SIZE:COUNT and putbw:SIZE:COUNT (64 in flight). EVERY: a process that waits for a put looks
 * at its memory, and lets MPI progress at every so manieth look; over a network nothing arrives
 * otherwise, and in shared memory it need not.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { in_flight = 64 };

static int rank, peer;
static long every;
static unsigned char *window;
static MPI_Win win;

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void die(const char *why)
{
	fprintf(stderr, "mpi: %s\n", why);
	MPI_Abort(MPI_COMM_WORLD, 2);
	exit(2);
}

static void *zeroed(size_t n)
{
	void *p = malloc(n);
	if (!p)
		die("no memory");
	memset(p, 0, n);
	return p;
}

static void progress(void)
{
	int there;
	MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
}

/* await returns when the last byte of a put of size bytes has come, as other libraries' tests do. */
static void await(long size, unsigned char v)
{
	volatile unsigned char *last = window + size - 1;
	for (long looks = 1; *last != v; looks++)
		if (looks % every == 0)
			progress();
	MPI_Win_sync(win);
}

static void put_and_await(unsigned char *b, long size, unsigned char v, int first)
{
	if (!first)
		await(size, v);
	b[size - 1] = v;
	MPI_Put(b, (int)size, MPI_BYTE, peer, 0, (int)size, MPI_BYTE, win);
	MPI_Win_flush_local(peer, win);
	if (first)
		await(size, v);
}

static void send_and_receive(unsigned char *b, long size, int first)
{
	if (first)
		MPI_Send(b, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
	MPI_Recv(b, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (!first)
		MPI_Send(b, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

/* get is one-sided: the other end only lets MPI progress until it is told that all is done. */
static void get(unsigned char *b, long size)
{
	MPI_Get(b, (int)size, MPI_BYTE, peer, 0, (int)size, MPI_BYTE, win);
	MPI_Win_flush(peer, win);
}

static void print_latency(const char *what, long size, double *times, long n, double part)
{
	qsort(times, (size_t)n, sizeof *times, ascending);
	printf("{\"what\":\"%s\",\"size\":%ld,\"min\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f}\n", what, size,
	       times[0] * 1e9 * part, times[n / 2] * 1e9 * part, times[(long)((double)n * .99)] * 1e9 * part,
	       times[(long)((double)n * .999)] * 1e9 * part);
	fflush(stdout);
}

/* reading is what a reading of the clock takes: of an interval between two readings so much is the clock's. */
static double reading(void)
{
	double least = 1;
	for (int k = 0; k < 5; k++) {
		double start = MPI_Wtime(), last = start;
		for (int i = 0; i < 1000; i++)
			last = MPI_Wtime();
		if ((last - start) / 1000 < least)
			least = (last - start) / 1000;
	}
	return least;
}

static void latency(const char *what, unsigned char *b, long size, long n)
{
	long warm = n / 10 + 1;
	double *times = zeroed((size_t)n * sizeof *times);
	unsigned char v = window[size - 1];
	double clock = reading();
	MPI_Barrier(MPI_COMM_WORLD);
	for (long i = -warm; i < n; i++) {
		double start = MPI_Wtime();
		if (!strcmp(what, "send"))
			send_and_receive(b, size, rank == 0);
		else if (!strcmp(what, "put"))
			put_and_await(b, size, ++v, rank == 0);
		else if (rank == 0)
			get(b, size);
		else
			break;
		if (i >= 0)
			times[i] = MPI_Wtime() - start - clock;
	}
	char end = 0;
	MPI_Request r;
	if (rank == 0)
		MPI_Isend(&end, 1, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &r);
	else
		MPI_Irecv(&end, 1, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	if (rank == 0)
		print_latency(what, size, times, n, strcmp(what, "get") ? .5 : 1);
	free(times);
}

static void some_sends(unsigned char *b, long size, long n)
{
	MPI_Request r[in_flight];
	MPI_Status done[in_flight];
	for (long i = 0; i < n; i += in_flight) {
		int k = 0;
		for (; k < in_flight && i + k < n; k++)
			if (rank == 0)
				MPI_Isend(b, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &r[k]);
			else
				MPI_Irecv(b, (int)size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &r[k]);
		MPI_Waitall(k, r, done);
	}
	char end = 0; /* the sender has sent when the receiver has received */
	if (rank == 0)
		MPI_Recv(&end, 1, MPI_CHAR, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(&end, 1, MPI_CHAR, peer, 1, MPI_COMM_WORLD);
}

static void some_puts(unsigned char *b, long size, long n)
{
	char end = 0;
	if (rank == 1) {
		MPI_Recv(&end, 1, MPI_CHAR, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		return;
	}
	for (long i = 0; i < n; i++) {
		MPI_Put(b, (int)size, MPI_BYTE, peer, 0, (int)size, MPI_BYTE, win);
		if (i % in_flight == in_flight - 1)
			MPI_Win_flush_local(peer, win);
	}
	MPI_Win_flush(peer, win);
	MPI_Send(&end, 1, MPI_CHAR, peer, 1, MPI_COMM_WORLD);
}

static void bandwidth(const char *what, unsigned char *b, long size, long n)
{
	void (*some)(unsigned char *, long, long) = strcmp(what, "putbw") ? some_sends : some_puts;
	some(b, size, n / 10 + 1);
	MPI_Barrier(MPI_COMM_WORLD);
	double start = MPI_Wtime();
	some(b, size, n);
	double took = MPI_Wtime() - start;
	if (rank == 0)
		printf("{\"what\":\"%s\",\"size\":%ld,\"mbps\":%.1f}\n", what, size, (double)size * (double)n / took / 1e6);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int ranks;
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (ranks != 2 || argc < 3 || (every = strtol(argv[1], NULL, 10)) < 1)
		die("called wrongly; its source says how");
	peer = 1 - rank;
	long largest = 1;
	for (int i = 2; i < argc; i++) {
		long size, n;
		if (sscanf(argv[i], "%*[a-z]:%ld:%ld", &size, &n) != 2 || size < 1 || n < 1)
			die("a work is NAME:SIZE:COUNT");
		if (size > largest)
			largest = size;
	}
	unsigned char *b = zeroed((size_t)largest);
	MPI_Win_allocate(largest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, (size_t)largest);
	MPI_Win_lock_all(0, win);
	for (int i = 2; i < argc; i++) {
		char what[16];
		long size, n;
		if (sscanf(argv[i], "%15[a-z]:%ld:%ld", what, &size, &n) != 3)
			die("a work is NAME:SIZE:COUNT");
		memset(window, 0, (size_t)largest);
		memset(b, 0, (size_t)size);
		MPI_Win_sync(win);
		if (!strcmp(what, "sendbw") || !strcmp(what, "putbw"))
			bandwidth(what, b, size, n);
		else if (!strcmp(what, "send") || !strcmp(what, "put") || !strcmp(what, "get"))
			latency(what, b, size, n);
		else
			die("unknown work");
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
