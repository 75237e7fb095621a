// What the daemon needs of the rooms above the sessions: control/, fault/ and standby/ call into
// them, and are called by these tables, which the daemon is started with (server/rooms.c has them).
// Daemon, loop thread only.

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

/* Who deals with faults and losses, and who watches for them. */
struct fault_room {
	/** A domain comes, and goes. Return: 0 or -ENOMEM */
	int (*domain_made)(struct domain *domain);
	void (*domain_gone)(struct domain *domain);
	/** A worker of the domain was reaped and is no longer in its list. */
	void (*worker_gone)(struct domain *domain, struct worker *worker);
	/** A session comes, and is freed. Return: 0 or -ENOMEM */
	int (*session_made)(struct session *session);
	void (*session_gone)(struct session *session);
	/** Whether the domain's active executor serves; whether it lives, and is to issue nothing
	 * more. */
	bool (*is_serving)(const struct domain *domain);
	bool (*is_halting)(const struct domain *domain);
	/**
	 * What is known of a domain's faults and is to outlive the daemon.
	 * @bytes: to be filled; NULL: nothing is written
	 * Return: how many bytes that is
	 */
	size_t (*save)(const struct domain *domain, void *bytes);
	/** The active executor has not closed a session in time. */
	void (*close_overdue)(struct domain *domain);
	/** It has closed one whose work does not end. */
	void (*orphan)(struct domain *domain, const struct session *session);
	/** An executor has closed a session that is gone, and had to end its kernels. */
	void (*orphan_ended)(struct domain *domain, const struct session *session);
	/** It is known which device the service has; again and again is fine. */
	void (*device_known)(struct daemon *daemon);
	/** The service leaves. */
	void (*leaving)(struct daemon *daemon);
};

/* Why a session moves. */
enum move_cause {
	MOVE_ORDER, /* an operator said so */
	MOVE_GUARD, /* its guard was hit, and several programs can have done it (standby/separate.h) */
	MOVE_LIMIT, /* its kernels need larger limits than those of others have */
};

/**
 * How a move that was asked for ended; not called where begin_move() says that there is none.
 * @code: CUDA_SUCCESS: the session is in its new domain
 * @text: why it is not
 */
typedef void move_done_fn(void *context, int32_t code, const char *text);

/* Who keeps standbys ready, and moves sessions to executors of their own. */
struct standby_room {
	/** An executor says that it is ready: it is to know everything of the sessions of its
	 * domain. */
	void (*executor_ready)(struct worker *worker);
	/** Standbys are to know: of a session that was opened, of something new that it holds, of
	 * something that is no more (standby/warm.h). */
	void (*opened)(struct session *session);
	void (*added)(struct session *session, struct holding *entry);
	void (*dropped)(struct session *session, const struct wire_message *message, struct chunk *chunk);
	/** As move_begin(). */
	const char *(*begin_move)(struct session *session, enum move_cause cause, const char *why,
		uint64_t limit_ms, move_done_fn *done, void *context);
	/** Whoever asked for the move is not there any more. */
	void (*forget_move)(struct session *session, const void *context);
	/** A request of the session is to be made. Return: whether it waits: for the end of a
	 * move, or for the session's device memory, which this calls for. */
	bool (*holds)(struct session *session);
	/** A request of the session is over. */
	void (*request_over)(struct session *session);
	/** The session ends. */
	void (*session_ends)(struct session *session);
	/** The domain's executor serves. */
	void (*serves)(struct domain *domain);
	/** The domain's active executor is in trouble. */
	void (*in_trouble)(struct domain *domain);
	/** Device memory is short; what others would give (standby/swap.h). */
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
