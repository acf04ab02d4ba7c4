/* The SPANK plugin: what plain srun, sbatch and salloc run in, is the site's default image.
 *
 * plugstack.conf has `required strata_spank.so policy=/etc/strata/containers.conf`. The image is chosen when the job is
 * submitted (by option, by STRATA_CONTAINER_IMAGE, or the default), and travels as a path in SLURM_STRATA_IMAGE
 * (variables of that prefix pass even --export=NONE). On the node its own file is asked again, as users can set variables. There strata-run makes the namespaces of the step, as
 * the user, and each task joins them before it becomes its program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy.h"

SPANK_PLUGIN(strata, 1)

static const char CHOICE[] = "SLURM_STRATA_IMAGE";
static const char ASKED[] = "STRATA_CONTAINER_IMAGE";
static const char ASKS[] = "--no-container";
static const uint32_t BATCH_STEP = 0xfffffffb;

static struct policy policy;
static char *asked;

/* Of the step: what slurmstepd has found out for its tasks. */
static char chosen[PATH_MAX];
static char failure[ENTER_WHY] = "slurmstepd has not prepared the image: it has called no slurm_spank_user_init";
static int spaces[2] = {-1, -1};

static int take_option(int option, const char *value, int remote)
{
    if (!remote) /* the node goes by what was chosen */
        asked = strdup(option ? NO_IMAGE : value);
    return 0;
}

static struct spank_option OPTIONS[] = {
    {"container-image", "NAME", "run in this image of the site instead of its default one; a name or a path", 1, 0,
     take_option},
    {"no-container", NULL, "run in no image, where the site allows that", 0, 1, take_option},
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    (void)count;
    (void)arguments;
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++)
        if (spank_option_register(spank, &OPTIONS[i]) != ESPANK_SUCCESS)
            return -1;
    return 0;
}

static int read_arguments(int count, char **arguments, char *why)
{
    for (int i = 0; i < count; i++)
        if (!strncmp(arguments[i], "policy=", 7))
            return read_policy(&policy, arguments[i] + 7, why);
    return explain(why, "plugstack.conf: policy=FILE is missing after strata_spank.so");
}

/* At submission. */
int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
    (void)spank;
    char why[ENTER_WHY];
    spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
        return 0;
    /* A step runs in what its job was given, whatever the default has become. */
    bool is_step = context == S_CTX_LOCAL && getenv("SLURM_JOB_ID") && getenv(CHOICE);
    if (is_step && !asked)
        return 0;
    /* For whoever submits jobs by programs, on sites with and without this plugin: an option would be unknown there. */
    const char *variable = getenv(ASKED), *wanted = asked ? asked : variable && *variable ? variable : NULL;
    if (read_arguments(count, arguments, why) || choose_image(&policy, wanted, getuid() == 0, ASKS, chosen, why)) {
        slurm_error("strata: %s", why);
        return -1;
    }
    return setenv(CHOICE, chosen, 1);
}

/* The value of a variable of the job, or NULL. */
static char *variable(spank_t spank, const char *name, char *value, int size)
{
    return spank_getenv(spank, name, value, size) == ESPANK_SUCCESS && *value ? value : NULL;
}

/* The command line of strata-run for it, which lies beside this plugin. */
static char **runner(const struct image *image)
{
    static const char *const HOMES[] = {[HOME_NONE] = "none", [HOME_USER] = "user", [HOME_TMP] = "tmp"};
    static char *line[2 * ENTER_BINDS + 16];
    Dl_info us = {0};
    int used = 0;
    dladdr((void *)CHOICE, &us);
    int folder = us.dli_fname ? (int)(strrchr(us.dli_fname, '/') - us.dli_fname) : 0;
    if (asprintf(&line[used++], "%.*s/strata-run", folder, us.dli_fname) < 0)
        return NULL;
    const char *const words[] = {"--hold",    "--below", image->folder,     "--root",
                                 image->root, "--home",  HOMES[image->home]};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        line[used++] = strdup(words[i]);
    for (size_t i = 0; i < image->bind_count; i++) {
        const struct bind *bind = &image->binds[i];
        line[used++] = strdup("--bind");
        if (asprintf(&line[used++], "%s:%s%s", bind->source, bind->target, bind->read_only ? ":ro" : "") < 0)
            return NULL;
    }
    return line;
}

