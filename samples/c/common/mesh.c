/*
 * Joins the ranks by buffers: each rank has one for each other rank. A buffer has places for
 * messages, and the sender waits for a free one. The content of a message follows from the seed,
 * its sender, its receiver and its number, and is checked word by word.
 */
#include <stdlib.h>

#include "sample.h"

/* A buffer begins with words of their own, a cache line each; the places follow. */
enum {
    LINE = 16,
    FREED = 0 * LINE,   /* how many of the owner's messages to the other were read there */
    PASSED = 1 * LINE,  /* the barrier that the other has come to */
    ARRIVED = 2 * LINE, /* how many of the owner's messages have arrived there */
    HEADER = 3 * LINE,
    FIRST_ID = 16 /* the id of the buffer for rank 0 */
};

struct mesh mesh;

static uint64_t key(int from, int to)
{
    return mix(mix(run.flags->seed ^ (uint64_t)from << 32) ^ (uint64_t)to);
}

/* What the last words of the messages are counted from. */
static uint32 base(uint64_t k)
{
    return (uint32)(k >> 32);
}

static uint32 content(uint64_t k, uint32 number, uint32 i, uint32 words)
{
    uint64_t x;

    if (i == words - 1) /* differs from that of the message before it at the same place */
        return base(k) + number + 1;
    x = (mix(k + number) + (uint64_t)i * WORD) * 0x9e3779b97f4a7c15u;
    return (uint32)(x >> 32) ^ (uint32)x;
}

void mesh_fill_for(int from, int to, uint32 number, int32 *message, uint32 words)
{
    uint64_t k = key(from, to);
    uint32 i;

    for (i = 0; i < words; i++)
        message[i] = (int32)content(k, number, i, words);
}

void mesh_fill(int to, uint32 number, int32 *message, uint32 words)
{
    mesh_fill_for(run.rank, to, number, message, words);
}

void mesh_check(int from, uint32 number, const int32 *message, uint32 words)
{
    uint64_t k = key(from, run.rank);
    uint32 i;

    for (i = 0; i < words; i++) {
        uint32 want = content(k, number, i, words);
        if ((uint32)message[i] != want)
            fail("message %lu from %s: word %lu of %lu is %#lx, sent was %#lx",
                 (unsigned long)number, name_of_rank(from), (unsigned long)i, (unsigned long)words,
                 (unsigned long)(uint32)message[i], (unsigned long)want);
    }
    mesh.checked.messages++;
    mesh.checked.words += words;
}

/* The room for a message: whole cache lines. */
static uint32 stride_of(uint32 words)
{
    return (words + LINE - 1) / LINE * LINE;
}

/* How many messages fit into memory of a moderate size: at least two for each pair. */
uint32 places_for(uint32 words, int pairs, uint32 limit)
{
    uint64_t all = (uint64_t)stride_of(words) * WORD * (uint64_t)(pairs < 1 ? 1 : pairs);
    uint64_t n = (16u << 20) / all;

    if (n > limit)
        n = limit;
    return n < 2 ? 2 : (uint32)n;
}

size_t room_for(uint32 words, uint32 places)
{
    return (size_t)stride_of(words) * places;
}

/* Joins all ranks. Each pair has that many words of memory for messages, which mesh_lay divides. */
void mesh_open(size_t room)
{
    int r;

    mesh.nranks = run.nranks;
    for (r = 0; r < run.nranks; r++) {
        struct pair *p = &mesh.pairs[r];
        vmmc_exphandle_t handle;
        if (r == run.rank)
            continue;
        p->mem = exportable(HEADER + room, "for messages");
        p->last = base(key(r, run.rank));
        check(vmmc_ExportRecvBuf(p->mem, (uint32)(HEADER + room), FIRST_ID + (uint32)r, NULL,
                                 BUF_READWRITE, 0, &handle),
              "export the buffer for %s", name_of_rank(r));
    }
    for (r = 0; r < run.nranks; r++) {
        struct pair *p = &mesh.pairs[r];
        vmmc_imphandle_t handle;
        uint32 words;
        if (r == run.rank)
            continue;
        import_buffer(run.ranks[r], FIRST_ID + (uint32)run.rank, &handle, &p->remote, &words);
        if (words != HEADER + room)
            fail("the buffer of %s has %lu words, this rank expected %lu", name_of_rank(r),
                 (unsigned long)words, (unsigned long)(HEADER + room));
    }
}

