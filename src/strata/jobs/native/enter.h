/* Enter an image: what strata-run, the Slurm plugin and the Grid Engine starter have in common.
 *
 * The process gets a user and a mount namespace of its own, in which an unpacked image is the root. Nothing here needs
 * a privilege, and none is left afterwards. Whoever calls it executes the program then.
 */
#ifndef STRATA_ENTER_H
#define STRATA_ENTER_H

#include <stdbool.h>
#include <stddef.h>

enum { ENTER_WHY = 1024, ENTER_BINDS = 256, ENTER_DEVICES = 256 };

/* Exit codes of the programs here, as other container runtimes have them. */
enum { EXIT_NOT_ENTERED = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

enum home { HOME_NONE, HOME_USER, HOME_TMP };

struct bind {
    const char *source; /* a path of the host; links on the way only where root made them */
    char *target;       /* a path of the image; its links lead nowhere but into the image */
    bool read_only;
};

struct image {
    const char *folder;  /* the root is below it, and no link leads there; NULL: anywhere */
    const char *root;    /* the unpacked image */
    const char *workdir; /* in the image; NULL: "/" */
    char *home_path;
    enum home home;
    bool writable; /* changes to the root are kept in memory, and gone afterwards */
    bool pid;      /* processes of its own: nothing outside is visible, and all end with the program */
    struct bind binds[ENTER_BINDS];
    size_t bind_count;
    const char *devices[ENTER_DEVICES]; /* below /dev */
    size_t device_count;
    bool is_guest; /* the process has descriptors that it needs until it executes the program */
    int keep_fd;   /* a descriptor that the program gets beside 0, 1 and 2; -1: none */
};

/* To enter is two steps: the namespaces with the image as their root, and the process that gives up what it could do in
 * them. In between, others may join the namespaces. Both return 0 in the process that is in the image, or -1 with the
 * reason in words; a process that got -1 is of no use any more, as it may be half-way in. With `pid`, the caller
 * becomes the parent that waits, and never returns. `here`: where to go if the image has it; NULL: stay. */
int build_image(struct image *image, char why[ENTER_WHY]);
int settle_in(const struct image *image, const char *here, char why[ENTER_WHY]);

/* SOURCE:TARGET[:ro], or SOURCE[:ro] for the same path; `text` is cut up. Returns 0, or -1 with the reason. */
int add_bind(struct image *image, char *text, char why[ENTER_WHY]);

/* Executes the program, which is looked for in PATH. Says on standard error why it could not. Never returns. */
_Noreturn void execute(const char *who, char **command);

/* Says something with the reason of `errno` where the format has %m. Returns -1. */
int explain(char why[ENTER_WHY], const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
