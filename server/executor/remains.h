// What kernels of a session's modules leave behind in the context, and what is lost with it. See
// remains.c.

#ifndef FRMPS_SERVER_EXECUTOR_REMAINS_H
#define FRMPS_SERVER_EXECUTOR_REMAINS_H

#include <stdbool.h>

struct function;
struct module;
struct tenant;

/** A module was loaded. Module thread. */
void remains_add_module(struct tenant *tenant, struct module *module);

/** The module is gone. Whoever ends the session, or the module thread. */
void remains_forget(struct tenant *tenant, const struct module *module);
/** It is gone, and its number free again: nothing of it is on a device. Only who serves the session
 * says so. Module thread. */
void remains_forget_launches(struct tenant *tenant, const struct module *module);

/** Whether a kernel of a module can leave something behind. Module thread. */
bool remains_are_left_by(struct tenant *tenant, const struct module *module, const char *kernel);

/** A kernel is about to be given to the device. Serving thread. */
void remains_note_launch(struct tenant *tenant, const struct function *function);

/** Whether kernels may have left something in the context of an executor before this one. Main
 * thread, before the session is served. */
bool remains_are_lost(const struct tenant *tenant);

#endif
