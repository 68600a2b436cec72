/*
 * Starts the processes of a run and ends them. A shell starts one, the master. It spawns the
 * others, sends all of them the table of ranks, and watches them. The others watch their master,
 * so that none outlives the run. The buffers and what lies in them are those of the samples in Go.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sample.h"
#ifdef USE_VMMCX
#include <vmmcx.h>
#endif

/* The buffers of a run. */
enum {
    FAILURE_BUFFER = 1, /* at the master: an area for each rank */
    CONTROL_BUFFER = 2, /* at the others: the table of ranks, and the word of dismissal */
    RESULT_BUFFER = 3   /* at the others, when they have a result */
};

/* The room for the table of ranks, and for what a member that fails can say, in words. */
enum { TABLE_WORDS = 1 << 14, FAILURE_WORDS = 1 << 8 };

struct run run;

volatile int dismissed, result_given;
char told_failure[1100]; /* its first byte is set last */

static struct member {
    struct rank process;
    int32 *control; /* NULL until it is imported */
    int gone;
} members[MAX_NODES];
static int nmembers;

static struct rank parent;
static int32 *parents_failures; /* where a failure is told; NULL without a parent */
static int area;                /* this process's rank in its parent's run, 0 until it is known */
static int32 *failures, *control;
static int quitting, failing;
static double pinged;

const char *name_of_process(struct rank r)
{
    static char out[2][300];
    static int next;
    char *node = vmmc_NodeToName(r.node);

    next = !next;
    return format_text(out[next], sizeof out[next], "process %lu on node \"%s\"",
                       (unsigned long)r.pid, node == NULL ? "" : node);
}

const char *name_of_rank(int rank)
{
    static char out[320];

    return format_text(out, sizeof out, "rank %d (%s)", rank, name_of_process(run.ranks[rank]));
}

/* The length of a note of n bytes of text in words: the text, padded, and its length. */
static uint32 note_words(size_t n)
{
    return (uint32)((n + WORD - 1) / WORD + 1);
}

/* Makes a note. It lies at the end of its area: its last word, which is stored last, is known. */
static uint32 seal(const char *text, size_t n, int32 *to)
{
    uint32 words = note_words(n);

    memset(to, 0, words * WORD);
    memcpy(to, text, n);
    to[words - 1] = (int32)n;
    return words;
}

/* Takes the text of the note at the end of an area. */
static void unseal(const int32 *area_begin, uint32 area_words, struct text *text)
{
    uint32 n = (uint32)area_begin[area_words - 1];

    if (n > (area_words - 1) * WORD)
        fail("a text of %lu bytes was announced in %lu bytes of memory", (unsigned long)n,
             (unsigned long)(area_words - 1) * WORD);
    put(text, "%.*s", (int)n, (const char *)(area_begin + area_words - note_words(n)));
}

/* Ends the run if a call has failed. */
void check(vmmc_result_t res, const char *format, ...)
{
    char what[400];
    const char *why = vmmc_ErrorStr(res);
    va_list ap;

    if (res == vmmc_Success)
        return;
#ifdef USE_VMMCX
    why = vmmcx_last_error();
#endif
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    fail("%s: %s", what, why);
}

/* Memory for an export, on pages of its own where the library can give that. */
int32 *exportable(size_t nwords, const char *purpose)
{
    void *mem;

#ifdef USE_VMMCX
    mem = vmmcx_alloc(nwords * WORD);
#else
    mem = calloc(nwords, WORD);
#endif
    if (mem == NULL)
        fail("no memory of %lu bytes %s", (unsigned long)(nwords * WORD), purpose);
    return mem;
}

/* An import without the library's own wait, so that the run is looked after meanwhile. */
void import_buffer(struct rank from, uint32 id, vmmc_imphandle_t *handle, int32 **proxy,
                   uint32 *nwords)
{
    struct waiting w = {0, 0, 0};
    vmmc_result_t res = vmmc_ImportRecvBufAsync(from.node, from.pid, id, handle);

    while (res == vmmc_Success || res == vmmcErr_InProgress) {
        res = vmmc_ImportRecvBufStatus(handle, proxy, nwords);
        if (res == vmmc_Success)
            return;
        wait_a_round(&w);
    }
    check(res, "import buffer %lu of %s", (unsigned long)id, name_of_process(from));
}

