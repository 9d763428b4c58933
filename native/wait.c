/* The status of a child, by pidfd: looked at or consumed. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

#define IDTYPE_PIDFD 3 /* P_PIDFD, Linux 5.4 */

/* struct pidfd_info, first published size (Linux 6.13); exit_code is filled in since 6.15. */
struct pidfd_information {
    uint64_t mask;
    uint64_t cgroupid;
    uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int32_t exit_code;
};
#define GET_INFO _IOWR(0xFF, 11, struct pidfd_information)
#define INFO_EXIT (1ULL << 3)

static int64_t microseconds(struct timeval t)
{
    return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

static int wait_by(int type, int id, int reap, struct agentd_status *status)
{
    siginfo_t info;
    struct rusage usage;
    int options = WEXITED | WNOHANG | __WALL | (reap ? 0 : WNOWAIT);

    memset(status, 0, sizeof *status);
    memset(&info, 0, sizeof info);
    memset(&usage, 0, sizeof usage);
    if (syscall(SYS_waitid, type, id, &info, options, &usage) < 0)
        return errno;
    if (info.si_pid == 0)
        return 0; /* still running */
    status->known = 1;
    status->code = info.si_code;
    status->status = info.si_status;
    status->user_us = microseconds(usage.ru_utime);
    status->system_us = microseconds(usage.ru_stime);
    status->max_rss_kib = usage.ru_maxrss;
    return 0;
}

/* The exit status that a pidfd keeps after somebody else has consumed it (Linux 6.15): 0, or errno. */
int agentd_pidfd_info(int pidfd, struct agentd_status *status)
{
    struct pidfd_information info = {.mask = INFO_EXIT};

    if (ioctl(pidfd, GET_INFO, &info) < 0)
        return errno;
    if (!(info.mask & INFO_EXIT))
        return ENODATA;
    status->known = 2;
    if (WIFEXITED(info.exit_code)) {
        status->code = CLD_EXITED;
        status->status = WEXITSTATUS(info.exit_code);
    } else {
        status->code = WCOREDUMP(info.exit_code) ? CLD_DUMPED : CLD_KILLED;
        status->status = WTERMSIG(info.exit_code);
    }
    return 0;
}

/* Looks at the status (reap 0) or consumes it. 0: status->known says whether there is one, status->gone
 * whether somebody else had taken it; else errno. */
int agentd_wait(int pidfd, int reap, struct agentd_status *status)
{
    int err = wait_by(IDTYPE_PIDFD, pidfd, reap, status);

    if (err != ECHILD)
        return err;
    status->gone = 1;
    (void)agentd_pidfd_info(pidfd, status); /* if the kernel cannot tell either, it stays unknown */
    return 0;
}

/* The same for a zombie that is known by its number only: an orphan that we adopted. */
int agentd_wait_pid(int pid, int reap, struct agentd_status *status)
{
    return wait_by(P_PID, pid, reap, status);
}