/* In a child of slurmstepd: the user, for good, and strata-run. Only system calls: slurmstepd has threads. */
_Noreturn static void become_runner(char **line, char **environment, int input, int output)
{
    uid_t user = geteuid();
    gid_t group = getegid();
    if (seteuid(getuid()) || setresgid(group, group, group) || setresuid(user, user, user) || dup2(input, 0) < 0 ||
        dup2(output, 1) < 0 || dup2(output, 2) < 0)
        _exit(EXIT_NOT_ENTERED);
    execve(line[0], line, environment);
    dprintf(2, "%s, which is to lie beside strata_spank.so: %m", line[0]);
    _exit(EXIT_NOT_FOUND);
}

/* Another process makes the namespaces: what slurmstepd has in memory is root's, and a process that made its own would
 * have to let its user read that. All tasks of the step on this node are in the same. */
static int build_beside(const struct image *image, char *home, char *why)
{
    char variable[PATH_MAX + 8], *environment[] = {variable, NULL}, path[64];
    int input[2], output[2];
    char **line = runner(image);
    snprintf(variable, sizeof variable, "HOME=%s", home ? home : "");
    if (!line || pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC))
        return explain(why, "no pipe: %m");
    pid_t child = fork();
    if (child == 0)
        become_runner(line, environment, input[0], output[1]);
    close(input[0]);
    close(output[1]);
    ssize_t got, length = 0;
    while ((got = read(output[0], why + length, (size_t)(ENTER_WHY - 1 - length))) > 0 && why[length])
        length += got;
    bool stands = got > 0;
    if (stands) {
        snprintf(path, sizeof path, "/proc/%d/ns/user", child);
        spaces[0] = open(path, O_RDONLY | O_CLOEXEC);
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", child);
        spaces[1] = open(path, O_RDONLY | O_CLOEXEC);
        if (spaces[0] < 0 || spaces[1] < 0)
            stands = !explain(why, "%s: %m", path);
    } else {
        why[length > 0 && why[length - 1] == '\n' ? length - 1 : length] = 0;
    }
    close(input[1]);
    close(output[0]);
    waitpid(child, NULL, 0);
    return stands ? 0 : -1;
}

/* On the node, once for the step, as the user for a while. What is wrong is kept for the tasks to say: to fail here
 * would look like the node's fault, and Slurm would drain it. */
int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
    static char before[PATH_MAX], home[PATH_MAX];
    char **command = NULL;
    uint32_t step = 0;
    int words = 0;
    if (read_arguments(count, arguments, failure) ||
        choose_image(&policy, variable(spank, CHOICE, before, sizeof before), geteuid() == 0, ASKS, chosen, failure))
        return 0;
    if (strcmp(chosen, NO_IMAGE)) {
        spank_get_item(spank, S_JOB_STEPID, &step);
        spank_get_item(spank, S_JOB_ARGV, &words, &command);
        /* slurmd has put the script into a folder of this node. */
        char *script = step == BATCH_STEP && words > 0 ? command[0] : NULL;
        char *user_home = variable(spank, "HOME", home, sizeof home);
        if (fill_image(&policy, chosen, script, user_home, failure) || build_beside(&policy.image, user_home, failure))
            return 0;
        spank_setenv(spank, "STRATA_IMAGE", chosen, 1);
        /* PMIx would have ranks read files of slurmd's folder; it can send what is in them instead. */
        spank_setenv(spank, "PMIX_MCA_gds", "hash", 0);
    }
    *failure = 0;
    return 0;
}

_Noreturn static void refuse(const char *why)
{
    /* Not an error of the plugin, which `optional` would have ignored: the job would run outside. */
    dprintf(2, "strata: %s\n", why);
    _exit(EXIT_NOT_ENTERED);
}

/* On the node, as the user, in each task before it becomes the program. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    char why[ENTER_WHY], here[PATH_MAX], descriptor[16];
    (void)count;
    (void)arguments;
    if (*failure)
        refuse(failure);
    if (!strcmp(chosen, NO_IMAGE))
        return 0;
    char *there = getcwd(here, sizeof here);
    if (setns(spaces[0], CLONE_NEWUSER) || setns(spaces[1], CLONE_NEWNS)) {
        explain(why, "namespaces of the image: %m");
        refuse(why);
    }
    if (variable(spank, "PMI_FD", descriptor, sizeof descriptor))
        policy.image.keep_fd = atoi(descriptor);
    policy.image.is_guest = true;
    if (settle_in(&policy.image, there, why))
        refuse(why);
    return 0;
}
