// Residual state: results of kernels in a module's variables, which are lost with the context. See
// remains.c.

#ifndef FRMPS_SERVER_EXECUTOR_REMAINS_H
#define FRMPS_SERVER_EXECUTOR_REMAINS_H

#include <stdbool.h>

struct function;
struct module;
struct tenant;

/** A module was loaded. Module thread. */
void remains_add_module(struct tenant *tenant, struct module *module);

/** The module is unloaded. Module thread, or the thread that ends the session. */
void remains_forget(struct tenant *tenant, const struct module *module);
/** The module is unloaded, and the number free again: none of its kernels is on a device. Only in
 * the executor that serves the session. Module thread. */
void remains_forget_launches(struct tenant *tenant, const struct module *module);

/** Return: true if the kernel can leave residual state. Module thread. */
bool remains_are_left_by(struct tenant *tenant, const struct module *module, const char *kernel);

/** A kernel is about to be given to the device. Serving thread. */
void remains_note_launch(struct tenant *tenant, const struct function *function);

/** Return: true if kernels may have left residual state in the context of a previous executor. Main
 * thread, before the session is served. */
bool remains_are_lost(const struct tenant *tenant);

#endif
