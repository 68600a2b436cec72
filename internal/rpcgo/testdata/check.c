/*
 * Reads messages: the number of a type, a length, and so many bytes. Each must decode as C has the
 * type, and be the same bytes when it is encoded again. TYPES is a list of T(name), by the test.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>

#include "made.h"

#define T(name) {#name, (xdrproc_t)xdr_##name, sizeof(name)},

static const struct {
	const char *name;
	xdrproc_t proc;
	size_t size;
} types[] = {
#include "types.inc"
};

static char in[1 << 16], out[1 << 16];

int main(void) {
	unsigned head[2], count = 0;
	while (fread(head, sizeof head, 1, stdin) == 1) {
		unsigned i = ntohl(head[0]), n = ntohl(head[1]);
		XDR x;
		if (i >= sizeof types / sizeof *types || n > sizeof in || (n > 0 && fread(in, n, 1, stdin) != 1)) {
			printf("message %u is cut\n", count);
			return 1;
		}
		void *v = calloc(1, types[i].size);
		xdrmem_create(&x, in, n, XDR_DECODE);
		if (!types[i].proc(&x, v) || xdr_getpos(&x) != n) {
			printf("C does not decode this %s of %u bytes\n", types[i].name, n);
			return 1;
		}
		xdrmem_create(&x, out, sizeof out, XDR_ENCODE);
		if (!types[i].proc(&x, v) || xdr_getpos(&x) != n || memcmp(in, out, n)) {
			printf("C encodes this %s of %u bytes otherwise\n", types[i].name, n);
			return 1;
		}
		xdr_free(types[i].proc, v);
		free(v);
		count++;
	}
	printf("%u\n", count);
	return 0;
}
