/* The two processes that stand around a program with a PID namespace of its own. */
#ifndef STRATA_SUPERVISE_H
#define STRATA_SUPERVISE_H

#include <sys/types.h>

/* Block all signals, so that none is lost until somebody waits for them. */
void hold_signals(void);

/* Outside: pass signals on to the process, end as it ends. */
_Noreturn void wait_outside(pid_t child);

/* Inside, as PID 1: returns in a child that becomes the program. PID 1 itself stays, passes signals on, buries orphans,
 * and ends with the program. */
void split_inside(void);

#endif
