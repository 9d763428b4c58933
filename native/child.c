/* From clone to exec. Raw system calls only: memory, and for the vfork style the very thread-local
 * storage, are the parent's. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include "syscall.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOEXEC_RANGE 4U /* CLOSE_RANGE_CLOEXEC, Linux 5.11 */
#define FIRST_UNNAMED 3
/* Not for the sanitizers: they know nothing of the stack that this runs on, where what an earlier child left
 * marked stays marked, and a report would take locks in the parent's memory and die with them. */
#define IN_CHILD __attribute__((no_sanitize("address"))) __attribute__((no_sanitize("undefined")))
#define LAST_SIGNAL 64
/* Without close_range the table is walked; a limit above this is walked up to here (ulimit -n unlimited). */
#define WALK_LIMIT 65536

/* The kernel's struct sigaction; all zero is SIG_DFL. */
struct kernel_sigaction {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

static void fail(struct agentd_child *child, int stage, long result) __attribute__((noreturn));
IN_CHILD static void fail(struct agentd_child *child, int stage, long result)
{
    struct agentd_error error = {.stage = stage, .err = (int)-result};

    if (child->error_fd >= 0)
        (void)raw3(SYS_write, child->error_fd, &error, sizeof error);
    else
        child->error = error;
    for (;;)
        (void)raw1(SYS_exit_group, 127);
}

IN_CHILD static void must(struct agentd_child *child, int stage, long result)
{
    if (result < 0)
        fail(child, stage, result);
}

IN_CHILD static void default_signal(int number)
{
    struct kernel_sigaction action = {0};

    (void)raw4(SYS_rt_sigaction, number, &action, 0, sizeof action.mask);
}

/* Ignored signals stay ignored, as exec(2) promises (nohup), but for those that the interpreter of the
 * supervisor ignores for itself, and SIGCHLD, whose SIG_IGN would cost the program its children's statuses. */
IN_CHILD static void set_signals(struct agentd_child *child)
{
    if (child->reset_all) {
        struct kernel_sigaction now;
        for (int number = 1; number <= LAST_SIGNAL; number++) {
            if (raw4(SYS_rt_sigaction, number, 0, &now, sizeof now.mask) == 0 &&
                now.handler != (void *)SIG_IGN && now.handler != (void *)SIG_DFL)
                default_signal(number);
        }
    }
    default_signal(SIGPIPE);
    default_signal(SIGXFSZ);
    default_signal(SIGCHLD);
    must(child, AGENTD_SIGNALS,
         raw4(SYS_rt_sigprocmask, SIG_SETMASK, &child->sigmask, 0, sizeof child->sigmask));
}

IN_CHILD static void set_session(struct agentd_child *child)
{
    const struct agentd_spawn *spawn = child->spawn;

    if (spawn->session == AGENTD_NEW_SESSION)
        must(child, AGENTD_SESSION, raw0(SYS_setsid));
    else if (spawn->session == AGENTD_NEW_GROUP)
        must(child, AGENTD_SESSION, raw2(SYS_setpgid, 0, 0));
}

IN_CHILD static void set_cloexec_above(struct agentd_child *child)
{
    long result = raw3(SYS_close_range, FIRST_UNNAMED, ~0U, CLOEXEC_RANGE);

    if (result == -ENOSYS || result == -EINVAL) { /* before 5.9, before 5.11 */
        struct {
            uint64_t soft, hard;
        } limit = {0, 0};
        must(child, AGENTD_DESCRIPTORS, raw4(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, 0, &limit));
        uint64_t end = limit.soft < WALK_LIMIT ? limit.soft : WALK_LIMIT;
        for (uint64_t fd = FIRST_UNNAMED; fd < end; fd++)
            (void)raw3(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
        result = 0;
    }
    must(child, AGENTD_DESCRIPTORS, result);
}

IN_CHILD static void set_descriptors(struct agentd_child *child)
{
    const struct agentd_spawn *spawn = child->spawn;
    long source[3];

    /* A source below 3 may be the target of another one: lift those out of the way first. */
    for (int target = 0; target < FIRST_UNNAMED; target++) {
        source[target] = spawn->stdio[target];
        if (source[target] >= 0 && source[target] < FIRST_UNNAMED && source[target] != target) {
            source[target] = raw3(SYS_fcntl, source[target], F_DUPFD_CLOEXEC, FIRST_UNNAMED);
            must(child, AGENTD_DESCRIPTORS, source[target]);
        }
    }
    for (int target = 0; target < FIRST_UNNAMED; target++) {
        if (source[target] < 0)
            continue;
        if (source[target] == target)
            must(child, AGENTD_DESCRIPTORS, raw3(SYS_fcntl, target, F_SETFD, 0));
        else
            must(child, AGENTD_DESCRIPTORS, raw3(SYS_dup3, source[target], target, 0));
    }
    set_cloexec_above(child);
    for (int i = 0; i < spawn->n_pass_fds; i++)
        must(child, AGENTD_DESCRIPTORS, raw3(SYS_fcntl, spawn->pass_fds[i], F_SETFD, 0));
}

/* execvpe(3)'s rule over candidates made by the parent: what is not there tries the next one (a directory
 * of PATH on a lost network mount, too), EACCES too but is remembered; anything else is the answer. */
static void execute(struct agentd_child *child) __attribute__((noreturn));
IN_CHILD static void execute(struct agentd_child *child)
{
    long worst = -ENOENT;

    for (char **path = child->candidates; *path; path++) {
        long result = raw3(SYS_execve, *path, child->argv, child->envp);
        if (result == -EACCES)
            worst = result;
        else if (result != -ENOENT && result != -ENOTDIR && result != -ESTALE && result != -ENODEV &&
                 result != -ETIMEDOUT)
            fail(child, AGENTD_EXEC, result);
    }
    fail(child, AGENTD_EXEC, worst);
}

IN_CHILD void agentd_child_main(void *argument)
{
    struct agentd_child *child = argument;
    const struct agentd_spawn *spawn = child->spawn;

    if (child->join_fd >= 0)
        must(child, AGENTD_JOIN, raw3(SYS_write, child->join_fd, "0", 1));
    set_signals(child);
    set_session(child);
    if (spawn->no_new_privs)
        must(child, AGENTD_PRIVILEGES, raw6(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0));
    if (spawn->death_signal) {
        must(child, AGENTD_DEATHSIG, raw6(SYS_prctl, PR_SET_PDEATHSIG, spawn->death_signal, 0, 0, 0, 0));
        if (raw0(SYS_getppid) != child->parent) /* it died before the signal was armed */
            fail(child, AGENTD_ORPHANED, -ESRCH);
    }
    set_descriptors(child);
    if (spawn->terminal)
        must(child, AGENTD_TERMINAL, raw3(SYS_ioctl, 0, TIOCSCTTY, 0));
    if (spawn->cwd)
        must(child, AGENTD_CHDIR, raw1(SYS_chdir, spawn->cwd));
    execute(child);
}
