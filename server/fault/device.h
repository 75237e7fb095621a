// Faults of the device itself, which no program has caused and no other executor outlasts: it fell
// off the bus, its firmware does not answer, its memory lost bits, or its driver holds the keeper,
// which was killed.
//
//   SERVING ── device_fail() ──► FAILED, until the service is restarted
//
// FAILED  every session gets a sticky error, new ones are refused with the same, executors are
//         killed, and neither they nor the keeper are started again.
//
// A fault that the device contains costs the sessions of one domain only: device_contain(). So does
// an executor that was killed and does not end: what holds it may be its user's, a file system for
// one. Where the device holds it, those of other domains follow one by one. Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_FAULT_DEVICE_H
#define FRMPS_SERVER_FAULT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/session/health.h"

struct daemon;
struct domain;
struct worker;
struct xid;

const char *device_state_name(enum device_state state);

/** The device has failed. Twice is fine: the first reason stays. */
void device_fail(struct daemon *daemon, int32_t code, const char *reason);
/** What follows from that. Twice is fine: the daemon may have died meanwhile. */
void device_end_all(struct daemon *daemon);

/** A fault of the device has hurt one executor of a domain: its sessions get the code, and the
 * domain goes. */
void device_contain(struct domain *domain, int32_t code, const char *reason);

/**
 * A worker has said Lost: it lost its context, or it cannot open the device. In a service that was
 * ready before, the latter is the device's failure if nobody is served any more.
 * Return: whether that is the device's doing, and was dealt with
 */
bool device_take_lost(struct worker *worker);

/** A witness tells of a fault of this device. @xid: of scope XID_CONTAINED or XID_OF_DEVICE */
void device_take_xid(struct daemon *daemon, const struct xid *xid);

/**
 * A worker was killed and does not end. If it is the keeper, the device has failed; if the sessions
 * of an executor wait for that, they get an error, and their domain goes. A service that leaves
 * leaves it behind: frees it.
 */
void device_take_stay(struct worker *worker);

#endif