static void pair_put(struct pair *p, uint32 offset, uint32 v)
{
    int32 word = (int32)v;

    check(vmmc_SendData(&word, p->remote + offset, 1), "send a word to %s",
          name_of_rank((int)(p - mesh.pairs)));
}

/* Returns when all ranks have called it as often. In round k a rank tells the one 2^k after it. */
void mesh_barrier(void)
{
    int d;

    mesh.epoch++;
    for (d = 1; d < mesh.nranks; d *= 2) {
        struct pair *from = &mesh.pairs[(run.rank - d + mesh.nranks) % mesh.nranks];
        uint32 v;
        pair_put(&mesh.pairs[(run.rank + d) % mesh.nranks], PASSED, mesh.epoch);
        /* It may be one barrier ahead already. */
        while ((int32)((v = load_word(from->mem + PASSED)) - mesh.epoch) < 0)
            await_word(from->mem + PASSED, v);
    }
}

static int32 *last_word_of(struct pair *p, uint32 place)
{
    return p->mem + HEADER + (place + 1) * p->stride - 1;
}

/* Divides the memory of all pairs anew, when nothing is under way. */
void mesh_lay(uint32 words, uint32 places)
{
    uint32 i;
    int r;

    mesh_barrier();
    for (r = 0; r < mesh.nranks; r++) {
        struct pair *p = &mesh.pairs[r];
        if (r == run.rank)
            continue;
        while (p->unused < p->places)
            pair_await_free(p);
        p->stride = stride_of(words);
        p->places = p->unused = places;
        p->send_to = p->receive_at = 0;
        p->seen = realloc(p->seen, places * sizeof *p->seen);
        if (p->seen == NULL)
            fail("no memory for %lu places", (unsigned long)places);
        for (i = 0; i < places; i++) {
            store_word(last_word_of(p, i), p->last); /* all messages to come end differently */
            p->seen[i] = p->last;
        }
    }
    mesh_barrier();
}

void pair_await_free(struct pair *p)
{
    uint32 n = await_word(p->mem + FREED, p->read);

    p->unused += n - p->read;
    p->read = n;
}

/* Sends a message when there is a place. It lies at the place's end, whatever its size. */
void pair_send(struct pair *p, int32 *message, uint32 words)
{
    look_now_and_then();
    while (p->unused == 0)
        pair_await_free(p);
    check(vmmc_SendData(message, p->remote + HEADER + (p->send_to + 1) * p->stride - words, words),
          "send %lu words to %s", (unsigned long)words, name_of_rank((int)(p - mesh.pairs)));
    p->unused--;
    p->sent++;
    p->send_to = (p->send_to + 1) % p->places;
}

/* The end of a place, where a message of as many words lies, is place + stride - words. */
int32 *pair_own(struct pair *p, uint32 place)
{
    return p->mem + HEADER + place * p->stride;
}

int32 *pair_receive(struct pair *p)
{
    uint32 i = p->receive_at, v;

    look_now_and_then();
    v = await_word(last_word_of(p, i), p->seen[i]);
    p->seen[i] = p->last = v;
    p->received++;
    p->receive_at = (i + 1) % p->places;
    return pair_own(p, i);
}

/* The place of the message that was received some messages ago, 0 being the last one. */
int32 *pair_received(struct pair *p, uint32 ago)
{
    return pair_own(p, (p->receive_at + 2 * p->places - 1 - ago) % p->places);
}

void pair_fetch(struct pair *p, uint32 place, int32 *to, uint32 words)
{
    look_now_and_then();
    check(vmmc_GetData(to, p->remote + HEADER + (place + 1) * p->stride - words, words),
          "get %lu words from %s", (unsigned long)words, name_of_rank((int)(p - mesh.pairs)));
}

/* Tells the other that the places of all that was received may be used again. */
void pair_free(struct pair *p)
{
    pair_put(p, FREED, p->received);
}

void pair_confirm(struct pair *p)
{
    pair_put(p, ARRIVED, p->received);
}

void pair_await_confirm(struct pair *p)
{
    uint32 n;

    while ((n = load_word(p->mem + ARRIVED)) != p->sent)
        await_word(p->mem + ARRIVED, n);
}
