// Drain: no process of the service has the device open, and programs stay as they are, stopped at
// their next call that needs the device. Their device memory is in host memory (standby/swap.c).
// Everything else of theirs is in records, and in the memory that they share with the daemon, as
// after the loss of an executor.
//
//             begin()                   all memory is away
//   SERVING ─────────────► DRAINING ─────────────────────────► DRAINED
//     ▲ ▲                     │                                 │   │  executors end,
//     │ └─────────────────────┘                                 │   │  then the keeper
//     │   an obstacle, refill()                                 │   ▼
//     └─────────────────────────────────────────────────────────┘  no worker is left
//                              refill()
//
//   SERVING   executors and keeper are started as ever; memory that left with a drain comes back
//   DRAINING  executors serve. A session's request that no worker has waits, new programs are
//             refused, and each session leaves as with `suspend --now`, together with those that
//             share memory with it. Of sessions without memory the same is asked, so nothing of any
//             session is on the device in the end
//   DRAINED   no worker is started. Those that are there are dismissed: no incident begins, and
//             nobody is judged
//
// Before the first session leaves, the daemon looks for what cannot leave in all of them: one
// obstacle, and nothing happens. It looks again each time, because programs go on until they leave.
//
// Events meanwhile:
//   the daemon    dies. DRAINING is SERVING again: what has left comes back. DRAINED goes on
//   an executor   is lost. DRAINING: if a session was on its way, the drain is called off.
//                 DRAINED: nothing
//   no executor   can start after a refill: DRAINED again, and the operator gets the reason
//   the device    fails (device.h). DRAINED: nobody has it, so nobody notices
//   a session     ends: its files go as with any session. If others were leaving with it, these
//                 begin once more
//   the operator  goes: the drain or the refill goes on
//
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_DEVICE_DRAIN_H
#define FRMPS_SERVER_DAEMON_DEVICE_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;

/* Why a new program gets no session. */
#define DEVICE_DRAIN_REFUSAL                                                                                 \
	"an operator has the device drained: start the program again after frmpsctl refill"

/**
 * The end of a drain or a refill.
 * @code: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY: refilled, and some memory is not back for want of
 * room; else nothing has changed for programs, or somebody has ordered the opposite
 * @text: reason of a failure
 */
typedef void device_drain_done_fn(void *context, int32_t code, const char *text);

void device_drain_init(struct daemon *daemon);
void device_drain_deinit(struct daemon *daemon);

/** Drains the device. `done` is called within, or later. There is one who waits: an order before
 * this one fails. Draining what is drained is fine. */
void device_drain_begin(struct daemon *daemon, device_drain_done_fn *done, void *context);
/** Gives the device back to programs; as device_drain_begin(). */
void device_drain_refill(struct daemon *daemon, device_drain_done_fn *done, void *context);
/** The caller is not there any more. */
void device_drain_forget(struct daemon *daemon, const void *context);

/** A worker that starts cannot open the device. Return: true if a refill was under way: the device
 * is drained as before, and nobody has lost anything */
bool device_drain_take_back(struct daemon *daemon, const char *reason);

/** Goes on with what an earlier life of the daemon had recorded. */
void device_drain_go_on(struct daemon *daemon);

#endif
