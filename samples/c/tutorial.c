/*
 * The program of the README, in C. The first process offers 32 bytes of its memory and starts a
 * second one on its node, which writes there.
 *
 *	cc -o tutorial tutorial.c $(pkg-config --cflags --libs vmmc)
 *	VMMC_SOCKET=... ./tutorial
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <vmmc.h>

enum { WORDS = 8, GREETING = 1 };

static void check(vmmc_result_t res, const char *what)
{
    if (res == vmmc_Success)
        return;
    vmmc_Error(res, (char *)what);
    exit(1);
}

static void first_process(void)
{
    static int32 buffer[WORDS];
    char self[4096], *argv[] = {self, (char *)"second", NULL};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    vmmc_exphandle_t handle;
    vmmc_pid_t pid;

    if (n < 0) {
        perror("find this program");
        exit(1);
    }
    self[n] = '\0';
    check(vmmc_ExportRecvBuf(buffer, WORDS, GREETING, NULL, BUF_READWRITE, 0, &handle), "export");
    check(vmmc_Spawn(self, argv, vmmc_MyNode(), &pid), "start the second process");
    /* There is no receive call: it looks at its own memory. The last word is stored last. */
    while (__atomic_load_n(&buffer[WORDS - 1], __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    printf("in my memory: %.*s\n", (int)sizeof buffer, (char *)buffer);
    check(vmmc_UnexportRecvBuf(handle), "withdraw the buffer");
}

static void second_process(void)
{
    static const union {
        char text[WORDS * sizeof(int32) + 1];
        int32 words[WORDS];
    } greeting = {"hello from the other process :-)"};
    vmmc_imphandle_t handle;
    vmmc_node_t node;
    vmmc_pid_t pid;
    int32 *remote;
    uint32 nwords;

    check(vmmc_Parent(&node, &pid), "find the first process");
    check(vmmc_ImportRecvBuf(node, pid, GREETING, &handle, &remote, &nwords), "import");
    check(vmmc_SendData((int32 *)greeting.words, remote, WORDS), "send");
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 1)
        first_process();
    else
        second_process();
    return 0;
}
