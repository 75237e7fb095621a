// The rooms above the sessions: control/, fault/ and standby/ call into sessions; the daemon calls
// them through these tables, which its start sets (server/rooms.c has them). Daemon, loop thread
// only.

#ifndef FRMPS_SERVER_SESSION_ROOMS_H
#define FRMPS_SERVER_SESSION_ROOMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chunk;
struct daemon;
struct desk;
struct domain;
struct holding;
struct session;
struct wire_message;
struct worker;
struct worker_events;

/* The room that handles faults and losses, and watches for them. */
struct fault_room {
	/** A domain comes, and goes. Return: 0 or -ENOMEM */
	int (*domain_made)(struct domain *domain);
	void (*domain_gone)(struct domain *domain);
	/** A worker of the domain was reaped and is no longer in the domain's list. */
	void (*worker_gone)(struct domain *domain, struct worker *worker);
	/** A session comes, and is freed. Return: 0 or -ENOMEM */
	int (*session_made)(struct session *session);
	void (*session_gone)(struct session *session);
	/** True if the domain's active executor serves; true if the executor lives, and is to issue
	 * nothing more. */
	bool (*is_serving)(const struct domain *domain);
	bool (*is_halting)(const struct domain *domain);
	/**
	 * Saves the state of a domain's faults that is to outlive the daemon.
	 * @bytes: to be filled; NULL: nothing is written
	 * Return: size of that state, bytes
	 */
	size_t (*save)(const struct domain *domain, void *bytes);
	/** The active executor has not closed a session in time. */
	void (*close_overdue)(struct domain *domain);
	/** The active executor has closed a session whose work does not end. */
	void (*orphan)(struct domain *domain, const struct session *session);
	/** An executor has closed a session whose program is gone, and had to end its kernels. */
	void (*orphan_ended)(struct domain *domain, const struct session *session);
	/** The service's device is known; any number of calls is fine. */
	void (*device_known)(struct daemon *daemon);
	/** The service leaves. */
	void (*leaving)(struct daemon *daemon);
};

/* Why a session moves. */
enum move_cause {
	MOVE_ORDER, /* by an operator */
	MOVE_GUARD, /* a guard hit that several programs can have caused (standby/separate.h) */
	MOVE_LIMIT, /* its kernels need larger limits than the kernels of others */
};

/**
 * The end of a move; not called after a refusal of begin_move().
 * @code: CUDA_SUCCESS: the session is in its new domain
 * @text: the reason of a failure
 */
typedef void move_done_fn(void *context, int32_t code, const char *text);

/* The room that prepares standbys, and moves sessions to executors of their own. */
struct standby_room {
	/** An executor has sent Ready: it gets all sessions of its domain. */
	void (*executor_ready)(struct worker *worker);
	/** Standbys get a change: a session was opened, a session has a new holding, a resource was
	 * dropped (standby/warm.h). */
	void (*opened)(struct session *session);
	void (*added)(struct session *session, struct holding *entry);
	void (*dropped)(struct session *session, const struct wire_message *message, struct chunk *chunk);
	/** As move_begin(). */
	const char *(*begin_move)(struct session *session, enum move_cause cause, const char *why,
		uint64_t limit_ms, move_done_fn *done, void *context);
	/** The caller of begin_move() no longer waits. */
	void (*forget_move)(struct session *session, const void *context);
	/** Call before a request of the session is sent. Return: true if the request waits: for the
	 * end of a move, or for the session's device memory, which this call brings back. */
	bool (*holds)(struct session *session);
	/** A request of the session is over. */
	void (*request_over)(struct session *session);
	/** The session ends. */
	void (*session_ends)(struct session *session);
	/** The domain's executor serves. */
	void (*serves)(struct domain *domain);
	/** The domain's active executor is in trouble. */
	void (*in_trouble)(struct domain *domain);
	/** Device memory is short: room that others make, or could make (standby/swap.h).
	 * @since_us: SWAP_PATIENT: the caller waits for any of them */
#define SWAP_PATIENT UINT64_MAX
	uint64_t (*make_room)(struct session *session, uint64_t bytes, uint64_t since_us);
	uint64_t (*spare_room)(const struct session *session);
	/** Device memory has come back. */
	void (*memory_is_back)(struct daemon *daemon);
};

struct rooms {
	const struct worker_events *worker_events;
	const struct desk *desk; /* control/ (desk.h) */
	const struct fault_room *fault;
	const struct standby_room *standby;
};

#endif
