// A session comes from another device of the service: the receiver's side of daemon/handover.h. The
// daemon adopts the session like one of an earlier life (adoption.h), from records and descriptors,
// and stores both as its own. The session is ELSEWHERE until the daemon takes the session.
//
//              ASK             may come            GIVE             all descriptors
//   LISTENS ─────────► LOOKS ───────────► LISTENS ───────► GATHERS ────────────────► MAKES
//                                                                                      │ made, and fits
//                                                      served here ◄────TAKE──── READY ◄
//
//   LOOKS    waits until executors have closed what an earlier stay of the session left
//   GATHERS  receives descriptors
//   MAKES    the active executor and standbys make all of the session but the memory, and the
//            active executor reports the free memory
//   READY    waits for TAKE. A loss of the active executor drops the session
//
// A failure in any step drops the session here, and the giver keeps the session. One session comes
// at a time.
//
// Daemon, loop thread only.

#ifndef FRMPS_SERVER_ADOPT_ARRIVE_H
#define FRMPS_SERVER_ADOPT_ARRIVE_H

struct connection;
struct daemon;
struct wire_message;

/**
 * Takes over a connection, and checks that the peer is a daemon of the service.
 * @message: HELLO, the first message
 */
void arrive_begin(struct daemon *daemon, struct connection *connection, const struct wire_message *message);
/** The daemon ends: drops an arriving session. */
void arrive_deinit(struct daemon *daemon);

#endif
