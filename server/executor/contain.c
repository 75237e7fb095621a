// A fault, as seen by the backend before the driver makes an end of the context.
//
//   suspected    all sessions become doubtful: clients do not believe new completions, for the
//                kernel that faulted may look done, and nothing more is issued (serve.c)
//   contained    the kernels that faulted are named by module, and a module has one owner. The
//                owner's session ends at once with the driver's code. All other sessions go on: not
//                doubtful any more. Nothing of those kernels is left on the device. The executor
//                reports the fault to the daemon (Fault)
//   uncontained  the last words report all evidence. The executor notifies the daemon (Suspect),
//                which halts this executor as for any sign. This is final: later evidence ends no
//                session's doubt
//
// The executor also hands the daemon a sign that is not explained within EXAMINE_NS: the driver
// does not behave as the backend expects.
//
// The calls run in a thread of the driver, while the multiprocessors stand still and with locks of
// the driver held that another of our threads may wait for in a call. So these calls take
// tenants_lock, contain.lock and ends_lock only, under which no thread calls the backend. They
// write shared words, wake sleepers, and leave messages and the log to the main thread. Order:
// tenants_lock, then one of the two others (shm/locks.def).

#include "server/executor/contain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/clock.h"
#include "server/executor/executor.h"
#include "server/executor/tenant.h"
#include "server/grow.h"
#include "server/log.h"
#include "shm/doorbell.h"

/* A stop takes milliseconds, but up to five seconds if it comes behind the driver's lines in the
 * kernel log (backend/cuda/exception.c). */
#define EXAMINE_NS (UINT64_C(10000) * CLOCK_MS)

/* ---- owners of modules ---- */

void contain_note_module(struct executor *executor, struct backend_module *module, uint64_t session)
{
	struct contain *contain = &executor->contain;

	pthread_mutex_lock(&contain->lock);
	if (grow(&contain->owners, contain->owner_count, &contain->owner_room, sizeof(*contain->owners)))
		contain->owners[contain->owner_count++] =
			(struct contain_owner){.module = module, .session = session};
	pthread_mutex_unlock(&contain->lock);
}

void contain_forget_module(struct executor *executor, const struct backend_module *module)
{
	struct contain *contain = &executor->contain;

	pthread_mutex_lock(&contain->lock);
	for (uint32_t i = 0; i < contain->owner_count; i++)
		if (contain->owners[i].module == module) {
			contain->owners[i] = contain->owners[--contain->owner_count];
			break;
		}
	pthread_mutex_unlock(&contain->lock);
}

struct backend_module **contain_list_modules(struct executor *executor, uint64_t session, uint32_t *ret_count)
{
	struct contain *contain = &executor->contain;
	struct backend_module **modules;

	*ret_count = 0;
	pthread_mutex_lock(&contain->lock);
	modules = calloc(contain->owner_count + 1, sizeof(struct backend_module *));
	for (uint32_t i = 0; modules && i < contain->owner_count; i++)
		if (contain->owners[i].session == session)
			modules[(*ret_count)++] = contain->owners[i].module;
	pthread_mutex_unlock(&contain->lock);
	return modules;
}

bool contain_has_module(struct executor *executor, uint64_t session)
{
	struct contain *contain = &executor->contain;
	bool has = false;

	pthread_mutex_lock(&contain->lock);
	for (uint32_t i = 0; i < contain->owner_count && !has; i++)
		has = contain->owners[i].session == session;
	pthread_mutex_unlock(&contain->lock);
	return has;
}

/* Under contain.lock. 0: no owner. */
static uint64_t owner_of(const struct contain *contain, const struct backend_module *module)
{
	for (uint32_t i = 0; module && i < contain->owner_count; i++)
		if (contain->owners[i].module == module)
			return contain->owners[i].session;
	return 0;
}

bool contain_is_open(struct executor *executor)
{
	bool open;

	pthread_mutex_lock(&executor->contain.lock);
	open = executor->contain.phase != CONTAIN_CLEAR;
	pthread_mutex_unlock(&executor->contain.lock);
	return open;
}

/* ---- the backend's thread ---- */

static void tell_main(struct executor *executor)
{
	word_release(&executor->contain.news, 1);
	job_board_kick(&executor->board);
}

