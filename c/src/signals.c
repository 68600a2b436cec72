/*
 * Signals around calls of Go. The program's handlers must never run on a goroutine's stack, which
 * has a few KiB.
 *
 * The kernel is called directly: the C library keeps signals 32 and 33 from being blocked.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"

#define SIGNALS 64

/* A signal action as the kernel has it, on x86-64 and arm64. */
struct action {
    uintptr_t handler;
    unsigned long flags;
    uintptr_t restorer;
    uint64_t mask;
};

static struct action saved[SIGNALS + 1];
static char have[SIGNALS + 1];

vmmc_mask vmmc_block_signals(uint64_t but) {
    uint64_t all = ~but, old = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof old);
    return (vmmc_mask){old};
}

void vmmc_restore_signals(vmmc_mask old) {
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old.bits, NULL, sizeof old.bits);
}

void vmmc_save_actions(void) {
    for (int s = 1; s <= SIGNALS; s++) {
        have[s] = syscall(SYS_rt_sigaction, s, NULL, &saved[s], sizeof(uint64_t)) == 0;
    }
}

/*
 * Puts back what was saved before Go was loaded. Go keeps the three faults that it recovers from;
 * it passes those of C code on to the handler that was there before.
 */
void vmmc_restore_actions(void) {
    for (int s = 1; s <= SIGNALS; s++) {
        if (have[s] && s != SIGSEGV && s != SIGBUS && s != SIGFPE) {
            syscall(SYS_rt_sigaction, s, &saved[s], NULL, sizeof(uint64_t));
        }
    }
}

static char *put(char *to, const char *s) {
    size_t n = strlen(s);
    memcpy(to, s, n);
    return to + n;
}

static char *put_hex(char *to, uintptr_t v) {
    int shift = 60;
    to = put(to, "0x");
    while (shift > 0 && v >> shift == 0) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        *to++ = "0123456789abcdef"[v >> shift & 15];
    }
    return to;
}

/* Says what a program did that has touched DestSpace, and lets it end. */
static void touched(int sig, siginfo_t *info, void *context) {
    (void)context;
    uintptr_t a = (uintptr_t)info->si_addr;
    struct vmmcb_shared *s = vmmc_shared;
    uint32_t i = info->si_code > 0 ? vmmc_import_at(a) : 0;
    if (i != 0) {
        char line[240], *end = line;
        end = put(end, "vmmc: access to ");
        end = put_hex(end, a);
        end = put(end, " in DestSpace, ");
        if (i < VMMCB_IMPORTS) {
            end = put(end, "in the import that begins at ");
            end = put_hex(end, s->imports[i].begin);
        } else {
            end = put(end, "where no import is");
        }
        end = put(end, ": there is no memory; use vmmc_SendData or vmmc_GetData\n");
        ssize_t n = write(STDERR_FILENO, line, (size_t)(end - line));
        (void)n;
    }
    signal(sig, SIG_DFL); /* the access is repeated, and ends the process with a core */
    if (info->si_code <= 0) {
        raise(sig); /* it was sent by kill: nothing is repeated */
    }
}

/* Before Go is loaded: a program's own handler stays. */
void vmmc_watch_dest_space(void) {
    struct sigaction now, ours;
    if (sigaction(SIGSEGV, NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) ||
        now.sa_handler != SIG_DFL) {
        return;
    }
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = touched;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, NULL);
}
