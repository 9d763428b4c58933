/* One function per kernel facility. Each returns what the kernel returned, or -errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shim.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static int result(long value)
{
    return value < 0 ? -errno : (int)value;
}

int agentd_pidfd_open(int pid)
{
    return result(syscall(SYS_pidfd_open, pid, 0));
}

int agentd_pidfd_send_signal(int pidfd, int signal, unsigned int flags)
{
    return result(syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, flags));
}

int agentd_prctl(int option, unsigned long arg2)
{
    return result(prctl(option, arg2, 0UL, 0UL, 0UL));
}

/* For the options that store an int through arg2: PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER. */
int agentd_prctl_get(int option)
{
    int value = 0;
    int err = result(prctl(option, &value, 0UL, 0UL, 0UL));

    return err < 0 ? err : value;
}

int agentd_set_name(const char *name)
{
    return result(prctl(PR_SET_NAME, name, 0UL, 0UL, 0UL));
}

/* The file system's magic number, as statfs(2) gives it. */
int64_t agentd_fstype(const char *path)
{
    struct statfs info;

    if (statfs(path, &info) < 0)
        return -errno;
    return (int64_t)(uint32_t)info.f_type;
}

/* A non-blocking signalfd for the signals of the mask (bit N-1 is signal N), which the caller blocks. */
int agentd_signalfd(uint64_t sigmask)
{
    sigset_t set;

    sigemptyset(&set);
    memcpy(&set, &sigmask, sizeof sigmask);
    return result(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

/* Two connected sockets that keep messages apart. */
int agentd_message_pair(int ends[2])
{
    return result(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
}

/* One message, without SIGPIPE where nobody is there to read it (-EPIPE). */
int agentd_send_message(int fd, const char *text, size_t length)
{
    return result(send(fd, text, length, MSG_NOSIGNAL));
}
