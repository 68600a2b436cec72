/*
 * The C side of the tests: what rpcgen and libtirpc make of every.x. Messages on standard input and
 * output have their length before them, four bytes, the first the most significant.
 *
 * peer echo: decodes each message, encodes it again, answers; with length 0xffffffff if it cannot.
 * peer make SEED COUNT: encodes so many values at random.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "every.h"

#define MOST (1 << 20)

static char in[MOST], out[MOST];

static unsigned long long state;

static unsigned next(void) {
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 33;
}

static unsigned below(unsigned n) { return next() % n; }

static quad_t wide(void) { return ((quad_t)next() << 40) ^ ((quad_t)next() << 20) ^ next(); }

static void *some(size_t n, size_t size) { return calloc(n + 1, size); }

static char *word(unsigned most) {
	unsigned n = below(most + 1);
	char *s = some(n, 1);
	for (unsigned i = 0; i < n; i++) s[i] = 'a' + below(26);
	return s;
}

static void bytes(char *b, unsigned n) {
	for (unsigned i = 0; i < n; i++) b[i] = next();
}

/* A variable array of bytes, or of others that one() makes. */
#define BYTES(s, most) ((s##_len) = below((most) + 1), (s##_val) = some((s##_len), 1), bytes((s##_val), (s##_len)))
#define FILL(len, val, most, each) do { \
	(len) = below((most) + 1); (val) = some((len), sizeof *(val)); \
	for (unsigned i = 0; i < (len); i++) { each; } \
} while (0)

static colour tint(void) {
	static const colour all[] = {RED, GREEN, BLUE, BELOW};
	return all[below(4)];
}

static point spot(void) { return (point){next(), -(int)next()}; }

static void fill_blob(blob *b) {
	b->blob_len = below(101);
	b->blob_val = some(b->blob_len, 1);
	bytes(b->blob_val, b->blob_len);
}

static void fill_counts(counts *c) { FILL(c->counts_len, c->counts_val, 8, c->counts_val[i] = wide()); }

static void fill_names(names *n) { FILL(n->names_len, n->names_val, 5, n->names_val[i] = word(MAXNAME)); }

static node_ptr row(void) {
	node_ptr l = NULL;
	for (unsigned n = below(5); n > 0; n--) {
		node_ptr e = some(1, sizeof *e);
		e->value = next();
		e->next = l;
		l = e;
	}
	return l;
}

static void grow(tree *t, int depth) {
	t->label = word(MAXNAME);
	FILL(t->children.children_len, t->children.children_val, depth, grow(&t->children.children_val[i], depth - 1));
}

static void form(shape *s) {
	switch (s->kind = tint()) {
	case RED: s->shape_u.centre = spot(); break;
	case GREEN: case BLUE: s->shape_u.title = word(MAXNAME); break;
	default: break;
	}
}

static void make(every *v) {
	scalars *o = &v->one;
	memset(v, 0, sizeof *v);
	o->c = next(); o->uc = next(); o->s = next(); o->us = next(); o->i = next(); o->u = next(); o->ui = next();
	o->l = (int)next(); o->ul = next() * 2; o->h = wide(); o->uh = wide();
	o->f = next() / 1024.0f; o->d = next() / 1e300; o->b = below(2); o->col = tint(); o->coat = tint();
	o->len = next(); o->cu = next(); o->u32 = next() * 2; o->i64 = -wide();
	bytes(v->sum, 7);
	bytes(v->fixed, 5);
	BYTES(v->var.var, 10);
	v->text = word(200);
	fill_blob(&v->data);
	for (int i = 0; i < 3; i++) v->v[i] = next();
	for (int i = 0; i < 4; i++) v->ints[i] = next();
	FILL(v->few.few_len, v->few.few_val, 6, v->few.few_val[i] = next());
	FILL(v->points.points_len, v->points.points_val, 4, v->points.points_val[i] = spot());
	v->pair[0] = spot(); v->pair[1] = spot();
	if (below(2)) { v->perhaps = some(1, sizeof *v->perhaps); *v->perhaps = spot(); }
	if (below(2)) { v->number = some(1, sizeof *v->number); *v->number = next(); }
	v->list = row();
	for (unsigned n = below(4); n > 0; n--) {
		struct chain *c = some(1, sizeof *c);
		c->value = next();
		c->next = v->links;
		v->links = c;
	}
	grow(&v->forest, 3);
	FILL(v->shapes.shapes_len, v->shapes.shapes_val, 6, form(&v->shapes.shapes_val[i]));
	if ((v->m.there = below(2))) v->m.maybe_u.value = wide();
	switch (below(4)) {
	case 0: v->n.n = 1; v->n.numbered_u.data.data_len = 3; v->n.numbered_u.data.data_val = strdup("abc"); break;
	case 1: v->n.n = -1; v->n.numbered_u.ratio = next() / 7.0; break;
	case 2: v->n.n = MODE; break;
	default: v->n.n = 1000 + next() % 1000; fill_names(&v->n.numbered_u.all);
	}
	if ((v->c.n = below(3))) fill_counts(&v->c.counted_u.all);
	fill_counts(&v->many);
	fill_names(&v->all);
	FILL(v->colours.colours_len, v->colours.colours_val, 5, v->colours.colours_val[i] = tint());
	for (int i = 0; i < 3; i++) v->bools[i] = below(2);
	v->two[0] = word(MAXNAME); v->two[1] = word(MAXNAME);
	FILL(v->floats.floats_len, v->floats.floats_val, 5, v->floats.floats_val[i] = next() / 3.0f);
	FILL(v->heads.heads_len, v->heads.heads_val, 3, v->heads.heads_val[i] = row());
	v->type = next(); v->func = next(); v->EncodeXDR = next(); v->a_b = next(); v->aB = next();
}

static void put(unsigned n) {
	unsigned char head[4] = {n >> 24, n >> 16, n >> 8, n};
	fwrite(head, 4, 1, stdout);
	if (n != 0xffffffff) fwrite(out, n, 1, stdout);
}

static int answer(every *v) {
	XDR x;
	xdrmem_create(&x, out, MOST, XDR_ENCODE);
	if (!xdr_every(&x, v)) return 0;
	put(xdr_getpos(&x));
	return 1;
}

int main(int argc, char **argv) {
	every v;
	if (argc == 4 && !strcmp(argv[1], "make")) {
		state = strtoull(argv[2], NULL, 10);
		for (int n = atoi(argv[3]); n > 0; n--) {
			make(&v);
			if (!answer(&v)) return 1;
		}
		return fflush(stdout) != 0;
	}
	unsigned char head[4];
	while (fread(head, 4, 1, stdin) == 1) {
		unsigned n = (unsigned)head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3];
		if (n > MOST || (n > 0 && fread(in, n, 1, stdin) != 1)) return 1;
		XDR x;
		memset(&v, 0, sizeof v);
		xdrmem_create(&x, in, n, XDR_DECODE);
		if (!xdr_every(&x, &v) || xdr_getpos(&x) != n || !answer(&v)) put(0xffffffff);
		xdr_free((xdrproc_t)xdr_every, (char *)&v);
	}
	return fflush(stdout) != 0;
}
