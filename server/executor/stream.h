// The executor's record of a stream of a session. Serving thread only (main thread before serving
// starts).
//
//   journaled ≥ issued ≥ marked ≥ done          (all are sequence numbers of this stream)
//   done … marked      on the device, a mark will tell
//   marked … issued    on the device, unmarked
//   issued … journaled waiting in the journal: the stream is held, or this moment is between two
//   steps
//
// A held stream has the reason (enum stream_hold) and is on its session's list of held streams;
// hold.c releases the stream. A stream that is not held has nothing waiting between two turns of
// the serving loop.

#ifndef FRMPS_SERVER_EXECUTOR_STREAM_H
#define FRMPS_SERVER_EXECUTOR_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/backend/backend.h"
#include "server/executor/gate.h"
#include "server/executor/journal.h"

struct tenant;

/* Commands of one stream that are on the device at a time: below the depth at which a driver's
 * launch blocks.
 */
#define STREAM_ISSUE_CREDIT 448u

enum stream_hold {
	STREAM_RUNS,
	STREAM_HOLD_RESUME,  /* no wait: a backlog after a promotion, or from a turn that was too short */
	STREAM_HOLD_CREDIT,  /* enough on the device */
	STREAM_HOLD_GATE,    /* a module is to be loaded */
	STREAM_HOLD_PART,    /* multiprocessors are to be made ready */
	STREAM_HOLD_DEPEND,  /* DEPEND on a command that waits itself */
	STREAM_HOLD_HOST,    /* HOST_FUNCTION */
	STREAM_HOLD_VALUE,   /* WAIT_VALUE */
	STREAM_HOLD_DESTROY, /* STREAM_DESTROY */
};

/* A command's effect on memory, as far as the order matters in which commands can be repeated. */
enum stream_phase { STREAM_FILLS, STREAM_COMPUTES, STREAM_FETCHES };

struct stream {
	struct journal_list journal;
	uint32_t slot;
	enum stream_hold hold;
	enum stream_phase phase; /* of the command issued last */
	uint64_t issued, marked;
	uint64_t done;	   /* at the last look; never more than marked */
	uint64_t adopted;  /* journaled by an earlier executor up to here: may be met on the ring once more */
	uint64_t mark_due; /* the client asked for a mark behind this command */
	uint64_t wake_due; /* the latest command with a sleeper that is not on the session's list */
	struct journal_place cursor; /* the next command to issue; valid while issued < journaled */
	struct frmps_head *latest; /* in the journal: the command issued last; valid while issued > marked */
	struct backend_stream *backend; /* NULL until first used */
	uint64_t sms;			/* tenant.sms when `backend` was made */
	uint64_t part;			/* of the session's multiprocessors (cap_part()); as priority */
	struct backend_event *join;	/* for waits of other streams on no event of the client's */
	uint64_t join_seq;		/* command behind which join was recorded */
	int32_t priority;		/* of the client's table, at the latest command */
	int32_t made_priority;		/* of `backend` */
	bool unmarked_listed;		/* is on the session's list */
	bool host_told;			/* HOLD_HOST: the client may run it */
	bool watched;			/* is on the session's list */
	uint64_t unmarked_at;		/* ns */
	uint64_t held_at, poll_at;	/* ns */
	TAILQ_ENTRY(stream) held, unmarked, watch;
	TAILQ_HEAD(, event) timed; /* timing.h; not empty: it is on the session's list */
	TAILQ_ENTRY(stream) timed_link;
	struct gate_watch gate; /* module thread, but for gate.duration */
};
TAILQ_HEAD(stream_list, stream);

/* A piece of all timelines. */
#define STREAM_WORDS_BYTES (SHM_TIMELINES * sizeof(struct shm_timeline))

/** Registers the completion words of the streams up to this slot for the device's writes. Serving
 * thread, main thread before. */
CUresult stream_reach_words(struct tenant *tenant, uint32_t slot);
/** Unregisters all completion words. Module thread, when nothing runs. */
void stream_leave_words(struct tenant *tenant);

/** A stream that never had a command. */
void stream_init(struct stream *stream, uint32_t slot, struct shm_stream_state *state);

/** Makes a stream of the backend. @sms: where its kernels are to run, a group that was made, or
 * 0 */
CUresult stream_make(
	struct tenant *tenant, const struct stream *stream, uint64_t sms, struct backend_stream **ret_stream);

/** Makes `next` the stream's backend stream; the backend destroys the old one when its work is
 * done. */
void stream_replace(struct tenant *tenant, struct stream *stream, struct backend_stream *next);

/** Gives a stream of the backend back; NULL: nothing. */
void stream_give_back(struct tenant *tenant, struct backend_stream *stream);

/** Gives the backend's objects back. The stream must be idle or the session at its end. */
void stream_close(struct tenant *tenant, struct stream *stream);

/** Highest command known done: looks at the timeline. */
uint64_t stream_done(struct tenant *tenant, struct stream *stream);

/** Holds the stream. */
void stream_hold(struct tenant *tenant, struct stream *stream, enum stream_hold why);
/** Releases the stream. */
void stream_release(struct tenant *tenant, struct stream *stream);

#endif