void join_node(const struct flags *f)
{
    vmmc_node_t *hosts;
    uint32 n;

    run.flags = f;
    set_deadline(f->timeout);
    check(vmmc_SessionHosts(&n, &hosts), "the nodes of the session");
}

/* Runs when a member has said why it fails. */
static void on_failure(int32 *last, int32 value)
{
    long rank = (last - failures) / FAILURE_WORDS;
    uint32 n = (uint32)value;
    int32 *begin = failures + (rank + 1) * FAILURE_WORDS - note_words(n);
    int length = 0;

    if (quitting || told_failure[0] != '\0' || n > (FAILURE_WORDS - 1) * WORD)
        return;
    if (rank == 0)
        length = snprintf(told_failure + 1, sizeof told_failure - 1,
                          "a spawned process, before it had a rank: ");
    else
        length = snprintf(told_failure + 1, sizeof told_failure - 1, "rank %ld: ", rank);
    snprintf(told_failure + 1 + length, sizeof told_failure - 1 - (size_t)length, "%.*s", (int)n,
             (const char *)begin);
    __atomic_store_n(&told_failure[0], 1, __ATOMIC_RELEASE);
}

/* Runs when the parent says that the run is over. */
static void on_control(int32 *last, int32 value)
{
    (void)value;
    if (last == control + TABLE_WORDS)
        __atomic_store_n(&dismissed, 1, __ATOMIC_RELEASE);
}

/* The node of the n-th process: those of the session from this process's own on, and again. */
static vmmc_node_t choose(const vmmc_node_t *hosts, uint32 nhosts, int n)
{
    uint32 at;

    if (n == 0 || nhosts == 0)
        return vmmc_MyNode();
    for (at = 0; at < nhosts; at++)
        if (vmmc_EqualNodes(hosts[at], vmmc_MyNode()))
            break;
    if (at == nhosts) /* this node is none of them: the second process has the first one */
        at = nhosts - 1;
    return hosts[(at + (uint32)n) % nhosts];
}

/* The words of the table of ranks. */
static void tell_ranks(void)
{
    static int32 note[TABLE_WORDS];
    struct text t = {NULL, 0, 0};
    uint32 words;
    int i;

    put(&t, "[");
    for (i = 0; i < run.nranks; i++) {
        put(&t, i == 0 ? "" : ",");
        put_process(&t, run.ranks[i]);
    }
    put(&t, "]");
    if (note_words(t.length) > TABLE_WORDS)
        fail("the table of %d ranks has %lu bytes", run.nranks, (unsigned long)t.length);
    words = seal(t.bytes, t.length, note);
    for (i = 0; i < nmembers; i++)
        check(vmmc_SendData(note, members[i].control + TABLE_WORDS - words, words),
              "tell rank %d the ranks", i + 1);
    free(t.bytes);
}

