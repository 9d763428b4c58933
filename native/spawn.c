/* Cloning a child, always from a thread that lives as long as the process, since a parent-death signal fires
 * when the *thread* that forked ends (G50): the main thread where it is the caller, which waits for the exec
 * either way, and for all others one thread of the shim's own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "shim.h"
#include "syscall.h"

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

#define STACK_SIZE ((size_t)64 * 1024)
#define FIRST_UNNAMED 3

/* struct clone_args as of Linux 5.7, which added the cgroup. */
struct clone_arguments {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    uint64_t set_tid, set_tid_size, cgroup;
};

/* One request at a time: a vfork-style clone occupies the thread anyway. */
static struct {
    pthread_mutex_t turn; /* held by the caller whose request is under way */
    pthread_mutex_t lock;
    pthread_cond_t posted;
    pthread_cond_t done;
    struct agentd_child *request;
    int finished;
    int owner; /* the process that the thread belongs to: a forked copy has none */
    void *stack;
} forker = {
    .turn = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .posted = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static long clone_vfork(struct agentd_child *child, int *pidfd)
{
    const struct agentd_spawn *spawn = child->spawn;
    struct clone_arguments args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)forker.stack,
        .stack_size = STACK_SIZE,
    };

    if (spawn->cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)spawn->cgroup_fd;
    }
    return raw_clone_on_stack(SYS_clone3, (long)&args, sizeof args, 0, 0, 0, agentd_child_main, child);
}

static long clone_fork(struct agentd_child *child, int *pidfd)
{
    const struct agentd_spawn *spawn = child->spawn;
    struct clone_arguments args = {
        .flags = CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
    };

    if (spawn->cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)spawn->cgroup_fd;
    }
    long pid = raw2(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        agentd_child_main(child);
    return pid;
}

static long clone_legacy(struct agentd_child *child, int *pidfd)
{
    unsigned long flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;
    char *top = (char *)forker.stack + STACK_SIZE;

    child->reset_all = 1;
    return raw_clone_on_stack(SYS_clone, (long)flags, (long)top, (long)pidfd, 0, 0, agentd_child_main, child);
}

/* The parent in between, for a child that is to be none of ours. Its exit signal is 0, so that a plain wait()
 * of another thread does not see it either (G72); it shares our descriptors, so that the pidfd is ours. */
static void between(void *argument)
{
    struct agentd_child *child = argument;
    unsigned long flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;

    child->cloned = raw_clone_on_stack(SYS_clone, (long)flags, (long)((char *)forker.stack + STACK_SIZE),
                                       (long)&child->cloned_pidfd, 0, 0, agentd_child_main, child);
    for (;;)
        (void)raw1(SYS_exit_group, 0);
}

static long clone_detached(struct agentd_child *child, int *pidfd)
{
    unsigned long flags = CLONE_VM | CLONE_VFORK | CLONE_FILES;
    char *top = (char *)forker.stack + STACK_SIZE / 2;

    child->reset_all = 1;
    long pid = raw_clone_on_stack(SYS_clone, (long)flags, (long)top, 0, 0, 0, between, child);
    if (pid < 0)
        return pid;
    (void)raw4(SYS_wait4, pid, 0, __WALL, 0);
    *pidfd = child->cloned_pidfd;
    return child->cloned;
}

static void serve(struct agentd_child *child)
{
    struct agentd_spawn *spawn = (struct agentd_spawn *)child->spawn;
    int pidfd = -1;
    long pid;

    if (spawn->style == AGENTD_FORK)
        pid = clone_fork(child, &pidfd);
    else if (spawn->style == AGENTD_LEGACY)
        pid = clone_legacy(child, &pidfd);
    else if (spawn->style == AGENTD_DETACHED)
        pid = clone_detached(child, &pidfd);
    else
        pid = clone_vfork(child, &pidfd);

    if (pid < 0) {
        spawn->error.stage = AGENTD_CLONE;
        spawn->error.err = (int)-pid;
        return;
    }
    spawn->pid = (int)pid;
    spawn->pidfd = pidfd;
    if (child->error_fd < 0)
        spawn->error = child->error;
}

static void *forker_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&forker.lock);
    for (;;) {
        while (!forker.request || forker.finished)
            pthread_cond_wait(&forker.posted, &forker.lock);
        struct agentd_child *child = forker.request;
        pthread_mutex_unlock(&forker.lock);
        serve(child);
        pthread_mutex_lock(&forker.lock);
        forker.finished = 1;
        pthread_cond_signal(&forker.done);
    }
    return NULL;
}

static int make_stack(void)
{
    if (!forker.stack) {
        void *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (stack == MAP_FAILED)
            return errno;
        forker.stack = stack;
    }
    return 0;
}

/* In the main thread. With every signal blocked, as the forking thread has them: the child that shares our
 * memory starts with none deliverable. */
static void serve_here(struct agentd_child *child)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    serve(child);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The thread is made with every signal blocked: none of the process's handlers ever runs on it, and the
 * shared-memory child starts with none deliverable. */
static int start_forker(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int err;

    err = pthread_attr_init(&attributes);
    if (err)
        return err;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_SIZE * 4);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&thread, &attributes, forker_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return err;
}

/* After a fork of the embedding program its copy has the locks as they stood, and no thread. */
static void forget_forker(void)
{
    pthread_mutex_init(&forker.turn, NULL);
    pthread_mutex_init(&forker.lock, NULL);
    pthread_cond_init(&forker.posted, NULL);
    pthread_cond_init(&forker.done, NULL);
    forker.request = NULL;
    forker.finished = 0;
    forker.owner = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_forker);
}

