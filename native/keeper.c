/* The keeper: outlives a supervisor that was killed, and ends what it left running.
 *
 *   leafkeeper PIDFD CONTROL PID
 *
 * PIDFD is of the supervisor, CONTROL a socket from it, PID its number as it stands in the names of its leaves
 * (run-PID-N). Each message on CONTROL is "+PATH": a subtree in which it makes leaves, or "*PATH": one that is
 * to go with the last leaf. When the supervisor has died, every leaf of its name whose lock is free is killed
 * and removed, until two scans find none; then the keeper goes. The locks tell its leaves from those of a
 * supervisor that has the same number in another pid namespace: they are held as long as that one lives. For a
 * moment one of its own may be held still, by what it had forked and what has not come to its exec yet, which
 * closes its copies: the keeper goes on looking for a while, less and less often. Messages that were sent before
 * the death are read before anything is done.
 *
 * A static program in a session of its own, outside all leaves, with nothing of the supervisor's memory.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SUBTREES 256
#define PATH_LENGTH 4096
#define PAUSE_MS 1
#define LONGEST_PAUSE_MS 100
#define GIVE_UP_MS 10000
#define LISTED 1024

static struct {
    char *path;
    int fd;
    int remove;
} subtrees[SUBTREES];

static char prefix[32];

static long long milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void forget(int i)
{
    free(subtrees[i].path);
    close(subtrees[i].fd);
    subtrees[i].path = NULL;
}

static void remember(const char *path, int remove)
{
    int free_one = -1;

    for (int i = 0; i < SUBTREES; i++) {
        if (subtrees[i].path && (strcmp(subtrees[i].path, path) == 0 || access(subtrees[i].path, F_OK) < 0))
            forget(i); /* it was made anew, or removed */
        if (!subtrees[i].path && free_one < 0)
            free_one = i;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || free_one < 0)
        return;
    subtrees[free_one].path = strdup(path);
    subtrees[free_one].fd = fd;
    subtrees[free_one].remove = remove;
    if (!subtrees[free_one].path)
        close(fd);
}

/* One message; 0 when there is none, or never will be. */
static int take_message(int control)
{
    static char text[PATH_LENGTH + 2];
    ssize_t n = recv(control, text, sizeof text - 1, MSG_DONTWAIT);

    if (n <= 0)
        return 0;
    text[n] = '\0';
    remember(text + 1, text[0] == '*');
    return 1;
}

static void write_one(int dir, const char *file)
{
    int fd = openat(dir, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0) {
        (void)!write(fd, "1", 1);
        close(fd);
    }
}

static int listed(int leaf, int *pids, int room)
{
    int fd = openat(leaf, "cgroup.procs", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    FILE *list = fd < 0 ? NULL : fdopen(fd, "re");
    int n = 0;

    if (!list)
        return 0;
    while (n < room && fscanf(list, "%d", &pids[n]) == 1)
        n++;
    fclose(list);
    return n;
}

static DIR *entered(int dir, const char *name)
{
    (void)fchmodat(dir, name, 0700, 0); /* whatever its program made of it */
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !list)
        close(fd);
    return list;
}

static int is_cgroup(const struct dirent *entry)
{
    return entry->d_type == DT_DIR && entry->d_name[0] != '.';
}

/* Before Linux 5.14 there is no cgroup.kill: each is killed through a pidfd, and again in the next scan if one
 * got away. Who is listed still once the pidfd is open is whom it stands for, or has taken the number of one
 * who is dead, and then the signal goes nowhere. */
static void kill_listed(int leaf)
{
    static int pids[LISTED], again[LISTED];
    int n = listed(leaf, pids, LISTED);

    for (int i = 0; i < n; i++) {
        int pidfd = pids[i] > 0 ? (int)syscall(SYS_pidfd_open, pids[i], 0) : -1;
        if (pidfd < 0)
            continue;
        int m = listed(leaf, again, LISTED);
        for (int j = 0; j < m; j++)
            if (again[j] == pids[i])
                (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        close(pidfd);
    }
}

/* And in each cgroup that the leaf's program made below it. */
static void kill_each(int dir, const char *name)
{
    DIR *list = entered(dir, name);

    if (!list)
        return;
    kill_listed(dirfd(list));
    for (struct dirent *entry; (entry = readdir(list));)
        if (is_cgroup(entry))
            kill_each(dirfd(list), entry->d_name);
    closedir(list);
}

/* Depth first, whatever the modes: the leaf's program may have made cgroups of its own. */
static void remove_below(int dir, const char *name)
{
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return;
    DIR *list = entered(dir, name);
    if (!list)
        return;
    for (struct dirent *entry; (entry = readdir(list));)
        if (is_cgroup(entry))
            remove_below(dirfd(list), entry->d_name);
    closedir(list);
    (void)unlinkat(dir, name, AT_REMOVEDIR);
}

enum found { NOTHING, HELD, OURS };

static enum found end_leaf(int dir, const char *name)
{
    int leaf = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (leaf < 0)
        return NOTHING;
    if (flock(leaf, LOCK_EX | LOCK_NB) < 0) {
        close(leaf);
        return HELD;
    }
    if (faccessat(leaf, "cgroup.kill", F_OK, 0) == 0)
        write_one(leaf, "cgroup.kill");
    else
        kill_each(dir, name);
    remove_below(dir, name);
    close(leaf);
    return OURS;
}

/* The most of what was found: one of ours, one that is held, nothing. */
static enum found scan(void)
{
    enum found most = NOTHING;

    for (int i = 0; i < SUBTREES; i++) {
        if (!subtrees[i].path)
            continue;
        int fd = openat(subtrees[i].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = fd < 0 ? NULL : fdopendir(fd);
        if (!list)
            continue;
        for (struct dirent *entry; (entry = readdir(list));)
            if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
                enum found found = end_leaf(fd, entry->d_name);
                if (found > most)
                    most = found;
            }
        closedir(list);
    }
    return most;
}

static void clean_up(void)
{
    long long until = milliseconds() + GIVE_UP_MS;
    int empty = 0, pause = PAUSE_MS;

    while (empty < 2 && milliseconds() < until) {
        enum found found = scan();
        empty = found == NOTHING ? empty + 1 : 0;
        poll(NULL, 0, pause);
        if (found == HELD)
            pause = pause * 2 < LONGEST_PAUSE_MS ? pause * 2 : LONGEST_PAUSE_MS;
    }
    for (int i = 0; i < SUBTREES; i++)
        if (subtrees[i].path && subtrees[i].remove)
            (void)rmdir(subtrees[i].path); /* only if nobody has a leaf in it */
}

int main(int argc, char **argv)
{
    sigset_t all;

    if (argc != 4)
        return 2;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_NAME, "leafkeeper");
    prctl(PR_SET_DUMPABLE, 0);
    (void)!chdir("/");
    snprintf(prefix, sizeof prefix, "run-%d-", atoi(argv[3]));

    struct pollfd fds[2] = {{.fd = atoi(argv[1]), .events = POLLIN}, {.fd = atoi(argv[2]), .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return 1;
        while (take_message(atoi(argv[2])))
            ;
        if (fds[0].revents)
            break;
        if (fds[1].revents & (POLLHUP | POLLERR))
            fds[1].fd = -1; /* the supervisor closed its end; it is its death that counts */
    }
    clean_up();
    return 0;
}
