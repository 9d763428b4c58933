/* Becomes a daemon by the book: fork, setsid, fork, chdir, all descriptors closed. Ends when the daemon is
 * there. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int ready[2];
    char byte;

    if (pipe(ready) < 0)
        return 3;
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        if (fork() == 0) {
            if (chdir("/") < 0)
                _exit(3);
            for (int fd = 0; fd < 256; fd++)
                close(fd); /* ready[1] among them: the last one, and the parent goes on */
            for (;;)
                pause();
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    close(ready[1]);
    while (read(ready[0], &byte, 1) > 0)
        ;
    return 0;
}
