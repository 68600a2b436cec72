#include "sample.h"

/*
 * The generator PCG of 128 bits with the output function DXSM. The samples in Go draw from the same
 * generator, so that a seed means the same route in both.
 */
__extension__ typedef unsigned __int128 wide;

static wide join(uint64_t high, uint64_t low)
{
    return (wide)high << 64 | low;
}

struct random seeded(uint64_t a, uint64_t b)
{
    struct random r = {a, b};

    return r;
}

static uint64_t next(struct random *r)
{
    wide state = join(r->high, r->low) * join(0x2360ed051fc65da4u, 0x4385df649fccf645u) +
                 join(0x5851f42d4c957f2du, 0x14057b7ef767814fu);
    uint64_t x;

    r->high = (uint64_t)(state >> 64);
    r->low = (uint64_t)state;
    x = r->high;
    x ^= x >> 32;
    x *= 0xda942042e4dd58b5u;
    x ^= x >> 48;
    return x * (r->low | 1);
}

/* A number from 0 to below-1, each as likely as the others: the high half of a product. */
uint64_t draw(struct random *r, uint64_t below)
{
    wide product;

    if ((below & (below - 1)) == 0)
        return next(r) & (below - 1);
    product = (wide)next(r) * below;
    if ((uint64_t)product < below) {
        uint64_t least = -below % below;
        while ((uint64_t)product < least)
            product = (wide)next(r) * below;
    }
    return (uint64_t)(product >> 64);
}

/* The numbers from 0 to n-1 in random order. */
void permute(struct random *r, int *order, int n)
{
    int i;

    for (i = 0; i < n; i++)
        order[i] = i;
    for (i = n - 1; i > 0; i--) {
        int j = (int)draw(r, (uint64_t)i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* The finalizer of splitmix64. */
uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
