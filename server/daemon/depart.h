// Sessions go to another device of the service, at an operator's order: the giver's side of
// daemon/handover.h. One is named; all that share device memory with it go along
// (standby/swap_set.c). A session that shares none is a set of one. Programs keep their sockets,
// their shared memory and all addresses, and notice nothing. Meanwhile files have the device memory
// (standby/swap.c), and records have the rest, as after the loss of an executor.
//
//    begin()      may come        memory away      ready           detached
//   ───────► ASKS ───────► LEAVES ─────────► GIVES ─────► LETS_GO ───────► HANDS ──► left
//              │              │                │              │              │
//              └──────────────┴────────────────┴──────────────┴──────────────┘
//                  an obstacle, trouble, no answer in time: all members stay
//
//   ASKS     the members work on. The receiver is greeted (GREETS), then checks room, addresses
//            and limits
//   LEAVES   unsent requests wait, and the memory leaves the device as in a drain. The set has to
//            be the one that the receiver was asked about
//   GIVES    nothing of the members is on the device. The receiver gets records and descriptors,
//            and has executors make everything but the memory
//   LETS_GO  executors detach the members (executor/detach.c)
//   HANDS    the receiver may take the set at any moment (transfer_take()). The shared table says
//            which daemon owns all of it, even if the other one has died
//
// An operator's tool that saves programs in files (tools/save.h) is a receiver that never takes the
// set. It asks for a set, and gets the bundle and the descriptors of GIVE. The members wait, with a
// copy of their memory, until the tool answers or is gone; then all of them go on here:
//
//    depart_save()       ready        copied                    answer
//   ───────────► STASHES ───► LEAVES ──────► COPIED ──► GIVES ────────► SAVED ──► all members stay
//
// The copy is in files, or first in a stash on the device (standby/stash.h), for which room is made
// in STASHES while they work. Then the files are complete some time after GIVE, and SAVED is
// followed by STORES until they are. The tool gets a second answer then.
//
// One set at a time leaves a device. A member that ends is an obstacle for the others. After a
// death of the daemon, session_adopt() closes the transfer that the members' records name, unless
// the receiver was faster. In LETS_GO the loss of an executor is an obstacle; before, the next
// executor serves the sessions.
//
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_DEPART_H
#define FRMPS_SERVER_DAEMON_DEPART_H

#include <stdint.h>

struct connection;
struct daemon;
struct domain;
struct session;
struct worker;

/**
 * The end of a departure.
 * @code: CUDA_SUCCESS: the other device has the sessions; else all go on here
 * @text: reason of a failure
 */
typedef void depart_done_fn(void *context, int32_t code, const char *text);

/** Begins, with the session and all that share device memory with it. @to: another device of the
 * service. `done` is called within, or later. */
void depart_begin(struct session *session, uint32_t to, depart_done_fn *done, void *context);
/**
 * Begins to save a session and all that share device memory with it.
 * @connection: of a tool of an operator; taken over. The tool gets GIVE and FILES, and in the end a
 * REPLY; on failure the REPLY alone
 */
void depart_save(struct daemon *daemon, struct connection *connection, uint64_t session);
/** The caller no longer waits; the departure goes on. */
void depart_forget(struct daemon *daemon, const void *context);
/** The daemon ends, and with the daemon a departure. */
void depart_deinit(struct daemon *daemon);

/** Looks at the departure, if there is one, in the next turn. */
void depart_hurry(struct daemon *daemon);
/** The domain's executor serves: has that executor serve sessions that were detached and stay. */
void depart_look_into(struct domain *domain);
/** Repeats a request to detach a session, as worker->next_request: the daemon has died since. */
void depart_let_go_again(struct session *session, struct worker *worker);

#endif
