/*
 * messages sends messages by the calls of the SHRIMP Base Library: with and without notification,
 * to two buffers of another node. Each process checks the results of its calls.
 *
 *	VMMC_SOCKET=... VMMCHOSTS="n1 n2" ./messages
 */
#include <sbl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DATA = 1, MAILBOX = 2, WORDS = 4096, LETTERS = 16 };

static int32 data[WORDS], mailbox[LETTERS];
static int32 handled, sum;

static void check(int status, const char *what)
{
    if (status >= 0)
        return;
    SBL_Error(status, (char *)what);
    exit(1);
}

static void expect(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "messages: %s\n", what);
    exit(1);
}

/* Runs once for each letter, in their order. */
static void on_letter(int32 *letter, int32 value)
{
    expect(letter == mailbox + handled % LETTERS && value == handled + 1, "a letter is wrong");
    sum += value;
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELEASE);
}

static void await(int32 *word, int32 value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value)
        sched_yield();
}

/* The other node of the machine, or this one if there is no other. */
static vmmc_node_t other_node(void)
{
    vmmc_node_t *hosts;
    uint32 i, n;

    check(SBL_Hosts(&n, &hosts), "the nodes");
    for (i = 0; i < n; i++)
        if (!vmmc_EqualNodes(hosts[i], vmmc_MyNode()))
            return hosts[i];
    return vmmc_MyNode();
}

static void receive(void)
{
    char self[4096], *argv[] = {self, (char *)"sender", NULL};
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    vmmc_pid_t pid;
    int i;

    expect(length > 0, "cannot find this program");
    self[length] = '\0';
    check(SBL_ExportRecvBuf(DATA, data, WORDS, NULL), "export the data");
    check(SBL_ExportRecvBuf(MAILBOX, mailbox, LETTERS, on_letter), "export the mailbox");
    expect(SBL_ExportRecvBuf(DATA, mailbox, 1, NULL) < 0, "an id was given twice");
    SBL_BlockNotifications();
    SBL_BlockNotifications();
    check(vmmc_Spawn(self, argv, other_node(), &pid), "start the sender");
    await(mailbox + LETTERS - 1, LETTERS); /* all letters are there, and none was handled */
    expect(__atomic_load_n(&handled, __ATOMIC_ACQUIRE) == 0, "a blocked handler has run");
    expect(SBL_UnblockNotifications() == 0, "one level of two is left, and notifications run");
    expect(SBL_UnblockNotifications() > 0, "no level is left, and notifications do not run");
    await(&handled, LETTERS);
    expect(sum == LETTERS * (LETTERS + 1) / 2, "the sum of the letters is wrong");
    await(data + WORDS - 1, WORDS);
    for (i = 0; i < WORDS; i++)
        expect(data[i] == i + 1, "a word of the data is wrong");
    check(SBL_UnexportRecvBuf(DATA), "withdraw the data");
    check(SBL_UnexportRecvBuf(MAILBOX), "withdraw the mailbox");
    expect(SBL_UnexportRecvBuf(MAILBOX) == vmmcErr_BadArg, "a buffer was withdrawn twice");
    printf("%d words and %d letters, all as they were sent\n", WORDS, LETTERS);
}

static void send_all(void)
{
    static int32 words[WORDS];
    SBL_Request request;
    vmmc_node_t node;
    vmmc_pid_t pid;
    int32 *to, *box, letter;
    uint32 room, letters;
    int i, status;

    check(vmmc_Parent(&node, &pid), "find the receiver");
    check(SBL_ImportRecvBufReq(MAILBOX, node, pid, &request), "begin to import the mailbox");
    check(SBL_ImportRecvBuf(DATA, node, pid, &to, &room), "import the data");
    while ((status = SBL_ImportRecvBufStatus(&request, &box, &letters)) == vmmcErr_InProgress)
        sched_yield();
    check(status, "import the mailbox");
    expect(room == WORDS && letters == LETTERS, "a buffer has another size");
    for (i = 0; i < WORDS; i++)
        words[i] = i + 1;
    check(SBL_SendMsg(words, to, WORDS / 2), "send the first half");
    check(SBL_SendMesg(words + WORDS / 2, to + WORDS / 2, WORDS - WORDS / 2),
          "send the second half");
    for (i = 0; i < LETTERS; i++) {
        letter = i + 1;
        check(SBL_SendMsgWithNotify(&letter, box + i, 1), "send a letter");
    }
    check(SBL_UnimportRecvBuf(box), "unimport the mailbox");
    expect(SBL_UnimportRecvBuf(box) == vmmcErr_BadProxyAddr, "an import was closed twice");
    check(SBL_UnimportRecvBuf(to), "unimport the data");
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 1)
        receive();
    else
        send_all();
    return 0;
}
