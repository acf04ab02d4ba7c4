/* The site's file about images: which jobs of schedulers run in, what else they may ask for, what is shown inside.
 *
 *     images = /var/lib/strata/images     every image that a job may run in is below this folder
 *     default = sha256-3f1c.../root       what jobs run in that ask for nothing; none: in no image
 *     image pytorch = sha256-99aa.../root what --container-image=pytorch means
 *     opt-out = yes                       whether jobs may run in no image; no otherwise; or numbers of groups, whose
 *                                         members' jobs may: opt-out = 1001 1002
 *     home = user                         none, user or tmp, as of strata-run
 *     bind = /scratch                     SOURCE[:TARGET][:ro]; any number of lines
 *
 * It is read at each submission and at each start, so whoever replaces it (by a rename) changes what the next job gets.
 * What a job was given at submission is a path, and stays good as long as the folder has it.
 */
#ifndef STRATA_POLICY_H
#define STRATA_POLICY_H

#include <limits.h>
#include <sys/types.h>

#include "enter.h"

enum { POLICY_TEXT = 65536, POLICY_IMAGES = 512, POLICY_GROUPS = 64 };

struct policy {
    const char *path;
    const char *images;
    const char *fallback; /* the default; NULL: none */
    bool opt_out;
    gid_t groups[POLICY_GROUPS]; /* whose members may opt out, where not all may */
    size_t group_count;
    struct {
        const char *name, *root;
    } named[POLICY_IMAGES];
    size_t named_count;
    struct image image; /* what is the same for all */
    char text[POLICY_TEXT];
};

/* What is chosen where no image is to be. */
extern const char NO_IMAGE[];

/* Returns 0, or -1 with the reason. A file that others than root could write is refused. */
int read_policy(struct policy *policy, const char *path, char why[ENTER_WHY]);

/* What a job gets that asks for this: NULL for nothing, NO_IMAGE, a name, or a path below the folder of images.
 * `chosen` is a path or NO_IMAGE. `is_roots`: whose job it is; `asks`: how one asks for none, for the reason in words.
 */
int choose_image(const struct policy *policy, const char *asked, bool is_roots, const char *asks, char chosen[PATH_MAX],
                 char why[ENTER_WHY]);

/* Set up `policy->image` for what was chosen. `script`: a file that the scheduler has put on this machine for the job,
 * and that is to be seen inside; NULL: none. `home`: the user's. */
int fill_image(struct policy *policy, const char *chosen, char *script, char *home, char why[ENTER_WHY]);

#endif
