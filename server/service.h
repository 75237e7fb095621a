// The daemon's start, the end of each turn of its loop, and its end. session/daemon.h has the
// states. Calls go down only, so rooms leave work for rooms above them (session/due.h); the end of
// the turn does it. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SERVICE_H
#define FRMPS_SERVER_SERVICE_H

struct config;
struct daemon;
struct heritage;
struct spawner;
struct store;
struct uv_loop_s;

/* The steps of daemon_main(), separate for tests that bring their own loop and spawner. */
void daemon_init(struct daemon *daemon, struct uv_loop_s *loop, const struct config *config,
	const struct heritage *heritage, const struct spawner *spawner, struct store *store);
/** Frees everything; no worker and no session may be left. The caller then runs the loop until it
 * is empty. */
void daemon_deinit(struct daemon *daemon);
/** Starts keeper and the first domain's executors. Return: 0 or -errno. */
int daemon_start(struct daemon *daemon);
/** Everything of an earlier life is adopted: starts the missing processes. */
void daemon_adopted(struct daemon *daemon);
/** SIGTERM: the first drains, the second leaves at once. */
void daemon_stop(struct daemon *daemon);
/** Leaves without waiting for sessions. Twice is fine. */
void daemon_leave(struct daemon *daemon);

#endif
