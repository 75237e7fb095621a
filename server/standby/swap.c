// Suspending a session: all its device memory goes to files, in host memory as a rule
// (swap_files.c), and the device has the pages for others. The program stops at its next call that
// needs the device; that call brings the memory back to the same addresses. The memory of a paused
// session comes back once it is resumed. swap_choose.c chooses sessions that make room for others.
//
//            swap_begin()          all is copied                 wanted, and there is room
//     HERE ──────────────► LEAVES ───────────────► AWAY ◄─────────────────────────────┐
//       ▲                    │  gone_away()         │ begin_return()                 │
//       ├────────────────────┘                      ▼                                │
//       │  call_off(): the session has work,      RETURNS ───────────────────────────┘
//       │  an error, trouble                        │ QUERIES → MAPS → CARRIES   fall_back(): an
//       └───────────────────────────────────────────┘ back_here()                error, trouble
//
//   HERE     as ever
//   LEAVES   the executor issues nothing more of the session (SHM_SHARE_AWAY), waits for its work
//            on the device, for five seconds at most, and copies the memory to files
//            (executor/carry.c). All memory stays mapped. New commands call LEAVES off, or, if the
//            session is to go at once, wait (enum swap_manner)
//   AWAY     executors have no memory of the session mapped, the chunks are empty. Modules,
//            streams, graphs and pinned memory stay in executors
//   RETURNS  the executor reports the free memory; the keeper makes memory, the serving executor
//            maps that memory and copies into it. Standbys map the memory afterwards
//
// The session is served all the time: faults, losses and promotions are handled as for a session
// without work on the device. A takeover does not look at the session's memory meanwhile.
//
// Events during a swap:
//   an executor   is in trouble. LEAVES: called off, nothing has changed. RETURNS: mapped memory is
//                 released, and the next executor begins anew. AWAY: nothing
//   the keeper    dies: the next keeper makes the memory
//   the session   ends: its files and its chunks go as with any session
//   the daemon    dies. The session's record has the state of the memory, and a standby that is to
//                 get the change is not in step: standbys in step have the memory mapped in HERE
//                 and LEAVES alone. LEAVES is HERE again (session_adopt()). AWAY and RETURNS: the
//                 active executor unmaps any mapped memory once more. The files are complete in
//                 both
//
// While the device is drained (daemon/device_drain.h) no memory begins to return.
//
// Not suspended: a session that shares device memory with another, that has CUDA arrays or memory
// without a mapping; a session whose work on the device does not end; and, unless it is paused or
// goes at once, a session with commands, also with commands that wait for something of the program
// itself.

#include "server/standby/swap.h"
#include "server/standby/swap_inside.h"

#include "protocol/cuda_abi.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/session.h"

void swap_end(struct session *session, swap_done_fn *done, void *context)
{
	struct swap *swap = session->swap;

	if (!swap) {
		done(context, CUDA_SUCCESS, "");
		return;
	}
	if (session->memory == SESSION_MEMORY_LEAVES) {
		swap->way->failed(swap, CUDA_ERROR_NOT_READY, "it was resumed meanwhile");
		done(context, CUDA_SUCCESS, "");
		return;
	}
	swap_say(swap, CUDA_ERROR_NOT_READY, "somebody else has asked for the same");
	swap->done = done;
	swap->context = context;
	swap_want(swap);
	swap_begin_return(session);
}

bool swap_is_short(const struct session *session)
{
	const struct swap *swap = session->swap;

	return swap && swap->wanted && session->memory == SESSION_MEMORY_AWAY && timer_running(swap->retry);
}

void swap_stay_away(struct session *session)
{
	struct swap *swap = session->swap;

	swap->wanted = swap->is_awaiting_room = false;
	timer_stop(swap->retry);
}

void swap_forget(struct session *session, const void *context)
{
	if (session->swap && session->swap->context == context)
		session->swap->done = NULL;
}

static bool is_being_paused(const struct swap *swap)
{
	return swap->session->memory == SESSION_MEMORY_LEAVES &&
	       (swap->manner == SWAP_PAUSED || swap->manner == SWAP_PAUSED_BY_US);
}

bool swap_holds(struct session *session)
{
	struct swap *swap = session->swap;

	if (!swap)
		return false;
	if (session_is_paused(session) || is_being_paused(swap))
		return true;
	if (session->memory == SESSION_MEMORY_LEAVES && swap->manner == SWAP_AT_REST) {
		swap_stay(swap, CUDA_ERROR_NOT_READY, SWAP_HAS_WORK);
		return false;
	}
	swap_want(swap);
	swap_begin_return(session);
	return true;
}

void swap_take_wanted(struct worker *worker, uint64_t number)
{
	struct session *session = domain_find_session(worker->domain, number);
	struct swap *swap = session ? session->swap : NULL;

	if (!swap || session_is_paused(session) || is_being_paused(swap))
		return;
	if (session->memory == SESSION_MEMORY_LEAVES && swap->manner == SWAP_AT_REST) {
		swap->way->failed(swap, CUDA_ERROR_NOT_READY, SWAP_HAS_WORK);
		return;
	}
	swap_want(swap);
	swap_begin_return(session);
}

void swap_look_into(struct domain *domain)
{
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->swap)
			swap_begin_return(session);
}

void swap_retry(struct daemon *daemon)
{
	struct session *session;

	/* Only sessions in QUERIES: after a failure in MAPS, the returning memory is the session's
	 * own, and another try would fail at once. */
	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session->swap && session->swap->step == SWAP_QUERIES)
			swap_begin_return(session);
}

void swap_call_off(struct domain *domain)
{
	struct session *session = TAILQ_FIRST(&domain->sessions), *next;

	/* A request that goes on may end its session. */
	for (; session; session = next) {
		next = TAILQ_NEXT(session, domain_link);
		if (session->swap && session->memory == SESSION_MEMORY_LEAVES)
			session->swap->way->failed(
				session->swap, CUDA_ERROR_NOT_READY, "its executor is being replaced");
		else if (session->swap && session->memory == SESSION_MEMORY_RETURNS)
			swap_fall_back(session->swap);
	}
}

void swap_abandon(struct session *session)
{
	if (!session->swap)
		return;
	swap_say(session->swap, CUDA_ERROR_NOT_READY, "it ends");
	swap_drop(session->swap);
}

void swap_adopt(struct session *session)
{
	struct swap *swap = swap_new(session, swap_on_retry);

	if (session->drained || (session->memory == SESSION_MEMORY_RETURNS && !session->checkpointed) ||
		(!session_is_paused(session) && (session->request || swap_has_work(session))))
		swap_want(swap);
	swap_fall_back(swap);
	swap_begin_return(session);
}
