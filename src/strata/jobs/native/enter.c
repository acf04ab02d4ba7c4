#define _GNU_SOURCE
#include "enter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervise.h"

#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif

#define SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* What every image has in /dev. */
static const char *const DEVICES[] = {"null", "zero", "full", "random", "urandom", "tty"};
enum { NULL_DEVICE, DEVICE_COUNT = sizeof DEVICES / sizeof *DEVICES };

/* Of /proc: what only shows, and what does not even do that. The kernel lets no user write there; but it is a long
 * list, and it has been wrong before. */
static const char *const PROC_READ_ONLY[] = {"sys", "sysrq-trigger", "irq", "bus", "fs"};
static const char *const PROC_HIDDEN[] = {"kcore", "keys", "key-users", "sched_debug", "timer_list", "acpi", "scsi"};

/* Trees of mounts that are attached to nothing yet, and where things are put together. */
struct building {
    struct image *image;
    char *why;
    int host_image; /* the image where the host has it */
    int scratch;    /* a tmpfs: what the image gets that it does not have */
    int root;       /* the root to be */
    int proc, sys;  /* sys: -1 where the host has none */
    int devices[DEVICE_COUNT];
    int binds[ENTER_BINDS];
    int given[ENTER_DEVICES];
    dev_t scratch_device;
};

int explain(char why[ENTER_WHY], const char *format, ...)
{
    va_list more;
    va_start(more, format);
    vsnprintf(why, ENTER_WHY, format, more);
    va_end(more);
    return -1;
}

/* -- paths */

static bool is_directory(int fd)
{
    struct stat found;
    return !fstat(fd, &found) && S_ISDIR(found.st_mode);
}

static int open_below(int folder, const char *path, uint64_t flags, uint64_t how)
{
    struct open_how asked = {.flags = flags | O_CLOEXEC, .resolve = how, .mode = flags & O_CREAT ? 0644 : 0};
    int found;
    do
        found = (int)syscall(SYS_openat2, folder, path, &asked, sizeof asked);
    while (found < 0 && errno == EAGAIN); /* something was renamed meanwhile */
    return found;
}

/* Replaces a path of the host by one without links. A link is followed only where root made it: anybody else's may have
 * been put there by a program that wants another folder to be bound. Done before there are namespaces, as nobody is
 * root in ours; what changes after that is not followed, but refused. */
static int without_links(const char **path, const char *what, char *why)
{
    int fd = open_below(AT_FDCWD, *path, O_PATH, RESOLVE_NO_SYMLINKS);
    char rest[2 * PATH_MAX], link[PATH_MAX], name[NAME_MAX + 1];
    struct stat found;
    if (fd >= 0 && **path == '/') {
        close(fd);
        return 0;
    }
    if (fd < 0 && errno != ELOOP)
        return explain(why, "%s %s: %m", what, *path);
    if (fd >= 0)
        close(fd);
    if (strlen(*path) >= PATH_MAX)
        return explain(why, "%s: the path is too long", what);
    strcpy(rest, *path);
    int at = open(*rest == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int links = 0; *rest;) {
        size_t slashes = strspn(rest, "/"), length = strcspn(rest + slashes, "/");
        if (length > NAME_MAX)
            return explain(why, "%s %s: a name in it is too long", what, *path);
        memcpy(name, rest + slashes, length);
        name[length] = 0;
        memmove(rest, rest + slashes + length, strlen(rest + slashes + length) + 1);
        if (!length)
            continue;
        int next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0 || fstat(next, &found))
            return explain(why, "%s %s: %m", what, *path);
        if (!S_ISLNK(found.st_mode)) {
            close(at);
            at = next;
            continue;
        }
        if (found.st_uid != 0)
            return explain(why, "%s %s: %s is a symbolic link that is not root's; name the path that it leads to", what,
                           *path, name);
        ssize_t got = readlinkat(next, "", link, sizeof link - 1);
        if (got < 0 || ++links > 40 || got + strlen(rest) + 1 >= PATH_MAX)
            return explain(why, "%s %s: too many symbolic links", what, *path);
        close(next);
        link[got] = 0;
        memmove(rest + got + 1, rest, strlen(rest) + 1);
        memcpy(rest, link, (size_t)got);
        rest[got] = '/';
        if (*link == '/') {
            close(at);
            at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        }
    }
    char self[32]; /* not realpath, which looks up every part of what it read once more, and follows links there */
    snprintf(self, sizeof self, "/proc/self/fd/%d", at);
    ssize_t length = readlink(self, link, sizeof link - 1);
    close(at);
    if (length < 0)
        return explain(why, "%s %s: %m", what, *path);
    link[length] = 0;
    *path = strdup(link);
    return 0;
}