/* Makes this process the master of n: it runs this program again on other nodes, with args. */
void lead(int n, char **args)
{
    static char self[4096];
    char *peer = getenv("SAMPLE_PEER"), *argv[16];
    char timeout[64], seed[64];
    vmmc_exphandle_t handle;
    vmmc_imphandle_t import;
    vmmc_node_t *hosts;
    uint32 nhosts, words;
    ssize_t length;
    int i, k = 0;

    check(vmmc_SessionHosts(&nhosts, &hosts), "the nodes of the session");
    words = (uint32)(n < 2 ? 2 : n) * FAILURE_WORDS;
    failures = exportable(words, "for the failures of members");
    check(vmmc_ExportRecvBuf(failures, words, FAILURE_BUFFER, on_failure, BUF_WRITE_ONLY, 0,
                             &handle),
          "export the memory for failures");
    length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        fail("find this program to spawn it");
    if (peer != NULL && *peer != '\0') /* another program that speaks the same: the one in Go */
        snprintf(self, sizeof self, "%s", peer);
    argv[k++] = self;
    argv[k++] = (char *)"--peer";
    argv[k++] = format_text(timeout, sizeof timeout, "--timeout=%s", run.flags->timeout_text);
    if (run.flags->seeded)
        argv[k++] = format_text(seed, sizeof seed, "--seed=%llu",
                                (unsigned long long)run.flags->seed);
    for (i = 0; args[i] != NULL; i++)
        argv[k++] = args[i];
    argv[k] = NULL;
    run.nranks = n;
    run.rank = 0;
    run.ranks[0].node = vmmc_MyNode();
    run.ranks[0].pid = vmmc_MyPid();
    for (i = 1; i < n; i++) {
        run.ranks[i].node = choose(hosts, nhosts, i);
        check(vmmc_Spawn(self, argv, run.ranks[i].node, &run.ranks[i].pid), "spawn %s", self);
        members[nmembers++].process = run.ranks[i];
        look_after_run();
    }
    for (i = 0; i < nmembers; i++) {
        int32 *at;
        import_buffer(members[i].process, CONTROL_BUFFER, &import, &at, &words);
        if (words < TABLE_WORDS + 1)
            fail("the buffer of rank %d has %lu words", i + 1, (unsigned long)words);
        members[i].control = at;
    }
    tell_ranks();
}

/* Makes this process a member of its parent's run, and waits for the table of ranks. */
void follow(void)
{
    vmmc_imphandle_t import;
    vmmc_exphandle_t handle;
    struct text t = {NULL, 0, 0};
    const char *at;
    char node[256];
    double pid;
    int32 *proxy;
    uint32 words;

    check(vmmc_Parent(&parent.node, &parent.pid), "find the parent");
    import_buffer(parent, FAILURE_BUFFER, &import, &proxy, &words);
    parents_failures = proxy;
    control = exportable(TABLE_WORDS + 1, "for the table of ranks");
    check(vmmc_ExportRecvBuf(control, TABLE_WORDS + 1, CONTROL_BUFFER, on_control, BUF_READWRITE,
                             0, &handle),
          "export the memory for the table of ranks");
    await_word(control + TABLE_WORDS - 1, 0);
    unseal(control, TABLE_WORDS, &t);
    run.rank = 0;
    for (at = t.bytes; (at = find_string(at, "Node", node, sizeof node)) != NULL; run.nranks++) {
        if (run.nranks == MAX_NODES || (at = find_number(at, "PID", &pid)) == NULL)
            fail("the table of ranks is not understood: %s", t.bytes);
        run.ranks[run.nranks].node = vmmc_NameToNode(node);
        run.ranks[run.nranks].pid = (vmmc_pid_t)pid;
        if (run.ranks[run.nranks].pid == vmmc_MyPid())
            run.rank = run.nranks;
    }
    if (run.rank < 1)
        fail("process %lu is not in the table of ranks %s", (unsigned long)vmmc_MyPid(), t.bytes);
    area = run.rank;
    free(t.bytes);
}

/* Ends the run if a process that this one depends on has ended: a send to it fails then. */
void ping_members(void)
{
    int32 word = 0;
    int i;

    if (failing || seconds() - pinged < 0.1)
        return;
    pinged = seconds();
    if (parents_failures != NULL &&
        vmmc_SendData(&word, parents_failures + area * FAILURE_WORDS, 1) != vmmc_Success) {
        parents_failures = NULL;
        fail("the process that spawned this one has ended");
    }
    for (i = 0; i < nmembers; i++) {
        vmmc_result_t res;
        if (members[i].control == NULL || run.nranks == 0)
            continue;
        res = vmmc_SendData(&word, members[i].control, 1);
        if (res != vmmc_Success)
            fail("%s has ended before the run did: %s", name_of_rank(i + 1), vmmc_ErrorStr(res));
    }
}

