// On which multiprocessors a session's kernels run: the daemon says how many (shm/layout.h,
// SHM_SHARE_SMS_MASK) and which are its partition, the executor chooses which, and makes them a
// group of the backend. The rules are in cap.c.

#ifndef FRMPS_SERVER_EXECUTOR_CAP_H
#define FRMPS_SERVER_EXECUTOR_CAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "shm/order.h"

struct executor;
struct tenant;

/* A partition is lent to others when its sessions have had nothing to do for so long, and what is
 * kept free for online sessions when none of these has had. */
#define CAP_LEND_NS UINT64_C(1000000000)

/* Each set of partitions with work leaves others another set of units. An executor with so many
 * groups makes no further one with lent units: sessions without a partition stay on the rest. */
#define CAP_LENT_GROUPS 64u

struct cap_group {
	uint64_t sms;
	word32 state; /* of enum in cap.c */
	bool told;    /* that it was refused. Module thread */
};

/* Of an executor. */
struct caps {
	pthread_mutex_t lock;
	struct cap_group
		groups[BACKEND_SM_GROUPS_MAX]; /* `count` of them; added under the lock, and never moved */
	uint32_t count;
	uint32_t sessions[BACKEND_SM_UNITS_MAX]; /* whose group has the unit */
	uint32_t keepers[BACKEND_SM_UNITS_MAX];	 /* sessions that keep others off the unit */
	word64 kept;	/* units that have keepers, as bits. Written under the lock */
	word32 leaders; /* online sessions for which offline ones keep units free. Written under the lock */
	word32 wanted;	/* groups that are to be made */
	bool told_full; /* that there is no place for one more group */
};

/* Of a session. Serving thread, main thread while it is not served. */
struct cap {
	uint32_t wish;	    /* what the daemon said last: of shm_server_header.share */
	uint64_t partition; /* the same: its units, as bits */
	uint64_t kept; /* of a session without a partition: caps.kept, as it was when its group was chosen */
	bool keeps;    /* others leave it room: its partition; without one it is one of caps.leaders */
	bool yields;   /* of an offline one without a partition: there were some when its group was chosen */
	uint64_t busy_at;	       /* ns: when something of it was last seen on the device, for `keeps` */
	const struct cap_group *group; /* where it is to run; NULL: everywhere. Written under caps.lock */
	bool waits;		       /* for that to be made, or tried again */
};

void caps_init(struct caps *caps);
void caps_deinit(struct caps *caps);

/** Whether cap_look() has something to do. */
bool cap_is_due(const struct tenant *tenant);

/** Lets the session's next commands go where the daemon wants them, if there is such a group; else
 * it is asked for, and the session stays where it is. */
void cap_look(struct tenant *tenant);

/** When the session is to be looked at because it keeps nothing free any more then; UINT64_MAX:
 * never. Serving thread. */
uint64_t cap_next_look(const struct tenant *tenant);

/** Where the session's next commands go: as in tenant.sms, but for its group of which its serving
 * thread has not seen yet that it was made. Any thread. */
uint64_t cap_sms(struct tenant *tenant);

/** Sessions that are not served keep nobody off, until they are. Main thread, when it is known who
 * is. */
void cap_lend_unserved(struct executor *executor);

/** Its units are free for others. Main thread, when it is not served any more. */
void cap_leave(struct tenant *tenant);

/** Whether groups are to be made. Module thread. */
bool cap_waits(struct executor *executor);

/** Makes them. Module thread, in a gap. */
void cap_make_wanted(struct executor *executor);

/** The same, and tries those again that were refused. Module thread, once in a gap. */
void cap_make_all(struct executor *executor);

#endif