int add_bind(struct image *image, char *text, char why[ENTER_WHY])
{
    struct bind made = {.source = text};
    if (image->bind_count == ENTER_BINDS)
        return explain(why, "more than %d binds", ENTER_BINDS);
    char *colon = strrchr(text, ':');
    if (colon && !strcmp(colon, ":ro")) {
        made.read_only = true;
        *colon = 0;
    }
    colon = strchr(text, ':');
    made.target = colon ? colon + 1 : text;
    if (colon)
        *colon = 0;
    if (*made.source != '/' || *made.target != '/' || strchr(made.target, ':'))
        return explain(why, "bind %s: absolute paths are needed: SOURCE:TARGET[:ro]", text);
    if (strlen(made.target) >= PATH_MAX || strstr(made.target, "/..") || strstr(made.target, "//"))
        return explain(why, "bind %s: the target has .. or // in it, or is too long", text);
    for (char *end = strrchr(made.target, '/'); end > made.target && !end[1]; end = strrchr(made.target, '/'))
        *end = 0;
    if (!made.target[1])
        return explain(why, "bind %s: its target is the whole image; --root names another", text);
    image->binds[image->bind_count++] = made;
    return 0;
}

/* -- namespaces */

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t written = write(fd, text, strlen(text));
    int reason = errno;
    close(fd);
    errno = reason;
    return written < 0 ? -1 : 0;
}

static int no_namespaces(char *why)
{
    if (errno == EINVAL)
        return explain(why, "no user namespace: the process has several threads");
    return explain(why,
                   "no user namespace: %m; there are none in an image, and outside of one an administrator allows them "
                   "by sysctl user.max_user_namespaces (and kernel.unprivileged_userns_clone or "
                   "kernel.apparmor_restrict_unprivileged_userns, where there are such)");
}

/* User and group are inside what they are outside. Supplementary groups stay, as nobody may drop them: what they open
 * outside, they open inside. */
static int name_ourselves(uid_t user, gid_t group, char *why)
{
    char text[64];
    if (write_file("/proc/self/setgroups", "deny"))
        return explain(why, "/proc/self/setgroups: %m");
    snprintf(text, sizeof text, "%u %u 1", user, user);
    if (write_file("/proc/self/uid_map", text))
        return explain(why, "/proc/self/uid_map: %m");
    snprintf(text, sizeof text, "%u %u 1", group, group);
    if (write_file("/proc/self/gid_map", text))
        return explain(why, "/proc/self/gid_map: %m");
    /* In a namespace of its own the program would have all capabilities again. Within a container of the node's that
     * shows this read-only, the filter of system calls alone sees to it. */
    if (write_file("/proc/sys/user/max_user_namespaces", "0") && errno != EROFS)
        return explain(why, "/proc/sys/user/max_user_namespaces: %m");
    return 0;
}

/* Returns in the process that has the namespaces. */
static int take_namespaces(struct image *image, char *why)
{
    uid_t user = geteuid();
    gid_t group = getegid();
    if (!image->pid) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
            return no_namespaces(why);
        return name_ourselves(user, group, why);
    }
    int alive[2];
    if (pipe2(alive, O_CLOEXEC))
        return explain(why, "no pipe: %m");
    hold_signals();
    /* The parent stays outside: from inside there is no way to it. */
    pid_t child =
        (pid_t)syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0);
    if (child < 0)
        return no_namespaces(why);
    if (child > 0) {
        close(alive[0]);
        wait_outside(child);
    }
    close(alive[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pollfd parent = {.fd = alive[0], .events = POLLIN};
    if (poll(&parent, 1, 0) > 0) /* it ended before we could ask to be told */
        _exit(EXIT_NOT_ENTERED);
    return name_ourselves(user, group, why);
}

/* -- trees of mounts */

static int clone_tree(int folder, const char *path, uint64_t attributes, uint64_t propagation)
{
    int tree = open_tree(folder, path,
                         OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW);
    struct mount_attr set = {.attr_set = attributes, .propagation = propagation};
    if (tree >= 0 && mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &set, sizeof set)) {
        int reason = errno;
        close(tree);
        errno = reason;
        return -1;
    }
    return tree;
}

