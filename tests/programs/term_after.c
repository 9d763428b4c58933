/* term_after [--pid1] [--held] MICROSECONDS MILLISECONDS PROGRAM [ARG...]: starts PROGRAM, sends it TERM so many
 * microseconds after its exec, and waits for its end, at most so many milliseconds from the signal; then it
 * is killed. With --pid1 PROGRAM is the first process of a pid namespace, with a /proc of its own. With --held
 * the time counts from when PROGRAM blocks TERM: what comes sooner to the first process, the kernel drops.
 *
 * Prints "exit CODE" or "signal NUMBER" or "late", and the milliseconds from the signal to the end.
 * Signals go through a pidfd. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e3 + at.tv_nsec / 1e6;
}

static void must(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        _exit(99);
    }
}

/* Whether the process blocks TERM, by /proc/PID/status. */
static int holds_term(pid_t pid)
{
    char text[4096], path[32];

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *line = strstr(text, "SigBlk:");
    return !line || strtoull(line + 7, NULL, 16) >> (SIGTERM - 1) & 1;
}

int main(int argc, char **argv)
{
    int started[2], status, pid1 = 0, held = 0;
    char byte;

    for (argv++, argc--; argc > 0 && argv[0][0] == '-'; argv++, argc--) {
        pid1 |= strcmp(argv[0], "--pid1") == 0;
        held |= strcmp(argv[0], "--held") == 0;
    }
    if (argc < 3 || pipe(started) < 0)
        return 99;
    double delay = atof(argv[0]) / 1e3, limit = atof(argv[1]);

    if (pid1)
        must(unshare(CLONE_NEWPID), "unshare");
    pid_t pid = fork();
    must(pid, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(started[0]);
        if (pid1) {
            must(unshare(CLONE_NEWNS), "unshare mounts");
            must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
            must(mount("proc", "/proc", "proc", 0, NULL), "mount /proc");
        }
        must(dup3(started[1], 200, O_CLOEXEC), "dup");
        close(started[1]);
        execv(argv[2], argv + 2);
        must(-1, argv[2]);
    }
    close(started[1]);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    must(pidfd, "pidfd_open");
    while (read(started[0], &byte, 1) > 0)
        ; /* ends at the exec, which closes the other end */
    while (held && !holds_term(pid))
        sched_yield();

    struct timespec pause = {(time_t)(delay / 1e3), (long)(delay * 1e6) % 1000000000L};
    nanosleep(&pause, NULL);
    double sent = now();
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    int ended = poll(&end, 1, (int)limit);
    double took = now() - sent;
    if (ended != 1)
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    must(waitpid(pid, &status, 0), "waitpid");
    if (ended != 1)
        printf("late %.1f\n", took);
    else if (WIFEXITED(status))
        printf("exit %d %.1f\n", WEXITSTATUS(status), took);
    else
        printf("signal %d %.1f\n", WTERMSIG(status), took);
    return 0;
}
