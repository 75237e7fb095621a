// The records at the end of a turn (loop/turn_end.h). A noun that has changed is marked, by
// session_changed(), domain_changed() or worker_changed(), and is recorded once, in the state that
// the turn has left. The daemon's own numbers need no mark: their one record is compared each time.
// Resources, events and the like put their records themselves, when they are made: these never
// change, and count with all others. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_CHANGES_H
#define FRMPS_SERVER_SESSION_CHANGES_H

struct daemon;

/** Records everything that has changed. Nothing of this counts before store_commit(). */
void changes_save(struct daemon *daemon);

#endif
