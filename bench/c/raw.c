/*
 * raw: what the machine does without any library. Each run prints objects of JSON, one a line.
 *
 *   raw flag spin|yield COUNT           two processes and a word of shared memory for each
 *   raw memmove SIZE TOTAL              between two mappings of one memfd
 *   raw serve ADDR                      prints its port, serves one client of "raw tcp"
 *   raw tcp ADDR PORT latency|bandwidth|bidir spin|yield CPU SIZE COUNT
 *                                       CPU -1: the kernel chooses; else both ends are pinned to it
 */
#define _GNU_SOURCE
#define PROGRAM "raw"
#include "measure.h"
#include <sys/mman.h>
#include <sys/wait.h>

/* Shared flag. */

static void look(volatile uint32_t *w, uint32_t v, int yield)
{
	for (unsigned looks = 1; __atomic_load_n(w, __ATOMIC_ACQUIRE) != v; looks++)
		if (yield && looks % 1024 == 0) /* a look takes a nanosecond or less, a yield hundreds */
			sched_yield();
}

enum { batch_size = 100 };

static void flag(const char *wait, long count)
{
	int yield = !strcmp(wait, "yield");
	long warm = count / 10 + 1;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	volatile uint32_t *there = (volatile uint32_t *)p, *back = (volatile uint32_t *)(p + 256);
	double *times = zeroed((size_t)count * sizeof *times);
	long batches = count / batch_size + 1;
	double *means = zeroed((size_t)batches * sizeof *means);
	uint32_t total = (uint32_t)(warm + count + batches * batch_size);
	pid_t child = fork();
	if (child < 0)
		die("fork");
	alarm(patience);
	if (child == 0) {
		for (uint32_t i = 1; i <= total; i++) {
			look(there, i, yield);
			__atomic_store_n(back, i, __ATOMIC_RELEASE);
		}
		_exit(0);
	}
	uint32_t i = 1;
	double clock = reading();
	for (long k = -warm; k < count; k++, i++) {
		double start = now();
		__atomic_store_n(there, i, __ATOMIC_RELEASE);
		look(back, i, yield);
		if (k >= 0)
			times[k] = now() - start - clock;
	}
	for (long b = 0; b < batches; b++) {
		double start = now();
		for (int k = 0; k < batch_size; k++, i++) {
			__atomic_store_n(there, i, __ATOMIC_RELEASE);
			look(back, i, yield);
		}
		means[b] = (now() - start) / batch_size;
	}
	waitpid(child, NULL, 0);
	qsort(means, (size_t)batches, sizeof *means, ascending);
	print_latency("flag", wait, -1, 4, times, count, quantile(means, batches, .5));
}

/* Copy. */

static void copies(size_t size, size_t total)
{
	int fd = memfd_create("raw", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)(2 * size)))
		die("memfd");
	char *from = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *to = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (from == MAP_FAILED || to == MAP_FAILED)
		die("mmap");
	memset(from, 1, size);
	memset(to + size, 0, size);
	size_t n = total / size + 1;
	for (size_t i = 0; i < n / 10 + 1; i++)
		memmove(to + size, from, size);
	double start = now();
	for (size_t i = 0; i < n; i++) {
		memmove(to + size, from, size);
		__asm__ volatile("" ::: "memory"); /* each copy is made */
	}
	print_rate("memmove", "none", size, (double)n * (double)size, now() - start);
}

/* TCP. */

struct order {
	char mode; /* of "latency", "bandwidth", "bidir": l, b or d */
	char yield;
	int16_t cpu;
	uint32_t size;
	uint64_t count;
};

/* both sends and receives total bytes at once, in pieces of size. */
static void both(int fd, char *out, char *in, size_t size, size_t total, int yield)
{
	size_t sent = 0, got = 0;
	while (sent < total || got < total) {
		ssize_t s = -1, r = -1;
		if (sent < total)
			s = some(fd, out + sent % size, size - sent % size, 1);
		if (got < total)
			r = some(fd, in + got % size, size - got % size, 0);
		if (s > 0)
			sent += (size_t)s;
		if (r > 0)
			got += (size_t)r;
		if (s < 0 && r < 0)
			idle(yield);
	}
}

static void serve(const char *addr)
{
	int l = listening(addr);
	int fd = accepted(l);
	struct order o;
	all(fd, (char *)&o, sizeof o, 0, 1);
	pin(o.cpu);
	char *in = zeroed(o.size), *out = zeroed(o.size);
	for (uint64_t i = 0; i < o.count; i++) {
		if (o.mode == 'd') {
			both(fd, out, in, o.size, o.size * o.count, o.yield);
			break;
		}
		all(fd, in, o.size, 0, o.yield);
		if (o.mode == 'l')
			all(fd, in, o.size, 1, o.yield);
	}
	all(fd, in, 1, 1, o.yield);
	all(fd, in, 1, 0, o.yield); /* the client's last byte: it has read ours */
}

static void tcp(char **v)
{
	const char *what = v[2], *wait = v[3];
	long count = number(v[6], 10), warm = count / 10;
	struct order o = {
		.mode = !strcmp(what, "bidir") ? 'd' : what[0],
		.yield = !strcmp(wait, "yield"),
		.cpu = (int16_t)number(v[4], -1),
		.size = (uint32_t)number(v[5], 1),
		.count = (uint64_t)(count + warm),
	};
	int fd = dial(v[0], number(v[1], 1));
	all(fd, (char *)&o, sizeof o, 1, 1);
	pin(o.cpu);
	char *in = zeroed(o.size), *out = zeroed(o.size), end = 0;
	double *times = zeroed((size_t)count * sizeof *times);
	double clock = reading(), start = now(), begun = start;
	if (o.mode == 'd')
		both(fd, out, in, o.size, o.size * o.count, o.yield);
	for (long i = -warm; i < count && o.mode != 'd'; i++) {
		start = now();
		if (i == 0)
			begun = start;
		all(fd, out, o.size, 1, o.yield);
		if (o.mode == 'l')
			all(fd, in, o.size, 0, o.yield);
		if (i >= 0)
			times[i] = now() - start - clock;
	}
	if (o.mode == 'd')
		warm = 0; /* the whole of it was timed */
	all(fd, &end, 1, 0, o.yield);
	double took = now() - begun;
	all(fd, &end, 1, 1, o.yield);
	if (o.mode == 'l')
		print_latency(what, wait, o.cpu, o.size, times, count, took / (double)count);
	else if (o.mode == 'd')
		print_rate(what, wait, o.size, 2. * (double)o.size * (double)o.count, took);
	else
		print_rate(what, wait, o.size, (double)o.size * (double)count, took);
}

static int is(const char *s, const char *a, const char *b, const char *c)
{
	return !strcmp(s, a) || !strcmp(s, b) || !strcmp(s, c);
}

int main(int n, char **v)
{
	if (n == 4 && !strcmp(v[1], "flag") && is(v[2], "spin", "yield", "yield"))
		flag(v[2], number(v[3], 1));
	else if (n == 4 && !strcmp(v[1], "memmove"))
		copies((size_t)number(v[2], 1), (size_t)number(v[3], 1));
	else if (n == 3 && !strcmp(v[1], "serve"))
		serve(v[2]);
	else if (n == 9 && !strcmp(v[1], "tcp") && is(v[4], "latency", "bandwidth", "bidir") && is(v[5], "spin", "yield", "yield"))
		tcp(v + 2);
	else
		usage();
	return 0;
}
