// Reading the configuration file again: from then on the new terms of sessions (config/terms.h)
// hold, for present sessions too, as far as these can still change: limits, but not isolation.
// Nothing else of the file is used before the service starts again. Nothing changes if anything in
// the file is wrong. Daemon, loop thread; a thread of the loop's pool reads the file, since the
// user database may be on another machine.

#ifndef FRMPS_SERVER_CONTROL_RELOAD_H
#define FRMPS_SERVER_CONTROL_RELOAD_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct caller;

/**
 * Answers the operator, unless forgotten.
 * @reloaded: true if the file is in force
 * @text: the errors of the file; or keys that take effect at the next start, which may be none
 */
typedef void reload_done_fn(struct caller *caller, uint64_t id, bool reloaded, const char *text);

/** Begins. @id: for `done`. Return: NULL, or the reason for a refusal (static text) */
const char *reload_begin(struct caller *caller, uint64_t id, reload_done_fn *done);

/** This operator is gone: nobody gets an answer. */
void reload_forget(struct daemon *daemon, const struct caller *caller);

#endif
