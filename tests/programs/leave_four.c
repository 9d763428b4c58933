/* Ends at once and leaves four daemons of the kinds that outlive their parents, each ready by then:
 * a grandchild in a session of its own, a double-forked daemon without descriptors, one that ignores HUP,
 * and one that goes on to write to the standard output that it holds.
 *
 * Its last act prints the monotonic time in nanoseconds. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int ready[2];

static void rest(const char *name)
{
    prctl(PR_SET_NAME, name);
    close(ready[0]);
    close(ready[1]); /* the last one to do so is seen as the end of the pipe */
    for (;;)
        pause();
}

static void close_all(void)
{
    for (int fd = 0; fd < 256; fd++)
        if (fd != ready[0] && fd != ready[1])
            close(fd);
}

int main(void)
{
    struct timespec now;
    char byte;

    if (pipe(ready) < 0)
        return 3;
    if (fork() == 0) {
        setsid();
        if (fork() == 0)
            rest("in-session");
        _exit(0);
    }
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        if (fork() == 0) {
            if (chdir("/") < 0)
                _exit(3);
            close_all();
            rest("double-forked");
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    if (fork() == 0) {
        signal(SIGHUP, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        rest("no-hangup");
    }
    if (fork() == 0) {
        signal(SIGPIPE, SIG_IGN);
        prctl(PR_SET_NAME, "writer");
        close(ready[0]);
        close(ready[1]);
        for (;;) {
            if (write(1, "still here\n", 11) < 0)
                pause();
            poll(NULL, 0, 20);
        }
    }
    close(ready[1]);
    while (read(ready[0], &byte, 1) > 0)
        ;
    clock_gettime(CLOCK_MONOTONIC, &now);
    dprintf(1, "ended %lld\n", (long long)now.tv_sec * 1000000000LL + now.tv_nsec);
    _exit(0);
}
