/* The shim: one function per kernel facility, and two that batch the hot path (birth, end). No policy.
 *
 * Conventions. Every call that can fail fills in a stage (enum agentd_stage) and an errno; nothing is
 * printed, nothing is retried. Descriptors that a call makes are close-on-exec. Between clone and exec
 * only raw system calls run (syscall.h): no allocation, no lock, no errno, no libc.
 */
#ifndef AGENTD_SHIM_H
#define AGENTD_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* The step that failed. Python reads the names from here (agentd/linux/stages.py keeps the same order). */
enum agentd_stage {
    AGENTD_OK = 0,
    AGENTD_MKDIR,        /* make the leaf */
    AGENTD_OPEN_LEAF,    /* open the leaf's directory, or its cgroup.events */
    AGENTD_LOCK_LEAF,    /* flock the leaf: the proof of ownership */
    AGENTD_LIMIT,        /* write a limit, or read it back */
    AGENTD_FROZEN,       /* the leaf is frozen by an ancestor: a vfork-style child would hang us (G33) */
    AGENTD_THREAD,       /* start the forking thread, or its stack */
    AGENTD_PIPE,         /* the error channel of a fork-style child */
    AGENTD_CLONE,        /* clone3, or clone */
    AGENTD_JOIN,         /* child: write itself into cgroup.procs */
    AGENTD_SIGNALS,      /* child: dispositions and mask */
    AGENTD_SESSION,      /* child: setsid, setpgid */
    AGENTD_TERMINAL,     /* child: controlling terminal */
    AGENTD_PRIVILEGES,   /* child: no-new-privileges */
    AGENTD_DEATHSIG,     /* child: parent-death signal */
    AGENTD_ORPHANED,     /* child: the parent is no longer the one that forked */
    AGENTD_DESCRIPTORS,  /* child: standard streams, passed and closed descriptors */
    AGENTD_CHDIR,        /* child: working directory */
    AGENTD_EXEC,         /* child: execve */
    AGENTD_EPOLL,        /* register the child with the loop */
    AGENTD_STAGES
};

struct agentd_error {
    int stage;
    int err;
};

/* How the child is cloned. */
enum agentd_style {
    AGENTD_VFORK = 0,  /* clone3, shared memory, the forking thread waits for the exec */
    AGENTD_FORK = 1,   /* clone3, a copy: for leaves that an ancestor's cpu.max may keep from running (G32) */
    AGENTD_LEGACY = 2, /* clone: where clone3 is refused; the child joins its leaf before the exec */
    AGENTD_DETACHED = 3 /* a grandchild, which no wait of this process can see; without a leaf */
};

/* How the child came into its leaf. */
enum agentd_placement {
    AGENTD_NOWHERE = 0, /* no leaf was asked for */
    AGENTD_BORN = 1,    /* CLONE_INTO_CGROUP */
    AGENTD_JOINED = 2   /* by its own write to cgroup.procs, before the exec */
};

enum agentd_session { AGENTD_SAME_GROUP = 0, AGENTD_NEW_GROUP = 1, AGENTD_NEW_SESSION = 2 };

struct agentd_spawn {
    /* in */
    const char *candidates; /* blocks of NUL-terminated strings: paths to execve in turn, */
    const char *argv;       /* the arguments, */
    const char *env;        /* and NAME=VALUE; each with its count */
    int n_candidates;
    int n_argv;
    int n_env;
    const char *cwd;     /* NULL: stay */
    const int *pass_fds; /* descriptors from 3 up that stay open */
    int n_pass_fds;
    int stdio[3];        /* what becomes 0, 1, 2; -1: inherit */
    int cgroup_fd;       /* the leaf's directory, or -1 */
    int session;         /* enum agentd_session */
    int terminal;        /* nonzero: stdin becomes the controlling terminal (needs a new session) */
    int no_new_privs;
    int death_signal;    /* 0: none */
    int style;           /* enum agentd_style */
    int own_mask;        /* nonzero: the child's signal mask is sigmask; else the calling thread's */
    uint64_t sigmask;    /* bit N-1 is signal N */
    /* out */
    int pid;
    int pidfd;
    int exec_fd;   /* fork style: readable or at EOF when the exec failed or succeeded; else -1 */
    int placement; /* enum agentd_placement */
    struct agentd_error error;
};

