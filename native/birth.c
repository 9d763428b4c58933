/* Birth: make the leaf, write its limits and read each back, spawn into it, register with the loop. One
 * call, since each separate one costs the interpreter's lock a hand-over. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

static int stop_at(struct agentd_birth *birth, int stage, int err)
{
    birth->spawn.error.stage = stage;
    birth->spawn.error.err = err;
    return -1;
}

static void write_limit(int leaf_fd, struct agentd_write *limit)
{
    size_t length = strlen(limit->value);
    ssize_t n;

    limit->err = 0;
    limit->differs = 0;
    limit->readback[0] = '\0';
    /* Never O_CREAT: on a tmpfs in the place of a cgroup mount that makes a regular file (G13). */
    int fd = openat(leaf_fd, limit->file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == EACCES)
        fd = openat(leaf_fd, limit->file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        limit->err = errno;
        return;
    }
    n = write(fd, limit->value, length);
    if (n < 0)
        limit->err = errno;
    else if ((size_t)n != length)
        limit->err = EIO;
    if (!limit->err && limit->expect) {
        n = pread(fd, limit->readback, sizeof limit->readback - 1, 0);
        if (n < 0) {
            limit->err = errno;
        } else {
            limit->readback[n] = '\0';
            if (n > 0 && limit->readback[n - 1] == '\n')
                limit->readback[n - 1] = '\0';
            limit->differs = strcmp(limit->readback, limit->expect) != 0;
        }
    }
    close(fd);
}

/* Writes each, reads each back; returns how many are not in force. */
int agentd_write_limits(int leaf_fd, struct agentd_write *writes, int n)
{
    int refused = 0;

    for (int i = 0; i < n; i++) {
        write_limit(leaf_fd, &writes[i]);
        if (writes[i].err || writes[i].differs)
            refused++;
    }
    return refused;
}

/* 1 populated, 0 empty, -errno. Reading also arms the next EPOLLPRI of the descriptor. */
int agentd_populated(int events_fd)
{
    char text[256];
    ssize_t n = pread(events_fd, text, sizeof text - 1, 0);

    if (n < 0)
        return -errno;
    text[n] = '\0';
    return strstr(text, "populated 0") ? 0 : 1;
}

static int frozen(int events_fd)
{
    char text[256];
    ssize_t n = pread(events_fd, text, sizeof text - 1, 0);

    if (n < 0)
        return 0;
    text[n] = '\0';
    return strstr(text, "frozen 1") != NULL;
}

static int make_leaf(struct agentd_birth *birth)
{
    if (mkdirat(birth->parent_fd, birth->name, 0755) < 0)
        return stop_at(birth, AGENTD_MKDIR, errno);
    birth->leaf_fd = openat(birth->parent_fd, birth->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (birth->leaf_fd < 0) {
        int err = errno;
        unlinkat(birth->parent_fd, birth->name, AT_REMOVEDIR);
        return stop_at(birth, AGENTD_OPEN_LEAF, err);
    }
    if (flock(birth->leaf_fd, LOCK_EX | LOCK_NB) < 0)
        return stop_at(birth, AGENTD_LOCK_LEAF, errno);
    birth->events_fd = openat(birth->leaf_fd, "cgroup.events", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (birth->events_fd < 0)
        return stop_at(birth, AGENTD_OPEN_LEAF, errno);
    return 0;
}

static int register_child(struct agentd_birth *birth)
{
    if (birth->epoll_fd < 0)
        return 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = birth->spawn.pidfd};
    if (epoll_ctl(birth->epoll_fd, EPOLL_CTL_ADD, birth->spawn.pidfd, &event) < 0)
        return stop_at(birth, AGENTD_EPOLL, errno);
    return 0;
}

/* Returns 0, or -1 with spawn.error set. On -1 the leaf, if it was made, is kept open in leaf_fd for
 * another try or for agentd_birth_undo; a pidfd that is set belongs to a child to be killed and reaped. */
int agentd_birth(struct agentd_birth *birth)
{
    birth->spawn.error = (struct agentd_error){0, 0};
    birth->spawn.pid = -1;
    birth->spawn.pidfd = -1;
    birth->spawn.exec_fd = -1;
    if (birth->parent_fd >= 0 && birth->leaf_fd < 0) {
        birth->events_fd = -1;
        if (make_leaf(birth) < 0)
            return -1;
    }
    if (birth->leaf_fd >= 0) {
        if (agentd_write_limits(birth->leaf_fd, birth->before, birth->n_before) && !birth->accept_limits)
            return stop_at(birth, AGENTD_LIMIT, 0);
        if (birth->leaf_only)
            return 0;
        /* A vfork-style clone would hang us; of a fork-style child we would wait for the exec (G33). */
        if (frozen(birth->events_fd))
            return stop_at(birth, AGENTD_FROZEN, EBUSY);
    }
    for (int i = 0; i < birth->n_watched; i++) {
        char *text = birth->seen + (size_t)i * AGENTD_SEEN;
        ssize_t n = pread(birth->watched[i], text, AGENTD_SEEN - 1, 0);
        text[n > 0 ? n : 0] = '\0';
    }
    if (birth->where && !getcwd(birth->where, birth->where_size)) {
        /* It was removed: proc(5) has it still. */
        ssize_t n = readlink("/proc/self/cwd", birth->where, birth->where_size - 1);
        birth->where[n > 0 ? n : 0] = '\0';
    }
    birth->spawn.cgroup_fd = birth->leaf_fd;
    if (agentd_spawn(&birth->spawn) < 0)
        return -1;
    if (birth->leaf_fd >= 0 && agentd_write_limits(birth->leaf_fd, birth->after, birth->n_after) &&
        !birth->accept_limits)
        return stop_at(birth, AGENTD_LIMIT, 0);
    return register_child(birth);
}

/* Closes what a failed birth left open and removes its leaf. */
void agentd_birth_undo(struct agentd_birth *birth)
{
    if (birth->events_fd >= 0)
        close(birth->events_fd);
    if (birth->leaf_fd >= 0) {
        close(birth->leaf_fd);
        unlinkat(birth->parent_fd, birth->name, AT_REMOVEDIR);
    }
    birth->events_fd = -1;
    birth->leaf_fd = -1;
}
