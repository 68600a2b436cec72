#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "sample.h"

static double deadline;
static volatile sig_atomic_t interrupted;

double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void on_interrupt(int number)
{
    interrupted = number;
}

void set_deadline(double after)
{
    struct sigaction a;

    memset(&a, 0, sizeof a);
    a.sa_handler = on_interrupt;
    a.sa_flags = SA_RESTART;
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    deadline = seconds() + after;
}

/* Ends the run if there is a reason to. Handlers of notifications leave theirs in these words. */
void look_after_run(void)
{
    if (__atomic_load_n(&dismissed, __ATOMIC_ACQUIRE))
        end();
    if (__atomic_load_n(&told_failure[0], __ATOMIC_ACQUIRE) != '\0')
        fail("%s", told_failure + 1);
    if (interrupted)
        fail("%s", interrupted == SIGINT ? "interrupted" : "terminated");
    if (seconds() > deadline)
        fail("not done after %s (--timeout)", run.flags->timeout_text);
    ping_members();
}

void look_now_and_then(void)
{
    static unsigned int calls;
    static double looked;
    double now;

    if (!interrupted && ++calls % 64 != 0)
        return;
    now = seconds();
    if (!interrupted && now - looked < 0.05)
        return;
    looked = now;
    look_after_run();
}

/*
 * A waiter polls for a moment, then lets others run between its looks, and sleeps between them when
 * it has waited long.
 */
void wait_a_round(struct waiting *w)
{
    if (++w->rounds < 2000)
        return;
    if (w->rounds % 16 == 0) {
        double now = seconds();
        if (w->since == 0)
            w->since = w->looked = now;
        if (now - w->looked > 0.05) {
            look_after_run();
            w->looked = seconds();
        }
        if (now - w->since > 0.002) {
            struct timespec t = {0, 50000};
            nanosleep(&t, NULL);
            return;
        }
    }
    sched_yield();
}

/* What is loaded after this word is no older than it: a message's last word comes last. */
uint32 load_word(int32 *word)
{
    return (uint32)__atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void store_word(int32 *word, uint32 value)
{
    __atomic_store_n(word, (int32)value, __ATOMIC_RELEASE);
}

uint32 await_word(int32 *word, uint32 old)
{
    struct waiting w = {0, 0, 0};
    uint32 v;

    while ((v = load_word(word)) == old)
        wait_a_round(&w);
    return v;
}
