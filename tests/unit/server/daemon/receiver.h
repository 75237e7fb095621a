// The daemon to which sessions depart: its sockets, and how departures end. The fixture's service
// (session/fixture.h) is the giver.

#ifndef FRMPS_TESTS_UNIT_SERVER_DAEMON_RECEIVER_H
#define FRMPS_TESTS_UNIT_SERVER_DAEMON_RECEIVER_H

#include <stdint.h>

extern struct transfers *transfers; /* what the daemons of the service share */
extern int listener, receiver;	    /* -1: none; the test accepts the second one */

/* Of departures that have ended: how many, and what was said of the latest. */
extern int ends;
extern int32_t code;
extern char text[400];

/** For depart_begin(). */
void on_done(void *context, int32_t result, const char *reason);

/** Makes the giver one of two devices, in a folder of the test's own. @flags: of the listening
 * socket, 0 or SOCK_NONBLOCK */
void receiver_open(int flags);
void receiver_hang_up(void);
/** After the giver's end. */
void receiver_close(void);

#endif
