/* deny CALL=ERRNO|CALL=kill... -- PROGRAM [ARG...]: becomes PROGRAM under a seccomp filter, for it and all
 * its descendants, by which those system calls fail with that errno, or kill whoever makes them. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

static const struct {
    const char *name;
    unsigned int number;
} calls[] = {
    {"clone3", SYS_clone3},
    {"kill", SYS_kill},
    {"tkill", SYS_tkill},
    {"rt_sigqueueinfo", SYS_rt_sigqueueinfo},
};

static struct sock_filter filter[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
static unsigned short length = 1;

static void add(const char *rule)
{
    const char *equals = strchr(rule, '=');

    for (size_t i = 0; equals && i < sizeof calls / sizeof *calls; i++) {
        if (strlen(calls[i].name) != (size_t)(equals - rule) || strncmp(rule, calls[i].name, equals - rule))
            continue;
        unsigned int action = strcmp(equals, "=kill") == 0
                                  ? SECCOMP_RET_KILL_PROCESS
                                  : SECCOMP_RET_ERRNO | (unsigned int)atoi(equals + 1);
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
        return;
    }
    fprintf(stderr, "deny: %s is no rule\n", rule);
    exit(99);
}

int main(int argc, char **argv)
{
    int i = 1;

    for (; i < argc && strcmp(argv[i], "--") != 0; i++)
        add(argv[i]);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = length, .filter = filter};
    if (i + 1 >= argc || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
        perror("deny");
        return 99;
    }
    execvp(argv[i + 1], argv + i + 1);
    perror(argv[i + 1]);
    return 99;
}
