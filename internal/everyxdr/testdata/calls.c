/*
 * A client and a server of every.x as rpcgen and libtirpc make them. Neither asks rpcbind.
 *
 * calls serve udp|tcp: prints its port and serves.
 * calls call udp|tcp PORT: has each message on standard input echoed by the server at that port and
 * writes what comes back, framed as by peer.c; and before that calls the other procedures.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "every.h"

#define MOST (1 << 20)

static char in[MOST], out[MOST];

void everyprog_1(struct svc_req *, SVCXPRT *);
void everyprog_2(struct svc_req *, SVCXPRT *);

void *everyproc_null_1_svc(struct svc_req *r) { static char c; return &c; }
void *everyproc_null_2_svc(struct svc_req *r) { static char c; return &c; }
every *everyproc_echo_1_svc(every v, struct svc_req *r) { static every e; e = v; return &e; }
blob *everyproc_blob_1_svc(blob v, struct svc_req *r) { static blob b; b = v; return &b; }
colour *everyproc_paint_1_svc(colour v, struct svc_req *r) { return NULL; }
node_ptr *everyproc_list_1_svc(node_ptr v, struct svc_req *r) { static node_ptr l; l = v; return &l; }
int *everyproc_length_1_svc(char *s, struct svc_req *r) { static int n; n = strlen(s); return &n; }
quad_t *everyproc_add_2_svc(int a, quad_t b, struct svc_req *r) { static quad_t n; n = a + b; return &n; }
point *everyproc_move_2_svc(point p, int by, name_t n, struct svc_req *r) {
	static point q;
	q.x = p.x + by;
	q.y = p.y - by;
	return &q;
}
void *everyproc_put_2_svc(u_int at, blob b, struct svc_req *r) { static char c; return &c; }

static int serve(int udp) {
	SVCXPRT *x = udp ? svcudp_create(RPC_ANYSOCK) : svctcp_create(RPC_ANYSOCK, 0, 0);
	if (!x || !svc_register(x, EVERYPROG, EVERYVERS, everyprog_1, 0) ||
	    !svc_register(x, EVERYPROG, EVERYVERS_MANY, everyprog_2, 0))
		return 1;
	printf("%d\n", x->xp_port);
	fflush(stdout);
	svc_run();
	return 1;
}

static CLIENT *dial(int udp, int port, int version) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timeval wait = {5, 0};
	int s = RPC_ANYSOCK;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CLIENT *c = udp ? clntudp_create(&a, EVERYPROG, version, wait, &s) : clnttcp_create(&a, EVERYPROG, version, &s, 0, 0);
	if (!c) {
		clnt_pcreateerror("calls");
		exit(1);
	}
	c->cl_auth = authunix_create_default();
	return c;
}

/* What the RFC says that a server says of a version, and of a procedure, that it has not. */
static int refused(int udp, int port) {
	struct timeval wait = {5, 0};
	struct rpc_err e;
	CLIENT *c = dial(udp, port, 7);
	enum clnt_stat s = clnt_call(c, 0, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, wait);
	clnt_geterr(c, &e);
	if (s != RPC_PROGVERSMISMATCH || e.re_vers.low != 1 || e.re_vers.high != 2) return 0;
	clnt_destroy(c);
	c = dial(udp, port, 1);
	if (clnt_call(c, 77, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, wait) != RPC_PROCUNAVAIL) return 0;
	if (clnt_call(c, EVERYPROC_ECHO, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, wait) != RPC_CANTDECODEARGS) return 0;
	clnt_destroy(c);
	return 1;
}

static int call(int udp, int port) {
	unsigned char head[4];
	CLIENT *one = dial(udp, port, EVERYVERS), *two = dial(udp, port, EVERYVERS_MANY);
	int *length = everyproc_length_1("hello", one);
	quad_t *sum = everyproc_add_2(-1, (quad_t)1 << 40, two);
	if (!everyproc_null_1(one) || !length || *length != 5 || !sum || *sum != ((quad_t)1 << 40) - 1) {
		clnt_perror(one, "calls: the simple ones");
		return 1;
	}
	if (!refused(udp, port)) {
		fprintf(stderr, "calls: what should be refused is not\n");
		return 1;
	}
	while (fread(head, 4, 1, stdin) == 1) {
		unsigned n = head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3];
		every v, *back;
		XDR x;
		if (n > MOST || fread(in, 1, n, stdin) != n) return 1;
		memset(&v, 0, sizeof v);
		xdrmem_create(&x, in, n, XDR_DECODE);
		if (!xdr_every(&x, &v)) return 1;
		if (!(back = everyproc_echo_1(v, one))) {
			clnt_perror(one, "calls: echo");
			return 1;
		}
		xdrmem_create(&x, out, MOST, XDR_ENCODE);
		if (!xdr_every(&x, back)) return 1;
		n = xdr_getpos(&x);
		unsigned char answer[4] = {n >> 24, n >> 16, n >> 8, n};
		fwrite(answer, 4, 1, stdout);
		fwrite(out, n, 1, stdout);
		xdr_free((xdrproc_t)xdr_every, &v);
	}
	return 0;
}

int main(int argc, char **argv) {
	if (argc == 3 && !strcmp(argv[1], "serve")) return serve(!strcmp(argv[2], "udp"));
	if (argc == 4 && !strcmp(argv[1], "call")) return call(!strcmp(argv[2], "udp"), atoi(argv[3]));
	return 2;
}
