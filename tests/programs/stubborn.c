/* stubborn: makes a descendant in a session of its own, a double-forked daemon without descriptors, and a child
 * that ignores whatever can be ignored; ignores TERM, HUP and INT itself; says "ready" when all are there, and
 * stays. With an argument N it makes N more of the first kind. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int ready[2];

static void rest(void)
{
    close(ready[0]);
    close(ready[1]); /* the last one to do so is seen as the end of the pipe */
    for (;;)
        pause();
}

static void in_session(void)
{
    if (fork() == 0) {
        setsid();
        rest();
    }
}

int main(int argc, char **argv)
{
    char byte;

    if (pipe(ready) < 0)
        return 3;
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    for (int left = argc > 1 ? atoi(argv[1]) + 1 : 1; left > 0; left--)
        in_session();
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        if (fork() == 0) {
            if (chdir("/") < 0)
                _exit(3);
            for (int fd = 0; fd < 256; fd++)
                if (fd != ready[0] && fd != ready[1])
                    close(fd);
            rest();
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    if (fork() == 0) {
        for (int number = 1; number < 65; number++)
            signal(number, SIG_IGN);
        rest();
    }
    close(ready[1]);
    while (read(ready[0], &byte, 1) > 0)
        ;
    if (write(1, "ready\n", 6) != 6)
        return 3;
    for (;;)
        pause();
}
