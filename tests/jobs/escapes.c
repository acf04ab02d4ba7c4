/* A hostile program in an image. Each attempt says what it got hold of (exit code 0: it got out) or why not (1). */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *argument = "";
static int got_out;

/* One of the ways: whether it led out. */
static void note(const char *way, int worked)
{
    printf("%s: %s\n", way, worked ? "WORKED" : strerror(errno));
    got_out |= worked;
}

static int can_write(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void remount(void)
{
    struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};
    note("remount /", !mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    note("mount_setattr /", !mount_setattr(AT_FDCWD, "/", 0, &writable, sizeof writable));
    note("mount_setattr /proc/sys", !mount_setattr(AT_FDCWD, "/proc/sys", 0, &writable, sizeof writable));
    note("write to /", creat("/new", 0600) >= 0);
}

static void unmount(void)
{
    note("umount /proc/sys", !umount2("/proc/sys", MNT_DETACH));
    note("umount /proc/keys", !umount2("/proc/keys", MNT_DETACH));
    note("umount /dev", !umount2("/dev", MNT_DETACH));
    note("umount /", !umount2("/", MNT_DETACH));
}

static void cover(void)
{
    note("bind", !mount("/tmp", "/etc", NULL, MS_BIND, NULL));
    note("move", !mount("/proc", "/tmp", NULL, MS_MOVE, NULL));
    note("open_tree", open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE) >= 0);
    note("tmpfs", !mount("x", "/tmp", "tmpfs", 0, NULL));
    note("proc", !mount("x", "/proc", "proc", 0, NULL));
    note("fsopen", fsopen("tmpfs", 0) >= 0);
    note("pivot_root", !syscall(SYS_pivot_root, "/", "/tmp"));
    note("chroot", !chroot("/tmp"));
}

static void nest(void)
{
    struct {
        uint64_t flags, rest[10];
    } asked = {.flags = CLONE_NEWUSER | CLONE_NEWNS};
    pid_t child = (pid_t)syscall(SYS_clone3, &asked, sizeof asked);
    if (child == 0)
        _exit(0);
    note("clone3", child > 0);
    note("unshare", !unshare(CLONE_NEWUSER | CLONE_NEWNS));
    note("mount in it", !mount("x", "/tmp", "tmpfs", 0, NULL));
}

static void write_proc(void)
{
    static const char *const PATHS[] = {
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/kernel/hostname",
        "/proc/sys/user/max_user_namespaces",
        "/proc/irq/default_smp_affinity",
        "/proc/1/oom_score_adj",
        "/proc/1/mem",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
    };
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++)
        note(PATHS[i], can_write(PATHS[i]));
    note("cgroup", !mkdir("/sys/fs/cgroup/mine", 0755));
}

static void look_at_proc(void)
{
    char text[4096];
    static const char *const PATHS[] = {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/key-users"};
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++) {
        int fd = open(PATHS[i], O_RDONLY);
        note(PATHS[i], fd >= 0 && read(fd, text, sizeof text) > 0);
    }
}

/* The image has this program once more, setuid root and with capabilities. */
static void setuid_program(void)
{
    for (int i = 0; i < 2; i++) {
        const char *path = i ? "/bin/capable" : "/bin/setuid";
        int status;
        pid_t child = fork();
        if (child == 0) {
            execl(path, path, "who", NULL);
            _exit(1);
        }
        waitpid(child, &status, 0);
        note(path, WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    note("setuid(0)", !setuid(0));
    note("setgroups", !syscall(SYS_setgroups, 0, NULL));
}

/* Whether this process can do more than its user. */
static void who(void)
{
    char line[256];
    unsigned long long can = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "CapEff: %llx", &can);
    note("privilege", geteuid() == 0 || can);
}

/* The argument is a process of the same user outside. */
static void outside_process(void)
{
    static const char *const FILES[] = {"mem", "environ", "root/etc", "cwd/", "fd/0", "ns/mnt", "exe", "maps"};
    pid_t other = atoi(argument);
    char path[64], bytes[8];
    struct iovec here = {bytes, sizeof bytes}, there = {(void *)0x400000, sizeof bytes};
    note("PTRACE_ATTACH", !ptrace(PTRACE_ATTACH, other, 0, 0));
    note("PTRACE_SEIZE", !ptrace(PTRACE_SEIZE, other, 0, 0));
    note("process_vm_readv", process_vm_readv(other, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT);
    int handle = (int)syscall(SYS_pidfd_open, other, 0);
    note("pidfd_getfd", handle >= 0 && syscall(SYS_pidfd_getfd, handle, 0, 0) >= 0);
    note("setns", handle >= 0 && !setns(handle, CLONE_NEWNS));
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", other, FILES[i]);
        note(path, open(path, O_RDONLY) >= 0);
    }
    note("/proc/1/root", open("/proc/1/root", O_RDONLY | O_DIRECTORY) >= 0);
}

/* In a PID namespace of its own: whoever it can see or reach is its own. */
static void others(void)
{
    int seen = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));)
        seen += atoi(entry->d_name) > 2;
    errno = 0;
    note("processes in /proc", seen > 0);
    errno = 0;
    note("kill", !kill(atoi(argument), 0));
    note("the runner's own program", can_write("/proc/1/exe"));
    note("the runner's memory", can_write("/proc/1/mem"));
    note("ptrace of the runner", !ptrace(PTRACE_ATTACH, 1, 0, 0));
    note("the runner's descriptors", opendir("/proc/1/fd") != NULL);
    kill(-1, SIGKILL); /* all that it can reach; the test looks who is left */
}

