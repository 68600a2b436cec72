/*
 * Measures messages between two ranks. A burst of messages, as many as there are places for, is
 * made before the clock starts and checked after it has stopped.
 */
#include <stdlib.h>
#include <string.h>

#include "sample.h"

enum { BURST = 4096 };

/* This rank's side. */
static struct pair *pair;
static int other;
static int32 *memory; /* what this side sends or fetches in a burst */
static uint32 first, words, n;

static int32 *message(uint32 i)
{
    return memory + (size_t)i * words;
}

static void fill(void)
{
    uint32 i;

    for (i = 0; i < n; i++)
        mesh_fill(other, first + i, message(i), words);
}

static void send_all(void)
{
    uint32 i;

    for (i = 0; i < n; i++)
        pair_send(pair, message(i), words);
}

static void receive_all(void)
{
    uint32 i;

    for (i = 0; i < n; i++)
        pair_receive(pair);
}

static void verify_all(void)
{
    uint32 i;

    for (i = 0; i < n; i++)
        mesh_check(other, first + i, pair_received(pair, n - 1 - i) + pair->stride - words, words);
    pair_free(pair);
}

static void ping_pong_move(void)
{
    uint32 i;

    for (i = 0; i < n; i++) {
        if (run.rank == 0)
            pair_send(pair, message(i), words);
        pair_receive(pair);
        if (run.rank == 1)
            pair_send(pair, message(i), words);
    }
}

static void oneway_prepare(void)
{
    if (run.rank == 0)
        fill();
}

static void oneway_move(void)
{
    if (run.rank == 0) {
        send_all();
        pair_await_confirm(pair);
        return;
    }
    receive_all();
    pair_confirm(pair);
}

static void oneway_verify(void)
{
    if (run.rank == 1)
        verify_all();
}

static void bidir_move(void)
{
    send_all();
    receive_all();
    pair_confirm(pair);
    pair_await_confirm(pair);
}

static void fetch_prepare(void)
{
    uint32 i;

    if (run.rank == 1)
        for (i = 0; i < n; i++)
            mesh_fill(other, first + i, pair_own(pair, i) + pair->stride - words, words);
}

static void fetch_move(void)
{
    uint32 i;

    if (run.rank == 0)
        for (i = 0; i < n; i++)
            pair_fetch(pair, i, message(i), words);
}

static void fetch_verify(void)
{
    uint32 i;

    if (run.rank == 0)
        for (i = 0; i < n; i++)
            mesh_check(other, first + i, message(i), words);
    mesh_barrier(); /* before it rank 1 must not change what rank 0 may be fetching */
}

const struct curve_kind ping_pong = {2, fill, ping_pong_move, verify_all};
const struct curve_kind oneway = {1, oneway_prepare, oneway_move, oneway_verify};
const struct curve_kind bidir = {2, fill, bidir_move, verify_all};
const struct curve_kind fetch = {1, fetch_prepare, fetch_move, fetch_verify};

/* Moves a burst and returns the time that took. */
static double burst(const struct curve_kind *k, uint32 messages)
{
    double start, took;

    n = messages;
    k->prepare();
    mesh_barrier();
    start = seconds();
    k->move();
    took = seconds() - start;
    k->verify();
    first += n;
    return took;
}

static double measure_size(const struct curve_kind *k, long iterations, uint32 places)
{
    double took = 0;
    long left;

    mesh_lay(words, places);
    burst(k, iterations < (long)places ? (uint32)iterations : places);
    memset(&mesh.checked, 0, sizeof mesh.checked);
    for (left = iterations; left > 0; left -= n)
        took += burst(k, left < (long)places ? (uint32)left : places);
    return took;
}

static uint32 places_of(uint32 size, long iterations)
{
    uint32 p = places_for(size, 1, BURST), most = iterations < 2 ? 2 : (uint32)iterations;

    return p < most ? p : most;
}

/* Adds what the other rank has checked to the points. */
static void add_checked(struct point *points, int npoints)
{
    struct text t = {NULL, 0, 0};
    const char *at;
    double messages, checked_words;
    int i;

    gather(1, &t);
    for (at = t.bytes, i = 0; i < npoints; i++) {
        at = find_number(at, "messages", &messages);
        if (at == NULL || (at = find_number(at, "words", &checked_words)) == NULL)
            fail("the result of %s is not understood: %s", name_of_rank(1), t.bytes);
        points[i].checked.messages += (uint64_t)messages;
        points[i].checked.words += (uint64_t)checked_words;
        if (points[i].checked.messages != points[i].speed.messages)
            fail("%llu messages of %llu words were checked, %llu were sent",
                 (unsigned long long)points[i].checked.messages,
                 (unsigned long long)points[i].speed.words,
                 (unsigned long long)points[i].speed.messages);
    }
    free(t.bytes);
}

/* Measures all sizes and returns 1 in the master. The other rank does not return. */
int curve_measure(const struct curve_kind *k, const uint32 *sizes, int nsizes, long iterations,
                  struct point *points, void (*show)(const struct point *))
{
    struct text t = {NULL, 0, 0};
    size_t room = 0;
    int i;

    for (i = 0; i < nsizes; i++) {
        size_t r = room_for(sizes[i], places_of(sizes[i], iterations));
        room = r > room ? r : room;
    }
    mesh_open(room);
    other = 1 - run.rank;
    pair = &mesh.pairs[other];
    memory = malloc(room * WORD);
    if (memory == NULL)
        fail("no memory for a burst of messages");
    put(&t, "[");
    for (i = 0; i < nsizes; i++) {
        double took;
        words = sizes[i];
        took = measure_size(k, iterations, places_of(words, iterations));
        put(&t, "%s{\"messages\":%llu,\"words\":%llu}", i == 0 ? "" : ",",
            (unsigned long long)mesh.checked.messages, (unsigned long long)mesh.checked.words);
        points[i].speed = speed_of(words, (uint64_t)iterations * (uint64_t)k->ways, took);
        points[i].checked = mesh.checked;
        if (run.rank == 0)
            show(&points[i]);
    }
    put(&t, "]");
    if (run.rank != 0)
        report(&t);
    free(t.bytes);
    add_checked(points, nsizes);
    return 1;
}

/* The object of a point. */
void put_point(struct text *t, const char *program, long iterations, const struct point *p,
               const char *more)
{
    put(t, "  {\n    \"program\": \"%s\",\n    \"master\": ", program);
    put_process(t, run.ranks[0]);
    put(t, ",\n    \"peer\": ");
    put_process(t, run.ranks[1]);
    put(t, ",\n    \"seed\": %llu,\n    \"iterations\": %ld,\n",
        (unsigned long long)run.flags->seed, iterations);
    put_speed(t, &p->speed, "    ");
    put(t, "    \"checked\": {\"messages\": %llu, \"words\": %llu}%s\n  }",
        (unsigned long long)p->checked.messages, (unsigned long long)p->checked.words, more);
}
