// The multiprocessors of a session's kernels, and of those of a stream. The daemon writes their
// number (shm/layout.h, SHM_SHARE_SMS_MASK) and the session's partition; the executor chooses the
// units and makes a group of the backend from them. The rules are in cap.c.

#ifndef FRMPS_SERVER_EXECUTOR_CAP_H
#define FRMPS_SERVER_EXECUTOR_CAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "shm/order.h"

struct executor;
struct tenant;

/* A partition is lent to others when its sessions have had no work for so long. The same holds for
 * the part that is kept free for online sessions. */
#define CAP_LEND_NS UINT64_C(1000000000)

/* Each set of partitions with work leaves others another set of units. An executor with so many
 * groups, those for parts not counted, makes no further group with lent units: sessions without a
 * partition stay on the rest. */
#define CAP_LENT_GROUPS 64u

/* Most groups for parts of programs' multiprocessors. No limit counts their memory, and the rest of
 * the places is for caps and partitions. */
#define CAP_PART_GROUPS 64u

struct cap_group {
	uint64_t sms;
	word32 state; /* of enum in cap.c */
	bool told;    /* the refusal was logged. Module thread */
};

/* Of an executor. */
struct caps {
	pthread_mutex_t lock;
	struct cap_group
		groups[BACKEND_SM_GROUPS_MAX]; /* `count` of them; added under the lock, and never moved */
	uint32_t count;
	uint32_t parts;				 /* of these, those that were added for parts */
	uint32_t sessions[BACKEND_SM_UNITS_MAX]; /* number of sessions whose group has the unit */
	uint32_t keepers[BACKEND_SM_UNITS_MAX];	 /* sessions that keep others off the unit */
	word64 kept;	/* units that have keepers, as bits. Written under the lock */
	word32 leaders; /* online sessions for which offline ones keep units free. Written under the lock */
	word32 wanted;	/* groups that are to be made */
	bool told_full; /* the lack of places for groups was logged */
};

/* Of a session. Serving thread, main thread while it is not served. */
struct cap {
	uint32_t wish;	    /* what the daemon wrote last: of shm_server_header.share */
	uint64_t partition; /* the same: units of the partition, as bits */
	uint64_t kept;	    /* of a session without a partition: caps.kept, at the choice of the group */
	bool keeps;	  /* others leave room: a partition; without one the session counts in caps.leaders */
	bool yields;	  /* offline, without a partition: caps.leaders was not 0 when its group was chosen */
	uint64_t busy_at; /* ns: when work of the session was last seen on the device */
	const struct cap_group *group; /* where to run; NULL: everywhere. Written under caps.lock */
	bool waits;		       /* for that group to be made, or tried again */
};

void caps_init(struct caps *caps);
void caps_deinit(struct caps *caps);

/** Return: true if cap_look() has something to do. */
bool cap_is_due(const struct tenant *tenant);

/** Lets the session's next commands go where the daemon wants, if such a group exists. Else
 * requests the group, and the session stays where it is. */
void cap_look(struct tenant *tenant);

/** Return: when to call cap_look() because the session stops keeping units free, ns; UINT64_MAX:
 * never. Serving thread. */
uint64_t cap_next_look(const struct tenant *tenant);

/** Return: the units of the session's next commands in streams with that part: as cap_part(), also
 * in a new group that the serving thread has not noticed yet. Any thread. */
uint64_t cap_sms(struct tenant *tenant, uint64_t part);

/**
 * Where kernels of a part of the session's multiprocessors run now: a group that is ready. That is
 * the part, or everything that the session has (tenant.sms), where the part is as much, has become
 * empty, or cannot be had. Serving thread, main thread before.
 * @part: of shm_stream_entry; 0: everything
 */
uint64_t cap_part(struct tenant *tenant, uint64_t part);
/** Requests the group of a part. Return: false while the group is to be made. As cap_part() */
bool cap_readies(struct tenant *tenant, uint64_t part);
/** Return: false if there is no place or memory for the part's group. As cap_part() */
bool cap_has_part(struct tenant *tenant, uint64_t part);

/** Sessions that are not served keep no units until they are served. Main thread, when the served
 * sessions are known. */
void cap_lend_unserved(struct executor *executor);

/** Frees the session's units for others. Main thread, when the session is not served any more. */
void cap_leave(struct tenant *tenant);

/** Return: true if groups are to be made. Module thread. */
bool cap_waits(struct executor *executor);

/** Makes the wanted groups. Module thread, in a gap. */
void cap_make_wanted(struct executor *executor);

/** The same, and tries refused groups again. Module thread, once in a gap. */
void cap_make_all(struct executor *executor);

#endif
