// The arena of a session (shm/layout.h), registered with the device in parts: each when a copy
// first names it. Most programs use a few pieces again and again, so most of the arena never gets
// pages, and no opening of a session waits for these. Registering waits for nothing on the device.

#ifndef FRMPS_SERVER_EXECUTOR_ARENA_H
#define FRMPS_SERVER_EXECUTOR_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"

struct tenant;

/** True if a copy may name these bytes of the session's arena. Any thread. @offset: in the arena */
bool arena_admits(const struct tenant *tenant, uint64_t offset, uint64_t bytes);
/** Lets the device reach the part of an address, if that is in the arena. Serving thread. */
CUresult arena_reach(struct tenant *tenant, uint64_t address);
/** Registered bytes. Any thread, once the session is not served any more. */
uint64_t arena_bytes(const struct tenant *tenant);
/** Module thread, when nothing runs. */
void arena_leave(struct tenant *tenant);

#endif
