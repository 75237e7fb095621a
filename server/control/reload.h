// The configuration file is read again: the terms on which sessions are served (config/terms.h)
// hold from then on, for those that are there as well, as far as something can still change for
// them: limits, but not isolation. Nothing else of the file is used before the service starts
// again. Nothing changes if anything in the file is wrong. Daemon, loop thread; the file is read in
// a thread of the loop's pool, since the user database that it asks may be on another machine.

#ifndef FRMPS_SERVER_CONTROL_RELOAD_H
#define FRMPS_SERVER_CONTROL_RELOAD_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct caller;

/**
 * Tells the operator, unless it was forgotten.
 * @reloaded: whether the file is in force
 * @text: what is wrong with it; or keys that take effect at the next start, which may be none
 */
typedef void reload_done_fn(struct caller *caller, uint64_t id, bool reloaded, const char *text);

/** Begins. @id: for `done`. Return: NULL, or why it cannot be (static text) */
const char *reload_begin(struct caller *caller, uint64_t id, reload_done_fn *done);

/** This operator is gone: nobody is told. */
void reload_forget(struct daemon *daemon, const struct caller *caller);

#endif
