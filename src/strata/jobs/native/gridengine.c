/* strata-grid-engine: what plain qsub runs in, is the site's default image.
 *
 *     strata-grid-engine submit POLICY                      a JSV: chooses the image when a job is submitted
 *     strata-grid-engine start POLICY PROGRAM [ARGUMENT]... a starter method: enters it where the job starts
 *
 * Grid Engine starts both without arguments of our own, so that each is a script of one line that calls this. The image
 * travels as a path in STRATA_IMAGE; `qsub -v STRATA_IMAGE=NAME` asks for another, `-v STRATA_IMAGE=none` for none. The
 * file is asked again at the start, as users can set variables.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy.h"

static const char CHOICE[] = "STRATA_IMAGE";
static const char ASKS[] = "-v STRATA_IMAGE=none";

static struct policy policy;

/* -- at submission: jsv(1) says what is spoken */

static void decide(const char *path, const char *asked, bool is_roots)
{
    char why[ENTER_WHY], chosen[PATH_MAX];
    bool failed = read_policy(&policy, path, why);
    if (policy.group_count) /* qmaster runs this as itself: whose member the user is, is asked where the job starts */
        policy.opt_out = true;
    if (failed || choose_image(&policy, asked, is_roots, ASKS, chosen, why)) {
        printf("RESULT STATE REJECT strata: %s\n", why);
        return;
    }
    printf("ENV %s %s %s\n", asked ? "MOD" : "ADD", CHOICE, chosen);
    printf("RESULT STATE CORRECT\n");
}

static int answer(const char *path)
{
    char *line = NULL, asked[PATH_MAX] = "";
    size_t size = 0;
    bool is_roots = false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (getline(&line, &size, stdin) > 0) {
        line[strcspn(line, "\r\n")] = 0;
        char name[64], value[PATH_MAX], kind[8];
        if (!strcmp(line, "QUIT")) {
            break;
        } else if (!strcmp(line, "START")) {
            *asked = is_roots = 0;
            printf("SEND ENV\nSTARTED\n");
        } else if (!strcmp(line, "BEGIN")) {
            decide(path, *asked ? asked : NULL, is_roots);
        } else if (!strcmp(line, "PARAM USER root")) {
            is_roots = true;
        } else if (sscanf(line, "ENV %7s %63s %4095[^\n]", kind, name, value) == 3 && !strcmp(name, CHOICE)) {
            strcpy(asked, value);
        }
    }
    free(line);
    return 0;
}

/* -- where the job starts */

_Noreturn static void refuse(const char *why)
{
    dprintf(2, "strata: %s\n", why);
    exit(EXIT_NOT_ENTERED);
}

/* Whether it is the script that execd keeps for this job: FOLDER/job_scripts/1, where FOLDER/active_jobs/1.1 is the
 * job's own. Else it is a program (qsub -b y). */
static bool is_spooled(const char *path)
{
    static const char SCRIPTS[] = "/job_scripts/";
    char *own = getenv("SGE_JOB_SPOOL_DIR"), *folder = own ? strdup(own) : NULL, *slash;
    for (int i = 0; i < 2 && folder && (slash = strrchr(folder, '/')); i++)
        *slash = 0;
    size_t length = folder ? strlen(folder) : 0;
    bool found = length && !strncmp(path, folder, length) && !strncmp(path + length, SCRIPTS, sizeof SCRIPTS - 1);
    free(folder);
    return found;
}

/* The shell that was asked for starts a script; the starter method stands in its place. */
static char **with_shell(char **command, int count)
{
    const char *mode = getenv("SGE_STARTER_SHELL_START_MODE"), *shell = getenv("SGE_STARTER_SHELL_PATH");
    char **whole = calloc((size_t)count + 2, sizeof *whole);
    int used = 0;
    if (mode && strcmp(mode, "unix_behavior"))
        whole[used++] = strdup(shell && *shell ? shell : "/bin/sh");
    memcpy(whole + used, command, (size_t)count * sizeof *whole);
    return whole;
}

_Noreturn static void start(const char *path, char **command, int count)
{
    char why[ENTER_WHY], chosen[PATH_MAX];
    char *asked = getenv(CHOICE);
    bool is_script = is_spooled(command[0]);
    if (read_policy(&policy, path, why) ||
        choose_image(&policy, asked && *asked ? asked : NULL, getuid() == 0, ASKS, chosen, why))
        refuse(why);
    if (strcmp(chosen, NO_IMAGE)) {
        char here[PATH_MAX], *there = getcwd(here, sizeof here);
        if (fill_image(&policy, chosen, is_script ? command[0] : NULL, getenv("HOME"), why) ||
            build_image(&policy.image, why) || settle_in(&policy.image, there, why))
            refuse(why);
        setenv(CHOICE, chosen, 1);
    }
    execute("strata", is_script ? with_shell(command, count) : command);
}

int main(int count, char **arguments)
{
    if (count == 3 && !strcmp(arguments[1], "submit"))
        return answer(arguments[2]);
    if (count > 3 && !strcmp(arguments[1], "start"))
        start(arguments[2], arguments + 3, count - 3);
    dprintf(2,
            "Usage: strata-grid-engine submit POLICY\n"
            "       strata-grid-engine start POLICY PROGRAM [ARGUMENT]...\n"
            "The first is a JSV, the second a starter method of Grid Engine: jobs run in the image that POLICY names.\n"
            "Example: exec strata-grid-engine start /etc/strata/containers.conf \"$@\"\n");
    return EXIT_NOT_ENTERED;
}
