// Faults of the device itself, which no program has caused and no other executor outlasts: the
// device fell off the bus, its firmware does not answer, its memory lost bits, or its driver holds
// the keeper, which was killed.
//
//   SERVING ── device_fail() ──► FAILED, until the service is restarted
//
// The states of a device that an operator has drained are in device_drain.h.
//
// FAILED  every session gets a sticky error, new sessions get the same error, executors are
//         killed, and no executor or keeper is started again.
//
// A fault that the device contains costs the sessions of one domain only. So does an
// executor that was killed and does not end: a user's resource may hold the process, a file
// system for example. If the device holds the process, executors of other domains follow one by
// one. Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_DEVICE_H
#define FRMPS_SERVER_DAEMON_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/session/health.h"

struct daemon;
struct worker;
struct xid;

const char *device_state_name(enum device_state state);

/** The device has failed. Twice is fine: the first reason stays. */
void device_fail(struct daemon *daemon, int32_t code, const char *reason);
/** Ends all sessions and workers after the failure. Calling this twice is fine: the daemon may have
 * died meanwhile. */
void device_end_all(struct daemon *daemon);

/**
 * A worker has sent Lost: the worker has lost its context, or cannot open the device. If the
 * service was ready before and nobody is served any more, a device that cannot be opened has
 * failed.
 * Return: true if the device is the cause, and the loss was dealt with
 */
bool device_take_lost(struct worker *worker);

/** A witness reports a fault of this device. @xid: of scope XID_CONTAINED or XID_OF_DEVICE */
void device_take_xid(struct daemon *daemon, const struct xid *xid);

/**
 * A worker was killed and does not end. A keeper that does not end means that the device has
 * failed; if the sessions of an executor wait for its end, they get an error, and their domain
 * ends.
 * Return: true if the daemon is shutting down, and leaves the process behind
 */
bool device_take_stay(struct worker *worker);

#endif