/* Tells the members of this one's run to end, and waits until they have. */
void dismiss(void)
{
    double until = seconds() + 5;
    int32 word = 1;
    int i, left = nmembers;

    if (quitting)
        return;
    quitting = 1;
    for (i = 0; i < nmembers; i++) {
        members[i].gone = members[i].control == NULL; /* it ends when it finds this process gone */
        if (!members[i].gone)
            (void)vmmc_SendDataNotify(&word, members[i].control + TABLE_WORDS, 1);
    }
    while (left > 0) {
        for (left = 0, i = 0; i < nmembers; i++) {
            word = 0;
            if (!members[i].gone && vmmc_SendData(&word, members[i].control, 1) != vmmc_Success)
                members[i].gone = 1;
            left += !members[i].gone;
        }
        if (left > 0 && seconds() > until)
            fail("%d of the spawned processes do not end", left);
        if (left > 0)
            usleep(1000);
    }
    nmembers = 0;
}

/* Ends this process when its parent has dismissed it. */
void end(void)
{
    dismiss();
    exit(result_given ? 0 : 1);
}

/* Gives a peer that has failed the time to say why: its end shows first. */
static void await_reason(void)
{
    double until = seconds() + 0.3;

    while (seconds() < until) {
        if (__atomic_load_n(&told_failure[0], __ATOMIC_ACQUIRE) != '\0' ||
            __atomic_load_n(&dismissed, __ATOMIC_ACQUIRE))
            return;
        usleep(1000);
    }
}

/* Tells the parent why this process fails. A request that has completed has arrived. */
static void tell_parent(const char *why)
{
    static int32 note[FAILURE_WORDS];
    uint32 words = seal(why, strlen(why), note);
    double until = seconds() + 2;
    vmmc_async_handle_t request;

    if (vmmc_SendDataAsyncNotify(note, parents_failures + (area + 1) * FAILURE_WORDS - words,
                                 words, &request) != vmmc_Success)
        return;
    while (vmmc_AsyncStatus(&request) == vmmcErr_InProgress && seconds() < until)
        usleep(1000);
}

void fail(const char *format, ...)
{
    char why[(FAILURE_WORDS - 2) * WORD];
    va_list ap;

    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    if (failing++)
        exit(1);
    if (nmembers > 0 || parents_failures != NULL)
        await_reason();
    if (dismissed)
        end();
    if (told_failure[0] != '\0')
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, told_failure + 1);
    if (parents_failures != NULL) {
        tell_parent(why);
    } else if (!run.flags->peer) {
        fflush(stdout);
        fprintf(stderr, "%s: %s\n", run.flags->program, why);
    }
    dismiss();
    exit(1);
}

/* Takes the result of a rank. */
void gather(int rank, struct text *result)
{
    vmmc_imphandle_t handle;
    int32 *proxy, *copy;
    uint32 words;

    import_buffer(run.ranks[rank], RESULT_BUFFER, &handle, &proxy, &words);
    copy = malloc(words * (size_t)WORD);
    if (copy == NULL)
        fail("no memory for the result of %s", name_of_rank(rank));
    check(vmmc_GetData(copy, proxy, words), "get the result of %s", name_of_rank(rank));
    unseal(copy, words, result);
    free(copy);
    check(vmmc_UnimportRecvBuf(handle), "let the result of %s go", name_of_rank(rank));
}

/* Gives the master this process's result, and ends when the master dismisses it. */
void report(const struct text *result)
{
    vmmc_exphandle_t handle;
    uint32 words = note_words(result->length);
    int32 *mem = exportable(words, "for the result");
    struct waiting w = {0, 0, 0};

    seal(result->bytes, result->length, mem);
    result_given = 1;
    check(vmmc_ExportRecvBuf(mem, words, RESULT_BUFFER, NULL, BUF_READ_ONLY, 0, &handle),
          "export the result");
    for (;;)
        wait_a_round(&w);
}
