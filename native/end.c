/* End: look at the child, and where nothing of it is left, read what its leaf counted, reap, remove. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

#define SIGNAL_GROUP (1U << 2) /* PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9 */

/* Waits in the caller's thread for a child to end, in place of the loop: 1 it has, 0 timed out or stop_fd
 * became readable, -EINTR. The loop's registration is taken out meanwhile, so that one of them wakes. */
int agentd_await(int epoll_fd, int pidfd, int stop_fd, int timeout_ms)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = pidfd};
    struct pollfd fds[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};

    (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, pidfd, NULL);
    int ready = poll(fds, 2, timeout_ms);
    int result = ready < 0 ? -errno : (fds[0].revents & POLLIN) != 0;
    if (result != 1)
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pidfd, &event);
    return result;
}

/* Kills everything in the leaf and below: 0, or -errno (-ENOENT before Linux 5.14). */
int agentd_kill_leaf(int leaf_fd)
{
    int fd = openat(leaf_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    int err = write(fd, "1", 1) == 1 ? 0 : -errno;
    close(fd);
    return err;
}

/* Appends the file's name and text; returns the text, or NULL. */
static const char *read_file(struct agentd_end *end, const char *file)
{
    size_t name = strlen(file) + 1;

    if (end->used + name + 2 > end->capacity)
        return NULL;
    int fd = openat(end->leaf_fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return NULL; /* this kernel lacks it, or the controller is not here: absent, never zero */
    char *text = end->buffer + end->used + name;
    size_t room = end->capacity - end->used - name - 1;
    ssize_t n = pread(fd, text, room, 0);
    close(fd);
    if (n < 0)
        return NULL; /* EOPNOTSUPP: pressure accounting is off (G64) */
    memcpy(end->buffer + end->used, file, name);
    text[n] = '\0';
    end->used += name + (size_t)n + 1;
    return text;
}

/* memory.stat only where the OOM killer was at work: it is long, and the kernel has to add it up. */
static void read_files(struct agentd_end *end)
{
    int oom_kill = 0;

    end->used = 0;
    for (const char *const *file = end->files; *file; file++) {
        const char *text = read_file(end, *file);
        const char *count = text && strcmp(*file, "memory.events") == 0 ? strstr(text, "\noom_kill ") : NULL;
        oom_kill |= count && count[strlen("\noom_kill ")] != '0';
    }
    if (oom_kill)
        (void)read_file(end, "memory.stat");
}

/* What is left of the child's own group, wherever it moved. The group's number is pinned by the zombie
 * that we have not reaped yet (G70), or not used at all where the kernel takes the pidfd. */
static void kill_group(const struct agentd_end *end)
{
    long sent = syscall(SYS_pidfd_send_signal, end->pidfd, SIGKILL, NULL, SIGNAL_GROUP);

    if (sent < 0 && errno == EINVAL && !end->status.gone && end->pid > 1)
        (void)kill(-end->pid, SIGKILL);
}

static int killed(const struct agentd_status *status)
{
    return status->known && status->code == CLD_KILLED && status->status == SIGKILL;
}

/* Returns 0, or errno of the look. With finished 0 either the child still runs (status.known 0 and
 * status.gone 0) or its leaf is populated: kill it, wait, call again. */
int agentd_end(struct agentd_end *end)
{
    struct agentd_status reaped;

    end->finished = 0;
    end->removed = 0;
    end->remove_err = 0;
    end->populated = 0;
    int err = agentd_wait(end->pidfd, 0, &end->status);
    if (err)
        return err;
    if (!end->status.known && !end->status.gone)
        return 0;
    if (end->events_fd >= 0)
        end->populated = agentd_populated(end->events_fd) == 1;
    if (end->populated || end->keep || (end->keep_killed && killed(&end->status)))
        return 0;
    if (end->own_group)
        kill_group(end); /* members that left the leaf */
    if (end->leaf_fd >= 0)
        read_files(end);
    if (!end->status.gone && agentd_wait(end->pidfd, 1, &reaped) == 0 && reaped.gone)
        end->status.gone = 1; /* taken between our look and our reap: we had seen it */
    close(end->pidfd);
    if (end->events_fd >= 0)
        close(end->events_fd);
    if (end->leaf_fd >= 0) {
        /* The lock of ownership is held until the name is gone. */
        end->removed = unlinkat(end->parent_fd, end->name, AT_REMOVEDIR) == 0;
        end->remove_err = end->removed ? 0 : errno;
        if (end->removed)
            close(end->leaf_fd);
    }
    end->finished = 1;
    return 0;
}
