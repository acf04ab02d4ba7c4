#define _GNU_SOURCE
#include "policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char NO_IMAGE[] = "none";

static char *trimmed(char *text)
{
    text += strspn(text, " \t");
    for (char *end = text + strlen(text); end > text && strchr(" \t\r", end[-1]);)
        *--end = 0;
    return text;
}

static int take_groups(struct policy *policy, char *words, char *why)
{
    for (char *word; (word = strsep(&words, " \t"));) {
        char *end;
        unsigned long group = strtoul(word, &end, 10);
        if (!*word)
            continue;
        if (*end || *word == '-' || group > UINT_MAX - 1)
            return explain(why, "opt-out is yes, no, or numbers of groups, not %s", word);
        if (policy->group_count == POLICY_GROUPS)
            return explain(why, "more than %d groups may opt out", POLICY_GROUPS);
        policy->groups[policy->group_count++] = (gid_t)group;
    }
    return 0;
}

/* Whether this process may, which is its user's. */
static bool may_opt_out(const struct policy *policy)
{
    static gid_t mine[65536]; /* the kernel's most */
    int count = policy->group_count ? getgroups(sizeof mine / sizeof *mine - 1, mine) : 0;
    if (count < 0)
        count = 0;
    mine[count++] = getegid();
    for (size_t i = 0; i < policy->group_count; i++)
        for (int j = 0; j < count; j++)
            if (policy->groups[i] == mine[j])
                return true;
    return policy->opt_out;
}

static int take_line(struct policy *policy, char *name, char *value, char *why)
{
    if (!strcmp(name, "images")) {
        policy->images = value;
    } else if (!strcmp(name, "default")) {
        policy->fallback = strcmp(value, NO_IMAGE) ? value : NULL;
    } else if (!strcmp(name, "opt-out")) {
        policy->opt_out = !strcmp(value, "yes");
        if (!policy->opt_out && strcmp(value, "no"))
            return take_groups(policy, value, why);
    } else if (!strcmp(name, "home")) {
        if (strcmp(value, "none") && strcmp(value, "user") && strcmp(value, "tmp"))
            return explain(why, "home is none, user or tmp, not %s", value);
        policy->image.home = *value == 'n' ? HOME_NONE : *value == 'u' ? HOME_USER : HOME_TMP;
    } else if (!strcmp(name, "bind")) {
        return add_bind(&policy->image, value, why);
    } else if (!strncmp(name, "image ", 6)) {
        if (policy->named_count == POLICY_IMAGES)
            return explain(why, "more than %d images", POLICY_IMAGES);
        policy->named[policy->named_count].name = trimmed(name + 6);
        policy->named[policy->named_count++].root = value;
    } else {
        return explain(why, "nobody knows %s; there are images, default, image NAME, opt-out, home and bind", name);
    }
    return 0;
}

static int read_text(struct policy *policy, char *why)
{
    int fd = open(policy->path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (fd < 0 || fstat(fd, &found))
        return explain(why, "%s: %m", policy->path);
    ssize_t length = read(fd, policy->text, sizeof policy->text - 1);
    close(fd);
    if (length < 0)
        return explain(why, "%s: %m", policy->path);
    if (found.st_uid != 0 || found.st_mode & (S_IWGRP | S_IWOTH))
        return explain(why, "%s: others than root can write it; chown root, chmod go-w", policy->path);
    if (found.st_size >= (off_t)sizeof policy->text)
        return explain(why, "%s: more than %d bytes", policy->path, POLICY_TEXT - 1);
    policy->text[length] = 0;
    return 0;
}

int read_policy(struct policy *policy, const char *path, char why[ENTER_WHY])
{
    char reason[ENTER_WHY / 2];
    *policy = (struct policy){.path = path, .image = {.keep_fd = -1}};
    if (read_text(policy, why))
        return -1;
    int number = 0;
    for (char *next = policy->text, *line; (line = strsep(&next, "\n"));) {
        number++;
        line[strcspn(line, "#")] = 0;
        char *name = trimmed(line), *equals = strchr(name, '=');
        if (!*name)
            continue;
        if (equals)
            *equals = 0;
        if (!equals || !*trimmed(equals + 1))
            return explain(why, "%s line %d: a line is NAME = VALUE", path, number);
        if (take_line(policy, trimmed(name), trimmed(equals + 1), why)) {
            snprintf(reason, sizeof reason, "%.*s", (int)sizeof reason - 1, why);
            return explain(why, "%s line %d: %s", path, number, reason);
        }
    }
    if (!policy->images || *policy->images != '/')
        return explain(why, "%s: images = FOLDER is missing, an absolute path", path);
    return 0;
}

/* An image's path, absolute. */
static int below_images(const struct policy *policy, const char *root, char chosen[PATH_MAX], char *why)
{
    size_t length = strlen(policy->images);
    bool inside = *root != '/' || (!strncmp(root, policy->images, length) && root[length] == '/');
    if (!inside || strstr(root, ".."))
        return explain(why, "image %s is not below %s, where this site has its images (%s)", root, policy->images,
                       policy->path);
    int written = snprintf(chosen, PATH_MAX, *root == '/' ? "%.0s%s" : "%s/%s", policy->images, root);
    return written < PATH_MAX ? 0 : explain(why, "image %s: the path is too long", root);
}

int choose_image(const struct policy *policy, const char *asked, bool is_roots, const char *asks, char chosen[PATH_MAX],
                 char why[ENTER_WHY])
{
    bool wants_none = asked && !strcmp(asked, NO_IMAGE);
    if (wants_none && !is_roots && !may_opt_out(policy))
        return explain(why, "this site has every job run in an image (%s: %s)", policy->path,
                       policy->group_count ? "opt-out is for groups that you are in none of" : "opt-out = no");
    if (wants_none || (!asked && !policy->fallback)) {
        strcpy(chosen, NO_IMAGE);
        return 0;
    }
    if (is_roots)
        return explain(why, "root's jobs run in no image: submit it as a user, or with %s", asks);
    const char *root = asked ? asked : policy->fallback;
    for (size_t i = 0; i < policy->named_count; i++)
        if (!strcmp(policy->named[i].name, root))
            return below_images(policy, policy->named[i].root, chosen, why);
    if (asked && *asked != '/') {
        size_t used = (size_t)snprintf(why, ENTER_WHY, "there is no image %s; there are:", asked);
        for (size_t i = 0; i < policy->named_count && used < ENTER_WHY; i++)
            used += (size_t)snprintf(why + used, ENTER_WHY - used, " %s", policy->named[i].name);
        if (!policy->named_count)
            return explain(why, "there is no image %s: %s names none", asked, policy->path);
        return -1;
    }
    return below_images(policy, root, chosen, why);
}

static int show_host(struct image *image, char *path, bool read_only, char *why)
{
    if (image->bind_count == ENTER_BINDS)
        return explain(why, "more than %d binds", ENTER_BINDS);
    image->binds[image->bind_count++] = (struct bind){.source = path, .target = path, .read_only = read_only};
    return 0;
}

int fill_image(struct policy *policy, const char *chosen, char *script, char *home, char why[ENTER_WHY])
{
    /* All tasks of a job on a node see the same of both: MPI has its shared memory there. */
    static char SHARED[2][9] = {"/tmp", "/dev/shm"};
    struct image *image = &policy->image;
    image->folder = policy->images;
    image->root = chosen + strlen(policy->images) + 1;
    image->home_path = home;
    if (show_host(image, SHARED[0], false, why) || show_host(image, SHARED[1], false, why))
        return -1;
    return script ? show_host(image, script, true, why) : 0;
}