struct agentd_write {
    const char *file;
    const char *value;
    const char *expect; /* what must be read back; NULL: whatever it reads */
    int err;            /* errno of the write or of the read-back; 0 */
    int differs;        /* it was written, and reads otherwise */
    char readback[128]; /* NUL-terminated, one trailing newline removed */
};

struct agentd_birth {
    /* in */
    int parent_fd;    /* the subtree; -1: no leaf */
    const char *name; /* the leaf */
    struct agentd_write *before;
    int n_before;
    struct agentd_write *after; /* right after the exec */
    int n_after;
    int epoll_fd;     /* the pidfd is registered here (one shot); -1: not */
    int accept_limits; /* nonzero: go on although a limit is not in force */
    const int *watched; /* open files to read just before the clone: what cgroups above have counted so far */
    int n_watched;
    char *seen;        /* receives AGENTD_SEEN bytes of text for each, NUL-terminated */
    char *where;       /* receives this process's working directory, NUL-terminated; NULL: not wanted */
    size_t where_size;
    int leaf_only;     /* nonzero: stop once the leaf is made and its limits are written */
    int leaf_fd;      /* in: a leaf kept from an earlier call, or -1; out: its directory */
    /* out */
    int events_fd;    /* the leaf's cgroup.events */
    struct agentd_spawn spawn;
};

/* What waitid told of a child, in the terms of waitid(2). */
struct agentd_status {
    int known;   /* 0: running, or nobody can tell any more; 1: waitid; 2: PIDFD_GET_INFO */
    int gone;    /* somebody else consumed the status */
    int code;    /* CLD_EXITED, CLD_KILLED, CLD_DUMPED */
    int status;  /* exit code, or signal */
    int64_t user_us;
    int64_t system_us;
    int64_t max_rss_kib;
};

struct agentd_end {
    /* in */
    int pid;
    int pidfd;
    int leaf_fd; /* -1: no leaf */
    int events_fd;
    int parent_fd;
    const char *name;
    int own_group;            /* the child leads a group: what is left of it is killed */
    int keep;                 /* nonzero: look only, even if nothing is left */
    int keep_killed;          /* nonzero: the same for a child that SIGKILL ended: its zombie has more to tell */
    const char *const *files; /* usage files to read, NULL-terminated */
    char *buffer;             /* receives NAME NUL TEXT NUL ... */
    size_t capacity;
    /* out */
    size_t used;
    int finished;  /* the child is reaped, its descriptors are closed */
    int populated; /* the leaf still holds processes: name them, kill, call again */
    int removed;   /* the leaf is gone */
    int remove_err;
    struct agentd_status status;
};

#define AGENTD_SEEN 256

/* birth.c */
int agentd_birth(struct agentd_birth *birth);
void agentd_birth_undo(struct agentd_birth *birth);
int agentd_write_limits(int leaf_fd, struct agentd_write *writes, int n);

/* end.c */
int agentd_end(struct agentd_end *end);
int agentd_await(int epoll_fd, int pidfd, int stop_fd, int timeout_ms);
int agentd_kill_leaf(int leaf_fd);
int agentd_populated(int events_fd);

/* spawn.c */
int agentd_spawn(struct agentd_spawn *spawn);
int agentd_exec_result(int exec_fd, struct agentd_error *error);

/* wait.c */
int agentd_wait(int pidfd, int reap, struct agentd_status *status);
int agentd_wait_pid(int pid, int reap, struct agentd_status *status);
int agentd_pidfd_info(int pidfd, struct agentd_status *status);

/* facilities.c */
int agentd_pidfd_open(int pid);
int agentd_pidfd_send_signal(int pidfd, int signal, unsigned int flags);
int agentd_prctl(int option, unsigned long arg2);
int agentd_prctl_get(int option);
int agentd_set_name(const char *name);
int64_t agentd_fstype(const char *path);
int agentd_signalfd(uint64_t sigmask);
int agentd_message_pair(int ends[2]);
int agentd_send_message(int fd, const char *text, size_t length);

#endif
