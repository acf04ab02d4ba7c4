#define _GNU_SOURCE
#include "supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "enter.h"

static sigset_t before;

void hold_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
}

/* Until this child ends: its exit code, as a shell would tell it. */
static int attend(pid_t child)
{
    sigset_t all;
    sigfillset(&all);
    for (;;) {
        siginfo_t got;
        if (sigwaitinfo(&all, &got) < 0)
            continue;
        if (got.si_signo == SIGCHLD) {
            int status;
            pid_t ended;
            while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
                if (ended == child)
                    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        } else if (got.si_code == SI_KERNEL) {
            /* The terminal sends to all of the foreground: the program has it already. */
            if (got.si_signo == SIGTSTP)
                kill(getpid(), SIGSTOP);
        } else {
            kill(child, got.si_signo);
        }
    }
}

_Noreturn void wait_outside(pid_t child) { _exit(attend(child)); }

void split_inside(void)
{
    pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        return;
    }
    if (child < 0)
        _exit(EXIT_NOT_ENTERED);
    /* What it has open would keep the other end of the program's pipes waiting. */
    close_range(0, ~0U, 0);
    _exit(attend(child));
}