static int restrict_mount(int mount, uint64_t attributes)
{
    struct mount_attr set = {.attr_set = attributes};
    return mount_setattr(mount, "", AT_EMPTY_PATH, &set, sizeof set);
}

/* A new file system, attached to nothing; options are names and values, to a NULL. */
static int make_mount(const char *type, unsigned attributes, const char *const *options)
{
    int system = fsopen(type, FSOPEN_CLOEXEC), mount = -1;
    if (system < 0)
        return -1;
    bool taken = true;
    for (; taken && *options; options += 2)
        taken = !fsconfig(system, options[1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, options[0], options[1], 0);
    if (taken && !fsconfig(system, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        mount = fsmount(system, FSMOUNT_CLOEXEC, attributes);
    int reason = errno;
    close(system);
    errno = reason;
    return mount;
}

static int attach(int tree, int at)
{
    return move_mount(tree, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/* A place in the image. Where it is missing, it is made in what is ours: /tmp, /dev, a home in memory. */
static int mount_point(struct building *work, const char *path, bool directory)
{
    int found = open_below(work->root, path, O_PATH, RESOLVE_IN_ROOT);
    if (found >= 0 || errno != ENOENT)
        return found;
    char above[PATH_MAX];
    const char *name = strrchr(path, '/') + 1;
    snprintf(above, sizeof above, "%.*s", (int)(name - path - 1), path);
    int parent = *above ? mount_point(work, above, true) : -1;
    struct stat where;
    if (parent < 0 || fstat(parent, &where) || where.st_dev != work->scratch_device)
        return errno = ENOENT, -1;
    int made = directory ? mkdirat(parent, name, 0755) : mknodat(parent, name, S_IFREG | 0644, 0);
    close(parent);
    return made ? -1 : open_below(work->root, path, O_PATH, RESOLVE_IN_ROOT);
}

/* Attaches a tree in the image. The descriptor stays good: it is of the mount. */
static int put(struct building *work, int tree, const char *path)
{
    int at = mount_point(work, path, is_directory(tree));
    if (at < 0)
        return explain(work->why,
                       errno == ENOENT ? "%s: there is no such place in the image, nor could one be made: make it in "
                                         "the image, or in what is bound above it"
                                       : "%s in the image: %m",
                       path);
    int failed = attach(tree, at), reason = errno;
    close(at);
    errno = reason;
    return failed ? explain(work->why, "mount on %s of the image: %m", path) : 0;
}

/* -- what is taken from the host, as long as it is in sight */

static int open_image(struct building *work)
{
    struct image *image = work->image;
    if (!image->folder) {
        work->host_image = open_below(AT_FDCWD, image->root, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
    } else {
        int folder = open_below(AT_FDCWD, image->folder, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
        if (folder < 0)
            return explain(work->why, "folder of images %s: %m", image->folder);
        work->host_image = open_below(folder, image->root, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
        close(folder);
    }
    if (work->host_image < 0)
        return explain(work->why, "image %s: %m", image->root);
    return 0;
}

static int take_devices(struct building *work)
{
    char path[32];
    for (int i = 0; i < DEVICE_COUNT; i++) {
        snprintf(path, sizeof path, "/dev/%s", DEVICES[i]);
        work->devices[i] = clone_tree(AT_FDCWD, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, MS_PRIVATE);
        if (work->devices[i] < 0)
            return explain(work->why, "%s: %m", path);
    }
    int dev = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < work->image->device_count; i++) {
        const char *device = work->image->devices[i];
        if (strncmp(device, "/dev/", 5))
            return explain(work->why, "device %s: it is not below /dev", device);
        int fd = open_below(dev, device + 5, O_PATH, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
        struct stat found;
        if (fd < 0 || fstat(fd, &found))
            return explain(work->why, "device %s: %m", device);
        if (!S_ISCHR(found.st_mode) && !S_ISBLK(found.st_mode))
            return explain(work->why, "device %s: it is no device; name each device itself", device);
        work->given[i] = clone_tree(fd, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, MS_PRIVATE);
        if (work->given[i] < 0)
            return explain(work->why, "device %s: %m", device);
        close(fd);
    }
    close(dev);
    return 0;
}

static int take(struct building *work)
{
    struct image *image = work->image;
    if (open_image(work) || take_devices(work))
        return -1;
    work->root = clone_tree(work->host_image, "", SAFE | MOUNT_ATTR_RDONLY, MS_PRIVATE);
    if (work->root < 0)
        return explain(work->why, "image %s: %m", image->root);
    for (size_t i = 0; i < image->bind_count; i++) {
        struct bind *bind = &image->binds[i];
        int source = open_below(AT_FDCWD, bind->source, O_PATH, RESOLVE_NO_SYMLINKS);
        if (source < 0)
            return explain(work->why, "bind %s: %m", bind->source);
        /* What the host mounts below it later (a home, when somebody first looks) is to be seen, unless that would be
         * writable where nothing may be. */
        work->binds[i] =
            clone_tree(source, "", SAFE | (bind->read_only ? MOUNT_ATTR_RDONLY : 0), bind->read_only ? MS_PRIVATE : 0);
        if (work->binds[i] < 0)
            return explain(work->why, "bind %s: %m", bind->source);
        close(source);
    }
    const char *const none[] = {NULL};
    uint64_t plain = SAFE | MOUNT_ATTR_NOEXEC;
    work->proc =
        image->pid ? make_mount("proc", (unsigned)plain, none) : clone_tree(AT_FDCWD, "/proc", plain, MS_PRIVATE);
    if (work->proc < 0)
        return explain(work->why, "/proc: %m%s",
                       image->pid ? "; where parts of /proc are hidden already there can be no new one" : "");
    work->sys = clone_tree(AT_FDCWD, "/sys", plain | MOUNT_ATTR_RDONLY, MS_PRIVATE);
    return 0;
}

/* -- putting it together */

static bool is_missing(const struct building *work, const char *path)
{
    int found = open_below(work->host_image, path, O_PATH, RESOLVE_IN_ROOT);
    if (found >= 0)
        close(found);
    return found < 0 && errno == ENOENT;
}

/* What of an image's path is there, without links: its path in the image. Returns what is left of it. */
static const char *deepest(const struct building *work, const char *path, char found[PATH_MAX])
{
    char name[32], image[PATH_MAX];
    size_t length = strlen(path);
    for (;;) {
        snprintf(found, PATH_MAX, "%.*s", (int)length, path);
        int fd = open_below(work->host_image, length ? found : "/", O_PATH, RESOLVE_IN_ROOT);
        if (fd >= 0) {
            snprintf(name, sizeof name, "/proc/self/fd/%d", work->host_image);
            ssize_t outer = readlink(name, image, sizeof image);
            snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
            ssize_t whole = readlink(name, found, PATH_MAX - 1);
            close(fd);
            if (outer < 0 || whole < outer)
                return NULL;
            found[whole] = 0;
            if (outer > 1)
                memmove(found, found + outer, (size_t)(whole - outer) + 1);
            return path + length;
        }
        if (errno != ENOENT || !length)
            return NULL;
        while (length && path[--length] != '/')
            ;
    }
}

/* A place that the image lacks, made in the layer before that is mounted: most of an image's folders are somebody
 * else's, in which we could not make it afterwards. */
static int make_place(struct building *work, const char *path, bool directory)
{
    char parts[2 * PATH_MAX], there[PATH_MAX];
    if (!is_missing(work, path))
        return 0;
    const char *rest = deepest(work, path, there);
    if (!rest)
        return explain(work->why, "%s in the image: %m", path);
    snprintf(parts, sizeof parts, "%s/%s", there, rest);
    int at = openat(work->scratch, "upper", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *more = NULL;
    for (char *part = strtok_r(parts, "/", &more); part && at >= 0;) {
        char *next = strtok_r(NULL, "/", &more);
        int made = next || directory ? mkdirat(at, part, 0755) : mknodat(at, part, S_IFREG | 0644, 0);
        int below = made && errno != EEXIST ? -1 : openat(at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int reason = errno;
        close(at);
        errno = reason;
        at = below;
        part = next;
    }
    if (at < 0)
        return explain(work->why, "%s above the image: %m", path);
    close(at);
    return 0;
}

/* Whether our own folders cover the place, so that it can be made in them. */
static bool is_covered(const char *path)
{
    return !strncmp(path, "/dev/", 5) || !strncmp(path, "/tmp/", 5) || !strncmp(path, "/proc/", 6);
}

static bool needs_layer(const struct building *work)
{
    const struct image *image = work->image;
    bool missing = image->writable || is_missing(work, "/dev") || is_missing(work, "/proc") ||
                   is_missing(work, "/tmp") || (image->home == HOME_TMP && is_missing(work, image->home_path));
    for (size_t i = 0; !missing && i < image->bind_count; i++)
        missing = !is_covered(image->binds[i].target) && is_missing(work, image->binds[i].target);
    return missing;
}

/* A layer in memory above the image, so that it can be written to, or has places that it lacks. */
static int put_layer(struct building *work)
{
    const struct image *image = work->image;
    if (mkdirat(work->scratch, "upper", 0755) || mkdirat(work->scratch, "work", 0755))
        return explain(work->why, "layer above the image: %m");
    if (make_place(work, "/dev", true) || make_place(work, "/proc", true) || make_place(work, "/tmp", true) ||
        (image->home == HOME_TMP && make_place(work, image->home_path, true)))
        return -1;
    for (size_t i = 0; i < image->bind_count; i++)
        if (!is_covered(image->binds[i].target) &&
            make_place(work, image->binds[i].target, is_directory(work->binds[i])))
            return -1;
    char lower[32], upper[32], temporary[32];
    snprintf(lower, sizeof lower, "/proc/self/fd/%d", work->host_image);
    snprintf(upper, sizeof upper, "/proc/self/fd/%d/upper", work->scratch);
    snprintf(temporary, sizeof temporary, "/proc/self/fd/%d/work", work->scratch);
    const char *const options[] = {"lowerdir", lower, "upperdir", upper, "workdir", temporary, "userxattr", NULL, NULL};
    close(work->root);
    work->root = make_mount("overlay", (unsigned)(SAFE | (image->writable ? 0 : MOUNT_ATTR_RDONLY)), options);
    if (work->root < 0)
        return explain(
            work->why,
            "no layer above the image: %m; overlays by users need Linux 5.11, and an image on a file system "
            "that can be below one. Without one, the image must have every place that something is bound to, and "
            "cannot be writable");
    return 0;
}

/* The folder of the scratch file system becomes a mount of its own in the image. */
static int put_scratch(struct building *work, const char *name, mode_t mode, const char *path)
{
    if (mkdirat(work->scratch, name, 0700) || fchmodat(work->scratch, name, mode, 0))
        return explain(work->why, "folder for %s: %m", path);
    int tree = clone_tree(work->scratch, name, SAFE, MS_PRIVATE);
    if (tree < 0 || put(work, tree, path)) {
        if (tree < 0)
            explain(work->why, "folder for %s: %m", path);
        return -1;
    }
    return tree;
}

static int put_dev(struct building *work)
{
    static const char *const LINKS[][2] = {
        {"fd", "/proc/self/fd"}, {"stdin", "fd/0"}, {"stdout", "fd/1"}, {"stderr", "fd/2"}, {"ptmx", "pts/ptmx"}};
    static const char *const PTS[] = {"newinstance", NULL, "ptmxmode", "0666", "mode", "0620", NULL};
    char path[32];
    int dev = put_scratch(work, "dev", 0755, "/dev");
    if (dev < 0)
        return -1;
    for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++)
        if (symlinkat(LINKS[i][1], dev, LINKS[i][0]))
            return explain(work->why, "/dev/%s: %m", LINKS[i][0]);
    for (int i = 0; i < DEVICE_COUNT; i++) {
        snprintf(path, sizeof path, "/dev/%s", DEVICES[i]);
        if (put(work, work->devices[i], path))
            return -1;
    }
    for (size_t i = 0; i < work->image->device_count; i++)
        if (put(work, work->given[i], work->image->devices[i]))
            return -1;
    int pts = make_mount("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, PTS);
    if (pts < 0)
        return explain(work->why, "/dev/pts: %m");
    if (put(work, pts, "/dev/pts") || put_scratch(work, "shm", 01777, "/dev/shm") < 0)
        return -1;
    return dev;
}

static int put_proc(struct building *work)
{
    if (put(work, work->proc, "/proc"))
        return -1;
    for (size_t i = 0; i < sizeof PROC_READ_ONLY / sizeof *PROC_READ_ONLY; i++) {
        int tree = clone_tree(work->proc, PROC_READ_ONLY[i], MOUNT_ATTR_RDONLY, 0);
        if (tree < 0 ? errno != ENOENT : move_mount(tree, "", work->proc, PROC_READ_ONLY[i], MOVE_MOUNT_F_EMPTY_PATH))
            return explain(work->why, "/proc/%s: %m", PROC_READ_ONLY[i]);
    }
    for (size_t i = 0; i < sizeof PROC_HIDDEN / sizeof *PROC_HIDDEN; i++) {
        struct stat found;
        if (fstatat(work->proc, PROC_HIDDEN[i], &found, AT_SYMLINK_NOFOLLOW))
            continue;
        /* Only what is mounted somewhere can be copied (before Linux 6.15): our own /dev/null is, by now. */
        int tree = S_ISDIR(found.st_mode) ? clone_tree(work->scratch, "empty", SAFE | MOUNT_ATTR_RDONLY, 0)
                                          : clone_tree(work->devices[NULL_DEVICE], "", MOUNT_ATTR_RDONLY, 0);
        if (tree < 0 || move_mount(tree, "", work->proc, PROC_HIDDEN[i], MOVE_MOUNT_F_EMPTY_PATH))
            return explain(work->why, "/proc/%s: %m", PROC_HIDDEN[i]);
    }
    return 0;
}

static int build(struct building *work)
{
    static const char *const MODE[] = {"mode", "0755", NULL};
    struct image *image = work->image;
    struct stat found;
    work->scratch = make_mount("tmpfs", SAFE, MODE);
    if (work->scratch < 0 || fstat(work->scratch, &found))
        return explain(work->why, "no tmpfs: %m");
    work->scratch_device = found.st_dev;
    /* Only mounts that are somewhere can be copied and mounted on. Where the image is, there is a place for sure. */
    if (mkdirat(work->scratch, "root", 0755) || mkdirat(work->scratch, "empty", 0555) ||
        attach(work->scratch, work->host_image))
        return explain(work->why, "tmpfs: %m");
    if (needs_layer(work) && put_layer(work))
        return -1;
    if (move_mount(work->root, "", work->scratch, "root", MOVE_MOUNT_F_EMPTY_PATH))
        return explain(work->why, "image %s: %m", image->root);
    int dev = put_dev(work);
    if (dev < 0 || put_scratch(work, "tmp", 01777, "/tmp") < 0 || put_proc(work))
        return -1;
    if (work->sys >= 0 && !is_missing(work, "/sys") && put(work, work->sys, "/sys"))
        return -1;
    if (image->home == HOME_TMP && put_scratch(work, "home", 0700, image->home_path) < 0)
        return -1;
    for (size_t i = 0; i < image->bind_count; i++)
        if (put(work, work->binds[i], image->binds[i].target))
            return -1;
    if (restrict_mount(dev, SAFE | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY))
        return explain(work->why, "/dev: %m");
    return 0;
}

/* The host's mounts are gone after this, not only out of sight. */
static int leave_the_host(struct building *work)
{
    if (fchdir(work->root) || syscall(SYS_pivot_root, ".", "."))
        return explain(work->why, "pivot_root: %m%s",
                       errno == EINVAL ? "; the root of this machine is an initramfs, which cannot be left" : "");
    if (umount2(".", MNT_DETACH) || chdir("/"))
        return explain(work->why, "umount of the host's root: %m");
    return 0;
}

/* -- privileges */

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "name the architecture for the filter of system calls"
#endif

/* What namespaces do not keep apart: keyrings, and typing into the terminal of whoever started us. And no user namespaces
 * of the program's own: of clone3 the flags cannot be seen, and the C libraries do without it where there is none. */
static int filter_calls(char *why)
{
#define REFUSE_IF(number)                                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
    struct sock_filter program[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCHITECTURE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), /* calls by other numbers would not be seen */
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), /* x32: the same */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        REFUSE_IF(SYS_keyctl),
        REFUSE_IF(SYS_add_key),
        REFUSE_IF(SYS_request_key),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        LOAD(args[1]), /* the kernel looks at 32 bits of it */
        REFUSE_IF(TIOCSTI),
        REFUSE_IF(TIOCLINUX),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return explain(why, "filter of system calls: %m");
    return 0;
}

static int drop_privileges(char *why)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    /* Whoever has a key of the session's keyring in hand could use it. */
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return explain(why, "no_new_privs: %m");
    for (int capability = 0; capability <= 63; capability++)
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
            break;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &header, none))
        return explain(why, "capabilities: %m");
    return filter_calls(why);
}

/* Descriptors lead outside, and our own are still open: /proc/self/fd/3 would be a working directory, or a program, of
 * the host. So they go before anything that the image's author chose is looked up. In a process that needs its own
 * until it executes the program, they go with that. */
static int keep_no_files(const struct image *image, char *why)
{
    unsigned keep = image->keep_fd > 2 ? (unsigned)image->keep_fd : 2;
    unsigned how = image->is_guest ? CLOSE_RANGE_CLOEXEC : 0;
    if (keep > 2 && is_directory(image->keep_fd))
        return explain(why, "descriptor %u is a directory, and a way out of the image: do not keep it", keep);
    if ((keep > 3 && close_range(3, keep - 1, how)) || close_range(keep + 1, ~0U, how))
        return explain(why, "close_range: %m; Linux 5.11 is needed");
    return 0;
}

/* By no link of /proc: those lead where the process that they are of is, whatever the root is. */
static int go_to(const char *path)
{
    int fd = open_below(AT_FDCWD, path, O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
    int failed = fd < 0 || fchdir(fd), reason = errno;
    if (fd >= 0)
        close(fd);
    errno = reason;
    return failed;
}

static int check(struct image *image, char *why)
{
    if (geteuid() == 0 || getuid() != geteuid() || getgid() != getegid())
        return explain(why, "root and setuid programs enter no image: start it as the user whose job it is");
    for (int fd = 0; fd <= 2; fd++)
        if (is_directory(fd))
            return explain(why, "descriptor %d is a directory, and a way out of the image: close it", fd);
    if (image->home != HOME_NONE && (!image->home_path || *image->home_path != '/' || !image->home_path[1]))
        return explain(why, "HOME is not the absolute path of a home directory");
    if (image->home == HOME_USER) {
        if (image->bind_count == ENTER_BINDS)
            return explain(why, "more than %d binds", ENTER_BINDS);
        image->binds[image->bind_count++] = (struct bind){.source = image->home_path, .target = image->home_path};
    }
    if (without_links(image->folder ? &image->folder : &image->root, "image", why))
        return -1;
    for (size_t i = 0; i < image->bind_count; i++)
        if (without_links(&image->binds[i].source, "bind", why))
            return -1;
    return 0;
}

int build_image(struct image *image, char why[ENTER_WHY])
{
    struct building work = {.image = image, .why = why};
    if (check(image, why) || take_namespaces(image, why) || take(&work) || build(&work) || leave_the_host(&work))
        return -1;
    return 0;
}

int settle_in(const struct image *image, const char *here, char why[ENTER_WHY])
{
    if (keep_no_files(image, why))
        return -1;
    if (image->workdir && go_to(image->workdir))
        return explain(why, "working directory %s in the image: %m", image->workdir);
    if (here && go_to(here) && go_to("/"))
        return explain(why, "/ in the image: %m");
    if (drop_privileges(why))
        return -1;
    if (image->pid) {
        /* /proc/1/exe would be a file of the host, and writable where it is the user's. */
        prctl(PR_SET_DUMPABLE, 0);
        split_inside();
    }
    return 0;
}

_Noreturn void execute(const char *who, char **command)
{
    execvp(command[0], command);
    bool missing = errno == ENOENT || errno == ENOTDIR;
    dprintf(2, "%s: %s: %m%s\n", who, command[0],
            missing ? " (in the image; a script's or a program's interpreter may be what is missing)" : "");
    _exit(missing ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}
