// Has the keeper make the sinks of sessions (session/sink.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_DAEMON_SINK_MAKE_H
#define FRMPS_SERVER_DAEMON_SINK_MAKE_H

struct daemon;
struct session;

/** Has the keeper make missing sinks and informs the executors, unless the guard is off. The
 * session is served, and no keeper is still to answer an earlier request for these sinks. */
void sink_request(struct session *session);
/** The same for every session that is served: there is another keeper. */
void sink_request_all(struct daemon *daemon);
/** Device memory has come back: the same for sessions that wait for memory of their sinks. */
void sink_retry(struct daemon *daemon);
/** A new life of the daemon, which has no record of requests in flight: as sink_request_all(); also
 * informs executors of existing sinks. */
void sink_resume_all(struct daemon *daemon);

#endif
