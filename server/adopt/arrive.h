// Sessions come from another device of the service: the receiver's side of daemon/handover.h. They
// are a set, often of one. The daemon adopts them like those of an earlier life (adoption.h), from
// records and descriptors, and stores both as its own. They are ELSEWHERE until the daemon takes
// them, all at once.
//
//              ASK             may come            GIVE             all descriptors
//   LISTENS ─────────► LOOKS ───────────► LISTENS ───────► GATHERS ────────────────► MAKES
//                                                                                      │ made, and fits
//                                                      served here ◄────TAKE──── READY ◄
//                               the last FILLED             │ from files
//                        the end ◄──────────────── FILLS ◄──┘
//
//   LOOKS    waits until executors have closed what an earlier stay of the sessions left
//   GATHERS  receives descriptors
//   MAKES    the active executors and standbys make all of the sessions but the memory, and an
//            active executor reports the free memory
//   READY    waits for TAKE. A loss of an active executor drops the sessions
//   FILLS    brings device memory to the device as far as the files have it. The programs stand
//            still, and executors issue nothing of them without all of their memory
//
// Sessions from files (daemon/handover.h) come the same way. Their giver is a tool of an operator,
// and they get numbers of this daemon.
//
// A failure in any step drops all of them here, and the giver keeps all: in FILLS they end, and so
// they do with this life of the daemon. One set comes at a time.
//
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_ARRIVE_H
#define FRMPS_SERVER_ADOPT_ARRIVE_H

struct connection;
struct daemon;
struct wire_message;

/**
 * Takes over a connection. The peer of a HELLO has to be a daemon of the service, and that of a
 * RESTORE is an operator.
 * @message: the first one
 */
void arrive_begin(struct daemon *daemon, struct connection *connection, const struct wire_message *message);
/** The daemon ends: drops arriving sessions. */
void arrive_deinit(struct daemon *daemon);

#endif
