/*
 * measure.h: what the programs here that use no library have in common: clocks, figures and sockets.
 * Functions are inline, as not each program uses all of them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { patience = 60 }; /* seconds until a run whose other end died is ended by SIGALRM */

static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", PROGRAM, what, strerror(errno));
	exit(1);
}

static inline void usage(void)
{
	fprintf(stderr, "%s: called wrongly; its source says how\n", PROGRAM);
	exit(2);
}

static inline long number(const char *s, long least)
{
	char *end;
	errno = 0;
	long n = strtol(s, &end, 10);
	if (errno || end == s || *end || n < least)
		usage();
	return n;
}

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* reading is what a reading of the clock takes: of an interval between two readings so much is the clock's. */
static inline double reading(void)
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

static inline int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static inline double quantile(const double *sorted, long n, double q)
{
	long i = (long)(q * (double)n);
	return sorted[i < n ? i : n - 1];
}

static inline void *zeroed(size_t n)
{
	void *p = malloc(n);
	if (!p)
		die("malloc");
	/* The compiler must not see that it is new: it makes a calloc of both, which writes to no page. */
	__asm__ volatile("" : "+r"(p));
	memset(p, 0, n); /* so that no page is new when the clock runs, and they are not all the one of zeros */
	return p;
}

static inline void pin(int cpu)
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
static inline void print_latency(const char *what, const char *wait, int cpu, size_t size, double *times, long n, double batch)
{
	qsort(times, (size_t)n, sizeof *times, ascending);
	printf("{\"what\":\"%s\",\"wait\":\"%s\",\"cpu\":%d,\"size\":%zu,\"min\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"batch\":%.1f}\n",
	       what, wait, cpu, size, times[0] / 2, quantile(times, n, .5) / 2, quantile(times, n, .99) / 2,
	       quantile(times, n, .999) / 2, batch / 2);
}

/* span is when what counts began and when the last of it was there, by the clock that all processes have. */
struct span {
	double begun, ended;
};

/* rate is in megabytes a second. */
static inline double rate(double bytes, struct span s) { return bytes / (s.ended - s.begun) * 1e3; }

/*
 * A TCP connection has one of several speeds, by chance, and keeps it for long. So what is moved both ways is moved by several new ones, one
 * after another, and their median counts; a peer has a new one for each order. What warms each of them up is part of the stream, and does not count.
 */
enum { connections = 5 };

static inline uint64_t warm(uint64_t count) { return count / 10 + 1; }

/* print_rate prints the median. */
static inline void print_rate(const char *what, const char *wait, size_t size, double *rates, long n)
{
	qsort(rates, (size_t)n, sizeof *rates, ascending);
	printf("{\"what\":\"%s\",\"wait\":\"%s\",\"cpu\":-1,\"size\":%zu,\"mbps\":%.1f}\n", what, wait, size, rates[n / 2]);
}

static inline void idle(int yield)
{
	if (yield)
		sched_yield();
}

static inline void gone(void)
{
	fprintf(stderr, "%s: the other end closed the connection\n", PROGRAM);
	exit(1);
}

/* some sends or receives once; -1 where the socket was not ready. */
static inline ssize_t some(int fd, char *b, size_t n, int out)
{
	ssize_t got = out ? send(fd, b, n, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(fd, b, n, MSG_DONTWAIT);
	if (got < 0 && errno != EAGAIN && errno != EINTR)
		die(out ? "send" : "recv");
	if (got == 0 && n > 0)
		gone();
	return got;
}

static inline void all(int fd, char *b, size_t n, int out, int yield)
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

/* unpaced has a connection that is not made yet do without BBR, which paces it: raw TCP is a draw of two speeds with that. */
static inline int unpaced(int fd)
{
	char has[16] = "";
	socklen_t len = sizeof has;
	if (fd >= 0 && !getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, has, &len) && !strncmp(has, "bbr", 3) &&
	    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4))
		die("TCP_CONGESTION");
	return fd;
}

static inline void plain(int fd)
{
	int on = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
		die("TCP_NODELAY");
}

static inline struct sockaddr_in address(const char *s, long port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	if (inet_pton(AF_INET, s, &a.sin_addr) != 1)
		usage();
	return a;
}

/* listening prints its port. */
static inline int listening(const char *addr)
{
	struct sockaddr_in a = address(addr, 0);
	socklen_t len = sizeof a;
	int l = unpaced(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 2) || getsockname(l, (struct sockaddr *)&a, &len))
		die("listening");
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	alarm(patience);
	return l;
}

/* called waits until a client comes, or standard input ends: then there is none. */
static inline int called(int l)
{
	struct pollfd p[2] = {{.fd = l, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
	alarm(0); /* others may have their turns for long */
	if (poll(p, 2, -1) < 0)
		die("poll");
	return p[0].revents && !p[1].revents;
}

static inline int accepted(int l)
{
	int fd = accept(l, NULL, NULL);
	if (fd < 0)
		die("accept");
	alarm(patience); /* of each connection, as in dial */
	plain(fd);
	return fd;
}

static inline int dial(const char *addr, long port)
{
	struct sockaddr_in a = address(addr, port);
	alarm(patience);
	int fd = unpaced(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connecting");
	plain(fd);
	return fd;
}

/* doing is what a peer does of an order: of messages of a size a count, of which the answer is printed. */
typedef void doing(char **far, long size, long count);

/*
 * peer is what "vmmc bench --peer" runs: "serve PATH HOST", which prints host and port, and "send ADDRESS" or "ping ADDRESS", where an
 * order is a line of standard input. A peer may not ping.
 */
static inline void peer(int n, char **v, void (*client)(int listens), doing *sends, doing *pings)
{
	char *far[2];
	long size, count;
	if (n == 3 && !strcmp(v[0], "serve")) {
		printf("%s ", v[2]);
		for (int l = listening(v[2]); called(l);)
			client(l);
		return;
	}
	doing *does = n != 2 ? NULL : !strcmp(v[0], "send") ? sends : !strcmp(v[0], "ping") ? pings : NULL;
	if (!does || !(far[0] = strtok(v[1], " ")) || !(far[1] = strtok(NULL, " ")))
		usage();
	for (int k; (k = scanf("%ld %ld", &size, &count)) != EOF; alarm(0)) { /* that of dial is for the order */
		if (k != 2 || size < 1 || count < 1)
			usage();
		does(far, size, count);
		fflush(stdout);
	}
}
