/* agentd-init PROGRAM [ARG...]: becomes PROGRAM with the signals that agentd forwards blocked.
 *
 * The kernel drops a signal that the first process of a pid namespace has no handler for, unless it is
 * blocked (pid_namespaces(7)). An interpreter needs milliseconds to install one; blocked from the first
 * instruction, signals stay pending across the exec and are read when PROGRAM is ready. Pending and
 * blocked signals survive execve(2). The pid in AGENTD_INIT tells PROGRAM that the mask is this one's doing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static const int forwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
    sigset_t set;
    char pid[24];

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (argc < 2) {
        fputs("agentd-init: usage: agentd-init PROGRAM [ARG...]\n", stderr);
        return 2;
    }
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (setenv("AGENTD_INIT", pid, 1) < 0)
        return 125;
    execvp(argv[1], argv + 1);
    fprintf(stderr, "agentd-init: %s: %s\n", argv[1], strerror(errno));
    return errno == ENOENT ? 127 : 126;
}