/* @before: the session's doubt until now */
static uint32_t doubt_of(
	const struct tenant *tenant, enum contain_phase phase, uint64_t sign_at, uint32_t before)
{
	bool worked = before ? (before & SHM_DOUBT_WORKED) != 0 : shm_view_had_work(&tenant->view, sign_at);
	bool unknown = phase == CONTAIN_STOPPED || phase == CONTAIN_GIVEN_UP;

	return SHM_DOUBT | (unknown ? SHM_DOUBT_FAULT : 0) | (worked ? SHM_DOUBT_WORKED : 0);
}

static enum contain_phase phase_of(struct contain *contain, uint64_t *ret_sign_at)
{
	enum contain_phase phase;

	pthread_mutex_lock(&contain->lock);
	phase = contain->phase;
	*ret_sign_at = contain->sign_at;
	pthread_mutex_unlock(&contain->lock);
	return phase;
}

void contain_join(struct tenant *tenant, uint32_t generation)
{
	struct executor *executor = tenant->executor;
	enum contain_phase phase;
	uint64_t sign_at;

	pthread_mutex_lock(&executor->tenants_lock);
	phase = phase_of(&executor->contain, &sign_at);
	/* Pairs with the client's look. */
	word_release(&tenant->view.server->doubtful,
		phase == CONTAIN_CLEAR ? 0 : doubt_of(tenant, phase, sign_at, 0));
	word_release(&tenant->generation, generation);
	pthread_mutex_unlock(&executor->tenants_lock);
}

/* True if this executor serves the session, and no other executor has taken the session over since:
 * kernels of this executor may fault for as long as the process exists. */
static bool is_ours(const struct tenant *tenant)
{
	uint32_t generation = word_acquire(&tenant->generation);

	return generation && word_acquire(&tenant->view.server->generation) == generation;
}

/* The word belongs to the next executor once that has written its generation: the next executor has
 * no doubts before it serves. */
static void set_doubt(const struct tenant *tenant, uint32_t doubt)
{
	word32 *doubtful = &tenant->view.server->doubtful;

	/* Pairs with the client's look: commands that the client then sees done are done. */
	word_release(doubtful, doubt);
	if (!is_ours(tenant))
		atomic_compare_exchange_strong(doubtful, &doubt, 0);
}

/* All sessions are doubtful or none is, by the present phase: each thread that changes the phase
 * calls this, and the last call sees the last change. */
static void spread_doubt(struct executor *executor)
{
	struct tenant *tenant;
	uint64_t sign_at;
	enum contain_phase phase;

	pthread_mutex_lock(&executor->tenants_lock);
	phase = phase_of(&executor->contain, &sign_at);
	TAILQ_FOREACH (tenant, &executor->tenants, link) {
		uint32_t before = word_relaxed(&tenant->view.server->doubtful);

		if (!is_ours(tenant))
			continue;
		set_doubt(tenant, phase == CONTAIN_CLEAR ? 0 : doubt_of(tenant, phase, sign_at, before));
		if (phase == CONTAIN_CLEAR)
			wake_all(&tenant->view.server->wake);
	}
	pthread_mutex_unlock(&executor->tenants_lock);
	if (phase == CONTAIN_CLEAR)
		serve_kick_all(executor);
}

/* CONTAIN_GIVEN_UP stays until this executor is replaced: later evidence explains another fault. */
static void enter(struct executor *executor, enum contain_phase phase)
{
	pthread_mutex_lock(&executor->contain.lock);
	if (executor->contain.phase != CONTAIN_GIVEN_UP)
		executor->contain.phase = phase;
	pthread_mutex_unlock(&executor->contain.lock);
	spread_doubt(executor);
	tell_main(executor);
}

void contain_doubt_all(struct executor *executor)
{
	pthread_mutex_lock(&executor->contain.lock);
	executor->contain.sign_at = clock_now();
	pthread_mutex_unlock(&executor->contain.lock);
	enter(executor, CONTAIN_GIVEN_UP);
}

static void suspected(void *context)
{
	struct executor *executor = context;

	pthread_mutex_lock(&executor->contain.lock);
	executor->contain.sign_at = clock_now();
	executor->contain.stop_at = 0;
	pthread_mutex_unlock(&executor->contain.lock);
	enter(executor, CONTAIN_SUSPECTED);
}