static int hand_over(struct agentd_child *child)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int here = syscall(SYS_gettid) == getpid();

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&forker.turn);
    int err = make_stack();
    if (!err && here) {
        serve_here(child);
        pthread_mutex_unlock(&forker.turn);
        return 0;
    }
    if (!err && forker.owner != (int)getpid()) {
        err = start_forker();
        if (!err)
            forker.owner = (int)getpid();
    }
    if (!err) {
        pthread_mutex_lock(&forker.lock);
        forker.finished = 0;
        forker.request = child;
        pthread_cond_signal(&forker.posted);
        while (!forker.finished)
            pthread_cond_wait(&forker.done, &forker.lock);
        forker.request = NULL;
        pthread_mutex_unlock(&forker.lock);
    }
    pthread_mutex_unlock(&forker.turn);
    return err;
}

static int stop_at(struct agentd_spawn *spawn, int stage, int err)
{
    spawn->error.stage = stage;
    spawn->error.err = err;
    return -1;
}

static int error_pipe(int ends[2])
{
    int raw[2];

    if (pipe2(raw, O_CLOEXEC) < 0)
        return -1;
    for (int i = 0; i < 2; i++) { /* the child rearranges 0 to 2 */
        ends[i] = raw[i];
        if (raw[i] >= FIRST_UNNAMED)
            continue;
        ends[i] = fcntl(raw[i], F_DUPFD_CLOEXEC, FIRST_UNNAMED);
        int err = errno;
        close(raw[i]);
        if (ends[i] < 0) {
            if (i == 1)
                close(ends[0]);
            else
                close(raw[1]);
            errno = err;
            return -1;
        }
    }
    return 0;
}

static char **point_into(char **slots, const char *block, int n)
{
    for (int i = 0; i < n; i++) {
        slots[i] = (char *)block;
        block += strlen(block) + 1;
    }
    slots[n] = NULL;
    return slots + n + 1;
}

/* The arrays that execve wants, in one allocation, which the caller frees (child->candidates). */
static int lay_out_strings(struct agentd_child *child)
{
    const struct agentd_spawn *spawn = child->spawn;
    size_t n = (size_t)spawn->n_candidates + (size_t)spawn->n_argv + (size_t)spawn->n_env + 3;
    char **slots = malloc(n * sizeof *slots);

    if (!slots)
        return -1;
    child->candidates = slots;
    child->argv = point_into(child->candidates, spawn->candidates, spawn->n_candidates);
    child->envp = point_into(child->argv, spawn->argv, spawn->n_argv);
    (void)point_into(child->envp, spawn->env, spawn->n_env);
    return 0;
}

static int clone_child(struct agentd_spawn *spawn, struct agentd_child *child)
{
    int ends[2] = {-1, -1};

    if (spawn->placement == AGENTD_JOINED) {
        child->join_fd = openat(spawn->cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (child->join_fd < 0)
            return stop_at(spawn, AGENTD_JOIN, errno);
    }
    if (spawn->style == AGENTD_FORK) {
        if (error_pipe(ends) < 0)
            return stop_at(spawn, AGENTD_PIPE, errno);
        child->error_fd = ends[1];
    }
    int err = hand_over(child);
    if (child->join_fd >= 0)
        close(child->join_fd);
    if (ends[1] >= 0)
        close(ends[1]);
    if (err)
        (void)stop_at(spawn, AGENTD_THREAD, err);
    if (spawn->error.stage != AGENTD_OK) {
        if (ends[0] >= 0)
            close(ends[0]);
        return -1;
    }
    spawn->exec_fd = ends[0];
    return 0;
}

/* Returns 0 with pid and pidfd set: the program runs (fork style: ask agentd_exec_result), or -1 with
 * error set. A pidfd that is set together with an error belongs to a child that is about to be a zombie:
 * the caller reaps it. */
int agentd_spawn(struct agentd_spawn *spawn)
{
    struct agentd_child child = {
        .spawn = spawn,
        .join_fd = -1,
        .error_fd = -1,
        .parent = (int)getpid(),
        .sigmask = spawn->sigmask,
    };

    spawn->pid = -1;
    spawn->pidfd = -1;
    spawn->exec_fd = -1;
    spawn->error = (struct agentd_error){0, 0};
    spawn->placement = spawn->cgroup_fd < 0           ? AGENTD_NOWHERE
                       : spawn->style == AGENTD_LEGACY ? AGENTD_JOINED
                                                       : AGENTD_BORN;
    if (!spawn->own_mask) {
        sigset_t now;
        sigemptyset(&now);
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        memcpy(&child.sigmask, &now, sizeof child.sigmask);
    }
    if (lay_out_strings(&child) < 0)
        return stop_at(spawn, AGENTD_THREAD, ENOMEM);
    int failed = clone_child(spawn, &child);
    free(child.candidates);
    return failed;
}

/* Blocks until a fork-style child has executed (returns 0) or failed (-1, error set); closes exec_fd. A
 * child that was killed before its exec reads as success: its status tells. */
int agentd_exec_result(int exec_fd, struct agentd_error *error)
{
    struct agentd_error got = {0, 0};
    ssize_t n;

    do
        n = read(exec_fd, &got, sizeof got);
    while (n < 0 && errno == EINTR);
    close(exec_fd);
    *error = got;
    return n == (ssize_t)sizeof got ? -1 : 0;
}
