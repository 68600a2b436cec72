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
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { patience = 60 }; /* seconds until a run whose other end died is ended by SIGALRM */

static void die(const char *what)
{
	fprintf(stderr, "raw: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void usage(void)
{
	fprintf(stderr, "raw: called wrongly; its source says how\n");
	exit(2);
}

static long number(const char *s, long least)
{
	char *end;
	errno = 0;
	long n = strtol(s, &end, 10);
	if (errno || end == s || *end || n < least)
		usage();
	return n;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* reading is what a reading of the clock takes: of an interval between two readings so much is the clock's. */
static double reading(void)
{
	double least = 1e9;
	for (int k = 0; k < 5; k++) {
		double start = now(), last = start;
		for (int i = 0; i < 1000; i++)
			last = now();
		if ((last - start) / 1000 < least)
			least = (last - start) / 1000;
	}
	return least;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double quantile(const double *sorted, long n, double q)
{
	long i = (long)(q * (double)n);
	return sorted[i < n ? i : n - 1];
}

static void *zeroed(size_t n)
{
	void *p = malloc(n);
	if (!p)
		die("malloc");
	memset(p, 0, n); /* so that no page is new when the clock runs */
	return p;
}

static void pin(int cpu)
{
	if (cpu < 0)
		return;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("pinning to a CPU");
}

/* times are of round trips, in ns; batch is the median of the means of batches, which the clock's
 * own cost does not reach. */
static void print_latency(const char *what, const char *wait, int cpu, size_t size, double *times, long n, double batch)
{
	qsort(times, (size_t)n, sizeof *times, ascending);
	printf("{\"what\":\"%s\",\"wait\":\"%s\",\"cpu\":%d,\"size\":%zu,\"min\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"batch\":%.1f}\n",
	       what, wait, cpu, size, times[0] / 2, quantile(times, n, .5) / 2, quantile(times, n, .99) / 2,
	       quantile(times, n, .999) / 2, batch / 2);
}

static void print_rate(const char *what, const char *wait, size_t size, double bytes, double ns)
{
	printf("{\"what\":\"%s\",\"wait\":\"%s\",\"cpu\":-1,\"size\":%zu,\"mbps\":%.1f}\n", what, wait, size, bytes / ns * 1e3);
}

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

static void idle(int yield)
{
	if (yield)
		sched_yield();
}

/* some sends or receives once; -1 where the socket was not ready. */
static ssize_t some(int fd, char *b, size_t n, int out)
{
	ssize_t got = out ? send(fd, b, n, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(fd, b, n, MSG_DONTWAIT);
	if (got < 0 && errno != EAGAIN && errno != EINTR)
		die(out ? "send" : "recv");
	if (got == 0 && n > 0) {
		fprintf(stderr, "raw: the other end closed the connection\n");
		exit(1);
	}
	return got;
}

static void all(int fd, char *b, size_t n, int out, int yield)
{
	while (n > 0) {
		ssize_t done = some(fd, b, n, out);
		if (done < 0) {
			idle(yield);
			continue;
		}
		b += done;
		n -= (size_t)done;
	}
}

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

static void plain(int fd)
{
	int on = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
		die("TCP_NODELAY");
}

static struct sockaddr_in address(const char *s, long port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	if (inet_pton(AF_INET, s, &a.sin_addr) != 1)
		usage();
	return a;
}

static void serve(const char *addr)
{
	struct sockaddr_in a = address(addr, 0);
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &len))
		die("listening");
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	alarm(patience);
	int fd = accept(l, NULL, NULL);
	if (fd < 0)
		die("accept");
	plain(fd);
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
	struct sockaddr_in a = address(v[0], number(v[1], 1));
	const char *what = v[2], *wait = v[3];
	long count = number(v[6], 10), warm = count / 10;
	struct order o = {
		.mode = !strcmp(what, "bidir") ? 'd' : what[0],
		.yield = !strcmp(wait, "yield"),
		.cpu = (int16_t)number(v[4], -1),
		.size = (uint32_t)number(v[5], 1),
		.count = (uint64_t)(count + warm),
	};
	alarm(patience);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connecting");
	plain(fd);
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
