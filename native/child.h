/* What runs in the child between clone and exec, and what it is told. */
#ifndef AGENTD_CHILD_H
#define AGENTD_CHILD_H

#include "shim.h"

struct agentd_child {
    const struct agentd_spawn *spawn;
    char **candidates; /* NULL-terminated arrays into the blocks of spawn */
    char **argv;
    char **envp;
    int join_fd;      /* cgroup.procs of the leaf, to be joined before the exec; -1: born there, or no leaf */
    int error_fd;     /* fork style: where the error goes; -1: into `error`, which is shared memory */
    int reset_all;    /* nonzero: the parent's handlers were inherited (no CLONE_CLEAR_SIGHAND) */
    int parent;       /* the parent's pid as the child must see it */
    uint64_t sigmask; /* the mask that the program starts with */
    struct agentd_error error;
    long cloned;      /* detached: what the second clone returned, */
    int cloned_pidfd; /* and its pidfd */
};

/* Never returns: the program runs, or the error is recorded and the child is gone with code 127. */
void agentd_child_main(void *child) __attribute__((noreturn));

#endif