static void stopped(void *context)
{
	struct executor *executor = context;

	pthread_mutex_lock(&executor->contain.lock);
	executor->contain.stop_at = clock_now();
	pthread_mutex_unlock(&executor->contain.lock);
	enter(executor, CONTAIN_STOPPED);
}

/* The daemon may be reading, so the words become valid only when they are complete. */
static void speak(
	struct executor *executor, const struct backend_fault *fault, uint32_t number, uint64_t session)
{
	struct last_words *words = backend_last_words;
	uint32_t index = executor->contain.words;

	if (!words || index >= LAST_WORDS_MAX || words[index].magic == LAST_WORDS_MAGIC)
		return;
	executor->contain.words++;
	words[index] = (struct last_words){
		.code = fault->code, .session = session, .fault = number, .instruction = fault->address};
	memcpy(words[index].kernel, fault->kernel, sizeof(words[index].kernel) - 1);
	__atomic_store_n(&words[index].magic, LAST_WORDS_MAGIC, __ATOMIC_RELEASE);
}

/* Invalidates the last words of faults that the daemon hears of by message: these are no evidence
 * of the next fault. The daemon skips known words by their number. */
static void unsay(struct executor *executor)
{
	while (backend_last_words && executor->contain.words)
		__atomic_store_n(&backend_last_words[--executor->contain.words].magic, 0, __ATOMIC_RELEASE);
}

static void end_tenant_of(struct executor *executor, uint64_t id, const struct backend_fault *fault)
{
	char reason[sizeof(((struct shm_server_header *)0)->reason)], place[64] = "";

	if (fault->has_block)
		snprintf(place, sizeof(place), " block (%u,%u,%u),", fault->block[0], fault->block[1],
			fault->block[2]);
	snprintf(reason, sizeof(reason), "a fault in kernel %s,%s instruction at %#llx",
		fault->kernel[0] ? fault->kernel : "(unnamed)", place, (unsigned long long)fault->address);
	tenant_tell_fault_of(executor, id, fault->code, reason);
}

/* Finds the owners of the faults. @owners: BACKEND_FAULTS_MAX. Return: true if all owners are
 * known. */
static bool find_owners(
	struct contain *contain, const struct backend_fault *faults, uint32_t count, uint64_t *owners)
{
	bool known = count != 0;

	pthread_mutex_lock(&contain->lock);
	for (uint32_t i = 0; i < count; i++) {
		owners[i] = owner_of(contain, faults[i].module);
		known &= owners[i] != 0;
	}
	pthread_mutex_unlock(&contain->lock);
	return known;
}

/* Under contain.lock. Return: true if there is room. */
static bool has_room(struct contain *contain, uint32_t count)
{
	uint32_t room = contain->fault_count + count;
	struct contain_fault *grown;

	if (room <= contain->fault_room)
		return true;
	grown = realloc(contain->faults, room * sizeof(*grown));
	if (!grown)
		return false;
	contain->faults = grown;
	contain->fault_room = room;
	return true;
}

/* For the main thread. This comes first: a culprit that hears of its fault may end before the
 * daemon knows.
 */
static void report(struct executor *executor, const struct backend_fault *faults, const uint64_t *owners,
	uint32_t count, bool contained)
{
	struct contain *contain = &executor->contain;
	uint64_t took = clock_now() - contain->sign_at;
	bool fits;

	pthread_mutex_lock(&contain->lock);
	fits = has_room(contain, count);
	for (uint32_t i = 0; i < count && fits; i++)
		contain->faults[contain->fault_count++] = (struct contain_fault){.fault = faults[i],
			.session = owners[i],
			.stopped = contain->stop_at ? contain->stop_at - contain->sign_at : 0,
			.took = took,
			.number = contain->number + i,
			.contained = contained};
	/* The daemon must find out about faults that cannot be reported. */
	contain->hopeless |= !contained || !fits;
	pthread_mutex_unlock(&contain->lock);
	tell_main(executor);
}

static void uncontained(void *context, const struct backend_fault *faults, uint32_t count)
{
	struct executor *executor = context;
	struct contain *contain = &executor->contain;
	uint64_t owners[BACKEND_FAULTS_MAX];

	find_owners(contain, faults, count, owners);
	unsay(executor);
	for (uint32_t i = 0; i < count; i++)
		speak(executor, &faults[i], contain->number + i, owners[i]);
	report(executor, faults, owners, count, false);
	contain->number += count;
	enter(executor, CONTAIN_GIVEN_UP);
}