static void devices(void)
{
    static const char *const PLACES[] = {"/tmp/mem", "/dev/mem", "/dev/shm/mem", "/dev/pts/mem"};
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        note(PLACES[i], !mknod(PLACES[i], S_IFCHR | 0666, makedev(1, 1)));
        note("disk", !mknod(PLACES[i], S_IFBLK | 0666, makedev(254, 0)));
    }
    note("a device of the image", open("/bin/mem", O_RDONLY) >= 0);
    errno = 0;
    DIR *dev = opendir("/dev");
    for (struct dirent *entry; dev && (entry = readdir(dev));)
        if (!strstr(". .. null zero full random urandom tty pts shm fd stdin stdout stderr ptmx", entry->d_name))
            note(entry->d_name, 1);
}

static void descriptors(void)
{
    for (int fd = 3; fd < 256; fd++) {
        errno = 0;
        if (fcntl(fd, F_GETFD) >= 0)
            note("an open descriptor", 1);
    }
    char path[4096];
    note("the host's file", !access(argument, F_OK));
    note("the host's file, by ..", !chdir("../../../../..") && !access(argument + 1, F_OK));
    snprintf(path, sizeof path, "/proc/self/root/../..%s", argument);
    note("the host's file, by /proc/self/root", !access(path, F_OK));
}

/* On a terminal of whoever started us. */
static void type_into_terminal(void)
{
    note("TIOCSTI", !ioctl(0, TIOCSTI, "x"));
    if (errno != EPERM)
        note("TIOCSTI is not refused by the filter, but by chance", 1);
    errno = 0;
    note("TIOCSTI, in other bits", !syscall(SYS_ioctl, 0, TIOCSTI | 1UL << 32, "x"));
    if (errno != EPERM)
        note("in other bits it is refused by chance", 1);
    note("TIOCLINUX", !ioctl(0, TIOCLINUX, "\3"));
}

static void keys(void)
{
    note("session keyring", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) >= 0);
    note("user keyring", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0) >= 0);
    note("add_key", syscall(SYS_add_key, "user", "strata-test", "x", 1, KEY_SPEC_PROCESS_KEYRING) >= 0);
    note("request_key", syscall(SYS_request_key, "user", "strata-test", NULL, 0) >= 0);
}

#if defined(__x86_64__)
/* keyctl, by the numbers of 32-bit programs, which a filter that looks at numbers alone would let through. */
static void other_numbers(void)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(288L), "b"(0L), "c"(-3L), "d"(0L) : "memory");
    errno = (int)-result;
    note("keyctl by int 0x80", result >= 0);
    note("keyctl by x32", syscall(SYS_keyctl | 0x40000000, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) >= 0);
}
#endif

static void handles(void)
{
    struct file_handle *handle = calloc(1, sizeof *handle + 128);
    int mount_id;
    handle->handle_bytes = 128;
    if (name_to_handle_at(AT_FDCWD, "/etc", handle, &mount_id, 0))
        handle->handle_bytes = 8; /* any would do */
    note("open_by_handle_at", open_by_handle_at(open("/", O_RDONLY), handle, O_RDONLY) >= 0);
}

static const struct {
    const char *name;
    void (*attempt)(void);
} ATTEMPTS[] = {
    {"remount", remount},
    {"unmount", unmount},
    {"cover", cover},
    {"nest", nest},
    {"write-proc", write_proc},
    {"look-at-proc", look_at_proc},
    {"setuid", setuid_program},
    {"who", who},
    {"outside-process", outside_process},
    {"others", others},
    {"devices", devices},
    {"descriptors", descriptors},
    {"terminal", type_into_terminal},
    {"keys", keys},
    {"handles", handles},
#if defined(__x86_64__)
    {"other-numbers", other_numbers},
#endif
};

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 2)
        argument = arguments[2];
    for (size_t i = 0; count > 1 && i < sizeof ATTEMPTS / sizeof *ATTEMPTS; i++)
        if (!strcmp(arguments[1], ATTEMPTS[i].name)) {
            ATTEMPTS[i].attempt();
            return got_out ? 0 : 1;
        }
    return 2;
}
