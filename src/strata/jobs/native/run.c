/* strata-run: start a program in an unpacked image, without any privilege. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "enter.h"

static const char USAGE[] =
    "Usage: strata-run --root DIR [OPTION]... -- PROGRAM [ARGUMENT]...\n"
    "Start a program in the unpacked image DIR, as the user who you are, without any privilege.\n"
    "\n"
    "  --root DIR            the unpacked image; it is read-only\n"
    "  --below FOLDER        DIR is a path below this folder, and no symbolic link is on the way\n"
    "  --bind SRC:DST[:ro]   show SRC of this machine as DST in the image; any number of times\n"
    "  --device PATH         a device below /dev that the program may use; any number of times\n"
    "  --workdir DIR         where the program starts, in the image; / otherwise\n"
    "  --clear-env           start with an empty environment, but for PATH and HOME\n"
    "  --env NAME=VALUE      set a variable; any number of times\n"
    "  --home none|user|tmp  the home directory: none (the default), your own, or an empty one in memory\n"
    "  --writable            let the image be written to; changes are kept in memory, and gone afterwards\n"
    "  --pid                 processes and System V IPC of its own; all processes end with the program\n"
    "  --keep-fd N           pass on this descriptor as well; all but 0, 1 and 2 are closed otherwise\n"
    "  --hold                start nothing: say a zero byte when the image stands, and wait for the end of the input; "
    "for\n"
    "                        plugins of schedulers, whose tasks join the namespaces\n"
    "\n"
    "Exit code: the program's; 125: the image could not be entered; 126: the program cannot be executed; 127: it is\n"
    "not there. With --pid, 128+N for signal N; without, the program takes this process over.\n"
    "\n"
    "Example: strata-run --root images/debian --bind /scratch:/scratch --home user -- python3 -V\n";

_Noreturn static void refuse(const char *why)
{
    dprintf(2, "strata-run: %s\n", why);
    exit(EXIT_NOT_ENTERED);
}

_Noreturn static void misused(const char *what, const char *value)
{
    dprintf(2, "strata-run: %s%s; strata-run --help shows what there is\n", what, value);
    exit(EXIT_NOT_ENTERED);
}

static enum home home_of(const char *text)
{
    static const char *const NAMES[] = {[HOME_NONE] = "none", [HOME_USER] = "user", [HOME_TMP] = "tmp"};
    for (enum home each = HOME_NONE; each <= HOME_TMP; each++)
        if (!strcmp(text, NAMES[each]))
            return each;
    misused("--home is none, user or tmp, not ", text);
}

int main(int count, char **arguments)
{
    enum { ROOT = 256, BELOW, BIND, DEVICE, WORKDIR, CLEAR_ENV, ENV, HOME, WRITABLE, PID, KEEP_FD, HOLD, HELP };
    static const struct option OPTIONS[] = {
        {"root", required_argument, 0, ROOT},
        {"below", required_argument, 0, BELOW},
        {"bind", required_argument, 0, BIND},
        {"device", required_argument, 0, DEVICE},
        {"workdir", required_argument, 0, WORKDIR},
        {"clear-env", no_argument, 0, CLEAR_ENV},
        {"env", required_argument, 0, ENV},
        {"home", required_argument, 0, HOME},
        {"writable", no_argument, 0, WRITABLE},
        {"pid", no_argument, 0, PID},
        {"keep-fd", required_argument, 0, KEEP_FD},
        {"hold", no_argument, 0, HOLD},
        {"help", no_argument, 0, HELP},
        {0},
    };
    static struct image image = {.keep_fd = -1};
    char why[ENTER_WHY], **variables = calloc((size_t)count, sizeof *variables);
    size_t variable_count = 0;
    bool clear = false, hold = false;
    opterr = 0;
    for (int option; (option = getopt_long(count, arguments, "+", OPTIONS, NULL)) != -1;) {
        switch (option) {
        case ROOT: image.root = optarg; break;
        case BELOW: image.folder = optarg; break;
        case BIND:
            if (add_bind(&image, optarg, why))
                refuse(why);
            break;
        case DEVICE:
            if (image.device_count == ENTER_DEVICES)
                refuse("too many devices");
            image.devices[image.device_count++] = optarg;
            break;
        case WORKDIR: image.workdir = optarg; break;
        case CLEAR_ENV: clear = true; break;
        case ENV:
            if (!strchr(optarg, '=') || *optarg == '=')
                misused("--env is NAME=VALUE, not ", optarg);
            variables[variable_count++] = optarg;
            break;
        case HOME: image.home = home_of(optarg); break;
        case WRITABLE: image.writable = true; break;
        case PID: image.pid = true; break;
        case KEEP_FD: image.keep_fd = atoi(optarg); break;
        case HOLD: hold = true; break;
        case HELP: return fputs(USAGE, stdout) < 0 || fflush(stdout);
        default: misused("no such option, or its value is missing: ", arguments[optind - 1]);
        }
    }
    if (!image.root)
        misused("--root DIR is missing", "");
    if (optind == count && !hold)
        misused("the program is missing", "");
    if (getauxval(AT_SECURE))
        refuse("it is installed with privileges (setuid, setgid or capabilities), and needs none: take them away");
    image.home_path = getenv("HOME");
    if (build_image(&image, why))
        refuse(why);
    if (hold) {
        char nothing = 0;
        return write(1, &nothing, 1) != 1 || read(0, &nothing, 1) != 0;
    }
    if (settle_in(&image, NULL, why))
        refuse(why);
    if (clear)
        clearenv();
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", clear);
    setenv("HOME", image.home == HOME_NONE ? "/" : image.home_path, 1);
    for (size_t i = 0; i < variable_count; i++)
        putenv(variables[i]);
    execute("strata-run", arguments + optind);
}