static void contained(void *context, const struct backend_fault *faults, uint32_t count)
{
	struct executor *executor = context;
	struct contain *contain = &executor->contain;
	uint64_t owners[BACKEND_FAULTS_MAX];

	if (!count) {
		enter(executor, CONTAIN_CLEAR);
		return;
	}
	if (!find_owners(contain, faults, count, owners)) {
		/* The context goes on, but the sessions whose marks are not to be believed are not
		 * known. */
		uncontained(context, faults, count);
		return;
	}
	if (contain->words + count > LAST_WORDS_MAX)
		unsay(executor);
	report(executor, faults, owners, count, true);
	for (uint32_t i = 0; i < count; i++) {
		end_tenant_of(executor, owners[i], &faults[i]);
		speak(executor, &faults[i], contain->number + i, owners[i]);
	}
	contain->number += count;
	enter(executor, CONTAIN_CLEAR);
}

/* ---- the main thread ---- */

static void tell_fault(struct executor *executor, const struct contain_fault *at)
{
	const struct backend_fault *fault = &at->fault;
	struct wire_message message = {.type = WIRE_FAULT, .session = at->session};

	log_warning("a fault is %s: kernel %s of session %llu, launch %llu, instruction %#llx, "
		    "code %d; from the first sign to the stop %.1f ms, to the verdict %.1f ms",
		at->contained ? "contained" : "not contained", fault->kernel[0] ? fault->kernel : "(unnamed)",
		(unsigned long long)at->session, (unsigned long long)fault->launch,
		(unsigned long long)fault->address, (int)fault->code, (double)at->stopped / CLOCK_MS,
		(double)at->took / CLOCK_MS);
	message.trouble = (struct wire_trouble){.code = fault->code,
		.text = fault->kernel,
		.instruction = fault->address,
		.took = at->took,
		.number = at->number};
	if (at->contained)
		executor_send(executor, &message);
}

static void hand_to_daemon(struct executor *executor, const char *why)
{
	struct wire_message message = {.type = WIRE_SUSPECT, .trouble.text = why};

	executor->contain.until = 0;
	executor_send(executor, &message);
}

/* Handles the news that the backend's thread has left here. */
static void take_news(struct executor *executor, uint64_t now)
{
	struct contain *contain = &executor->contain;
	struct contain_fault *faults;
	enum contain_phase phase;
	bool hopeless;
	uint32_t count;

	pthread_mutex_lock(&contain->lock);
	count = contain->fault_count;
	faults = contain->faults;
	contain->faults = NULL;
	contain->fault_count = contain->fault_room = 0;
	phase = contain->phase;
	hopeless = contain->hopeless;
	contain->hopeless = false;
	pthread_mutex_unlock(&contain->lock);
	if (phase != CONTAIN_SUSPECTED && phase != CONTAIN_STOPPED)
		contain->until = 0;
	else if (!contain->until)
		contain->until = now + EXAMINE_NS;
	for (uint32_t i = 0; i < count; i++)
		tell_fault(executor, &faults[i]);
	free(faults);
	if (hopeless)
		hand_to_daemon(executor, "a fault of a kernel that cannot be contained");
}

uint64_t contain_step(struct executor *executor, uint64_t now)
{
	struct contain *contain = &executor->contain;

	/* Pairs with the release in tell_main(). */
	if (word_acquire(&contain->news)) {
		word_set(&contain->news, 0);
		take_news(executor, now);
	}
	if (!contain->until)
		return UINT64_MAX;
	if (now < contain->until)
		return contain->until;
	hand_to_daemon(executor, "a fault was not examined in time");
	return UINT64_MAX;
}

void contain_init(struct executor *executor)
{
	struct contain *contain = &executor->contain;

	pthread_mutex_init(&contain->lock, NULL);
	contain->number = 1;
	contain->watch = (struct backend_watch){.suspected = suspected,
		.stopped = stopped,
		.contained = contained,
		.uncontained = uncontained,
		.context = executor};
	atomic_store_explicit(&backend_watch, &contain->watch, memory_order_release);
}

void contain_deinit(struct executor *executor)
{
	atomic_store_explicit(&backend_watch, NULL, memory_order_release);
	pthread_mutex_destroy(&executor->contain.lock);
	free(executor->contain.owners);
	free(executor->contain.faults);
}
