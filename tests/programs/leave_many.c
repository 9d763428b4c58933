/* leave_many N: ends and leaves N processes, each in a session of its own. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int ready[2];
    char byte;

    if (argc != 2 || pipe(ready) < 0)
        return 3;
    for (int left = atoi(argv[1]); left > 0; left--) {
        if (fork() == 0) {
            setsid();
            close(ready[0]);
            close(ready[1]);
            for (;;)
                pause();
        }
    }
    close(ready[1]);
    while (read(ready[0], &byte, 1) > 0)
        ;
    return 0;
}
