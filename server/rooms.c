// Calls between rooms: session/ does not call the rooms above, and worker/ calls none at all.
// Instead, the daemon is started with these tables of functions. Daemon, loop thread only.

#include "server/rooms.h"

#include "server/adopt/adopt.h"
#include "server/control/caller.h"
#include "server/control/checkpoint.h"
#include "server/fault/device.h"
#include "server/fault/endless.h"
#include "server/fault/evidence.h"
#include "server/fault/promote.h"
#include "server/fault/saved.h"
#include "server/fault/witnesses.h"
#include "server/session/daemon.h"
#include "server/session/reclaim.h"
#include "server/session/rooms.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/standby/leave_out.h"
#include "server/standby/move.h"
#include "server/standby/separate.h"
#include "server/standby/swap.h"
#include "server/standby/warm.h"
#include "server/worker/worker.h"

static void on_suspect(struct worker *worker, const char *text)
{
	promote_sign(worker->domain, worker, text);
}

static void on_fault(struct worker *worker, uint64_t session, const struct wire_trouble *fault)
{
	promote_contained(worker->domain, worker, session, fault);
}

static void on_condemned(struct worker *worker)
{
	if (worker->domain)
		promote_detect(worker->domain, worker);
}

static const struct worker_events worker_events = {
	.ready = daemon_worker_ready,
	.lost = promote_lost,
	.suspect = on_suspect,
	.fault = on_fault,
	.stray = separate_take_stray,
	.offence = daemon_worker_offence,
	.wanted = swap_take_wanted,
	.unclaimed = adopt_unclaimed,
	.troubled = daemon_worker_troubled,
	.hung_up = daemon_worker_hung_up,
	.given_up = daemon_worker_given_up,
	.condemned = on_condemned,
	.stays = device_take_stay,
	.gone = daemon_worker_gone,
	.numbered = daemon_keep,
	.is_activating = promote_is_activating,
	.is_awaited = promote_is_awaited,
	.gives_back = reclaim_begin,
	.gave_back = reclaim_done,
};

/* A move that was on its way to this worker looks for the next executor first. */
static void on_worker_gone(struct domain *domain, struct worker *worker)
{
	move_lost(domain, worker);
	leave_out_judge(domain, worker);
	promote_fenced(domain, worker);
	evidence_drop(worker);
}

static const struct fault_room fault_room = {
	.domain_made = promote_init,
	.domain_gone = promote_deinit,
	.worker_gone = on_worker_gone,
	.session_made = evidence_open,
	.session_gone = evidence_close,
	.is_serving = promote_is_serving,
	.is_halting = promote_is_halting,
	.save = saved_write,
	.close_overdue = promote_close_overdue,
	.orphan = promote_orphan,
	.orphan_ended = endless_report_orphan,
	.device_known = witnesses_follow_device,
	.leaving = witnesses_dismiss,
};

static bool holds(struct session *session)
{
	return move_holds(session) || swap_holds(session);
}

static void session_ends(struct session *session)
{
	checkpoint_abandon(session);
	move_abandon(session);
	swap_abandon(session);
}

static void serves(struct domain *domain)
{
	move_look_into(domain);
	swap_look_into(domain);
}

static void in_trouble(struct domain *domain)
{
	swap_call_off(domain);
	warm_hurry(domain);
}

static void memory_is_back(struct daemon *daemon)
{
	sink_retry(daemon);
	swap_retry(daemon);
}

static const struct standby_room standby_room = {
	.executor_ready = warm_start,
	.opened = warm_session,
	.added = warm_entry,
	.dropped = warm_drop,
	.begin_move = move_begin,
	.forget_move = move_forget,
	.holds = holds,
	.request_over = move_look,
	.session_ends = session_ends,
	.serves = serves,
	.in_trouble = in_trouble,
	.memory_is_back = memory_is_back,
	.make_room = swap_make_room,
	.spare_room = swap_spare,
};

const struct rooms rooms_all = {
	.worker_events = &worker_events,
	.desk = &control_desk,
	.fault = &fault_room,
	.standby = &standby_room,
};
