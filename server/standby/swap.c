// Suspending a session: all its device memory goes to files, in host memory as a rule
// (swap_files.c), and the device has the pages for others. The program stops at its next call that
// needs the device; that call brings the memory back to the same addresses. The memory of a paused
// session comes back once it is resumed. swap_choose.c chooses sessions that make room for others.
//
// Sessions that share device memory, directly or by way of others, are one set (swap_set.c): all
// members are in the same state at the end of each turn, so no half of a set is ever out. A call of
// any member brings the set back, unless a member is checkpointed (control/checkpoint.h): then the
// others wait until that one is resumed, or ends.
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
//   LEAVES   executors issue nothing more of the members (SHM_SHARE_AWAY), and wait for their work
//            on the device, for five seconds at most. When the work of all has ended, they copy the
//            memory to files (executor/carry.c). All memory stays mapped. New commands call LEAVES
//            off, or, if the session is to go at once, wait (enum swap_manner)
//            A copy (SWAP_COPIED) ends there: the set stays LEAVES until swap_end(), then HERE
//   AWAY     executors have no memory of the members mapped, the chunks are empty. Modules,
//            streams, graphs and pinned memory stay in executors
//   RETURNS  an executor reports the free memory; the keeper makes memory, the serving executors
//            map that memory for each member, and copy into it once. Standbys map it afterwards.
//            While a tool fills the files (adopt/arrive.h), executors copy as far as it has come
//
// The session is served all the time: faults, losses and promotions are handled as for a session
// without work on the device. A takeover does not look at the session's memory meanwhile.
//
// Events during a swap:
//   an executor   is in trouble. LEAVES: called off, nothing has changed. RETURNS: mapped memory is
//                 released, and the next executor begins anew. AWAY: nothing
//   the keeper    dies: the next keeper makes the memory
//   a session     ends: its chunks go as with any session, and its files with the last member.
//                 LEAVES of a set: called off, because its work may still write to shared memory.
//                 RETURNS of a set: AWAY, and the others begin anew
//                 Memory that the session alone had mapped has no way back: others of the set that
//                 have its handle are rejected when they want their memory
//   the daemon    dies. The session's record has the state of the memory, and a standby that is to
//                 get the change is not in step: standbys in step have the memory mapped in HERE
//                 and LEAVES alone. LEAVES is HERE again (session_adopt()). AWAY and RETURNS: the
//                 active executor unmaps any mapped memory once more. The files are complete in
//                 both
//
// While the device is drained (daemon/device_drain.h) no memory begins to return.
//
// Not suspended: a session that shares device memory with another device, that has CUDA arrays or
// memory without a mapping; a session whose work on the device does not end; and, unless it is
// paused or goes at once, a session with commands, also with commands that wait for something of
// the program itself. One such member, and no member of a set is suspended.

#include "server/standby/swap.h"
#include "server/standby/swap_inside.h"

#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/log.h"
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
	swap_begin_return(swap);
}

bool swap_is_with(const struct session *session, const struct session *other)
{
	return session == other || (session->swap && session->swap == other->swap);
}

static void list_group(const struct swap *swap, struct swap_group *group)
{
	struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		group->count++;
	group->at = calloc(group->count, sizeof(*group->at));
	log_bug_on(!group->at);
	group->count = 0;
	TAILQ_FOREACH (session, &swap->members, swap_link)
		group->at[group->count++] = session_ref(session);
}

static void put_first(struct swap_group *group, struct session *session)
{
	uint32_t at = 0;

	while (group->at[at] != session)
		at++;
	group->at[at] = group->at[0];
	group->at[0] = session;
}

const char *swap_find_group(struct session *session, struct swap_group *ret_group)
{
	/* Whoever shares with a session that is not suspended has no swap either. */
	struct swap *found = session->swap ? NULL : swap_new(session, swap_on_retry);
	const char *text = found ? swap_gather(found) : NULL;

	*ret_group = (struct swap_group){0};
	if (!text) {
		list_group(session->swap, ret_group);
		put_first(ret_group, session);
	}
	if (found)
		swap_drop(found);
	return text;
}

void swap_free_group(struct swap_group *group)
{
	for (uint32_t i = 0; i < group->count; i++)
		session_unref(group->at[i]);
	free(group->at);
	*group = (struct swap_group){0};
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

static bool is_leaving(const struct swap *swap)
{
	return swap_first(swap)->memory == SESSION_MEMORY_LEAVES;
}

static bool is_being_paused(const struct swap *swap)
{
	return is_leaving(swap) && (swap->manner == SWAP_PAUSED || swap->manner == SWAP_PAUSED_BY_US);
}

bool swap_holds(struct session *session)
{
	struct swap *swap = session->swap;

	if (!swap)
		return false;
	if (session_is_paused(session) || is_being_paused(swap))
		return true;
	if (is_leaving(swap) && swap->manner == SWAP_AT_REST) {
		swap_stay(swap, CUDA_ERROR_NOT_READY, swap_obstacle_of(session, SWAP_HAS_WORK));
		return false;
	}
	swap_want(swap);
	swap_begin_return(swap);
	return true;
}

void swap_call(struct session *session)
{
	struct swap *swap = session->swap;

	if (!swap || is_leaving(swap))
		return;
	swap_want(swap);
	swap_begin_return(swap);
}

void swap_take_wanted(struct worker *worker, uint64_t number)
{
	struct session *session = domain_find_session(worker->domain, number);

	if (session)
		swap_holds(session);
}

void swap_look_into(struct domain *domain)
{
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->swap)
			swap_begin_return(session->swap);
}

void swap_retry(struct daemon *daemon)
{
	struct session *session;

	/* Only sessions in QUERIES: after a failure in MAPS, the returning memory is the session's
	 * own, and another try would fail at once. */
	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session->swap && session->swap->step == SWAP_QUERIES)
			swap_begin_return(session->swap);
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

/* The others of the set go on without the session. */
static void abandon_among_others(struct swap *swap, struct session *session)
{
	if (is_leaving(swap)) {
		/* The executor is about to close it: only then its work can be known to be over. */
		swap_stay(swap, CUDA_ERROR_MPS_CLIENT_TERMINATED,
			"a program that shares its device memory has ended");
		return;
	}
	if (session->memory == SESSION_MEMORY_RETURNS)
		swap_fall_back(swap);
	swap_remove(swap, session);
	/* It may be what held the others up, or whose order the caller waits for. */
	if (swap_is_needed(swap))
		swap_want(swap);
	swap_begin_return(swap);
}

void swap_abandon(struct session *session)
{
	struct swap *swap = session->swap;

	if (swap && (swap_first(swap) != session || TAILQ_NEXT(session, swap_link))) {
		abandon_among_others(swap, session);
	} else if (swap) {
		swap_say(swap, CUDA_ERROR_NOT_READY, "it ends");
		swap_drop(swap);
	}
}

void swap_hand_over(struct session *session)
{
	struct swap *swap = session->swap;

	if (!swap)
		return;
	swap_say(swap, CUDA_ERROR_NOT_READY, "it goes on on another device");
	swap_drop(swap);
}

void swap_adopt(struct session *session)
{
	struct swap *swap = session->swap;

	/* An earlier session of the set has taken this one along. */
	if (!swap) {
		swap = swap_new(session, swap_on_retry);
		swap_gather_by_files(swap);
		swap_list(swap);
		if (session->memory == SESSION_MEMORY_RETURNS)
			swap_want(swap);
		swap_fall_back(swap);
	}
	if (swap_is_needed(swap))
		swap_want(swap);
	swap_begin_return(swap);
}
