// See suspect.h.
//
// A sample numbers a moment and notes for each session whether a kernel of the session may have run
// since the sample before: the session launched a kernel, or had work on the device then or now. A
// look begins with a sample; if the look finds the sinks unchanged, a session that changes sinks
// later has `ran` beyond that sample. So when a look finds a change, only the sessions with `ran`
// beyond the last clean look can be responsible. A single such session is proved the culprit and
// gets CUDA_ERROR_ILLEGAL_ADDRESS, even if the sinks are another's; otherwise no session is blamed,
// and the daemon moves the owner of the sinks to an executor of its own (standby/separate.c).
// Copies and fills are no suspects: their targets are checked before the issue (dispatch.c).
//
// Kernels of a previous executor may run on until that process has ended, and the sinks are the
// same. If the session has been moved away from other programs, those run on in the old executor,
// and the sinks stay mapped there until the session is closed there. So as long as the daemon names
// such executors, and these live, they count as another suspect.

#include "server/executor/suspect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/guard.h"

/* Least time between reports about the same sinks. */
#define REPEAT_NS (UINT64_C(1000) * CLOCK_MS)

/* True if work of the session may be on the device. */
static bool is_busy(const struct tenant *tenant)
{
	const struct shm_view *view = &tenant->view;
	struct shm_timeline *timeline = shm_view_timeline(view, word_relaxed(&tenant->generation));
	uint32_t slots = word_acquire(&tenant->slots);

	for (uint32_t slot = 0; slot < slots; slot++) {
		uint64_t done = word_acquire(&shm_timeline_at(timeline, slot)->done);
		uint64_t marked = word_acquire(&view->states[slot].marked);

		/* A word beyond `marked` is a stray write of a kernel. */
		if (word_acquire(&view->states[slot].issued) > (done < marked ? done : marked))
			return true;
	}
	return false;
}

static void sample_one(struct tenant *tenant, uint64_t number)
{
	struct stray *stray = &tenant->stray;
	/* Pairs with stray_note_launch(): a reader who sees the launch sees that the kernel was
	 * issued. */
	uint64_t launches = word_acquire(&stray->launches);
	bool busy = is_busy(tenant);

	if (busy || stray->busy || launches != stray->seen)
		stray->ran = number;
	stray->busy = busy;
	stray->seen = launches;
}

/* ---- executors before this one ---- */

void suspect_forget_formers(struct executor *executor)
{
	struct stray_watch *watch = &executor->strays;

	while (watch->former_count)
		if (watch->formers[--watch->former_count].fd >= 0)
			close(watch->formers[watch->former_count].fd);
}

/* Each list replaces the one before. */
void suspect_set_formers(struct executor *executor, const struct wire_u32s *pids)
{
	struct stray_watch *watch = &executor->strays;

	if (!watch->stream || !(pids->count || watch->former_count))
		return;
	suspect_sample(executor);
	suspect_forget_formers(executor);
	for (uint32_t i = 0; i < pids->count && i < STRAY_FORMERS_MAX; i++) {
		int fd = (int)syscall(SYS_pidfd_open, (pid_t)pids->at[i], 0);

		/* A process that is gone wrote before the sinks are filled. */
		if (fd >= 0 || errno != ESRCH)
			watch->formers[watch->former_count++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
}

/* True if a previous executor may have run since the sample before, for it lived then. */
static bool a_former_ran(struct stray_watch *watch)
{
	uint32_t before = watch->former_count, left = 0;

	if (before)
		poll(watch->formers, before, 0);
	for (uint32_t i = 0; i < before; i++) {
		if (watch->formers[i].revents)
			close(watch->formers[i].fd);
		else
			watch->formers[left++] = watch->formers[i];
	}
	watch->former_count = left;
	return before;
}

/* ---- samples ---- */

void suspect_sample(struct executor *executor)
{
	uint64_t number = ++executor->strays.sample;
	struct tenant *tenant;

	if (a_former_ran(&executor->strays))
		executor->strays.departed = number;
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		if (suspect_is_served(tenant) && !tenant->stray.left)
			sample_one(tenant, number);
}

void suspect_leave(struct tenant *tenant)
{
	struct stray_watch *watch = &tenant->executor->strays;

	if (tenant->stray.ran > watch->departed)
		watch->departed = tenant->stray.ran;
	tenant->stray.left = true;
}

/* Counts the sessions that can have changed sinks since these were clean. Return: the number;
 * *ret_tenant: one of the sessions (NULL: it has left). */
static unsigned count_suspects(struct executor *executor, uint64_t clean, struct tenant **ret_tenant)
{
	unsigned count = executor->strays.departed > clean;
	struct tenant *tenant;

	*ret_tenant = NULL;
	TAILQ_FOREACH (tenant, &executor->tenants, link) {
		if (!suspect_is_served(tenant) || tenant->stray.left || tenant->stray.ran <= clean)
			continue;
		*ret_tenant = tenant;
		count++;
	}
	return count;
}

/* Reports to the daemon, which logs the text and the rest of a verdict. */
static void report(const struct tenant *owner, uint64_t culprit, const char *text)
{
	struct wire_message message = {.type = WIRE_STRAY, .session = owner->id};

	message.stray = (struct wire_stray){.culprit = culprit, .text = text};
	executor_send(owner->executor, &message);
}

static void convict(struct tenant *tenant, const char *text)
{
	struct stray *stray = &tenant->stray;

	stray->convicted = true;
	if (tenant->closing)
		return;
	snprintf(stray->reason, sizeof(stray->reason), "%s", text);
	/* Pairs with the acquire in suspect_sentence(). */
	word_release(&stray->verdict, CUDA_ERROR_ILLEGAL_ADDRESS);
	/* Otherwise the session gets the error when it is served again (detach.c). */
	if (tenant->thread)
		serve_kick(tenant);
}

/* Return: true if the owner's sinks were reported about a moment ago. */
static bool was_told(struct tenant *owner, uint64_t now)
{
	if (owner->stray.told_at && now - owner->stray.told_at < REPEAT_NS)
		return true;
	owner->stray.told_at = now;
	return false;
}

static void prove(struct tenant *owner, struct tenant *culprit, const char *what, uint64_t now)
{
	bool convicts = owner->guard->policy == GUARD_ERROR;
	char text[240];

	/* Kernels of a known culprit that are still on the device may go on writing. */
	if (culprit->stray.convicted || (!convicts && was_told(owner, now)))
		return;
	snprintf(text, sizeof(text), "a kernel of session %llu wrote outside its memory: %s",
		(unsigned long long)culprit->id, what);
	report(owner, culprit->id, text);
	if (convicts)
		convict(culprit, text);
}

static void doubt(struct tenant *owner, unsigned suspects, const char *what, uint64_t now)
{
	char text[240];

	if (was_told(owner, now))
		return;
	snprintf(text, sizeof(text), "%s; nobody is blamed, %u sessions had kernels running", what, suspects);
	report(owner, 0, text);
}

static void describe(
	const struct tenant *owner, const struct suspect_evidence *evidence, char *text, size_t size)
{
	const struct guard *guard = owner->guard;
	bool is_near = evidence->offset < guard->near_bytes;
	size_t length;

	if (!evidence->words)
		snprintf(text, size, "words were changed and changed back");
	else
		snprintf(text, size, "%u words changed from offset %#llx of the %s sink on, the first to %#x",
			evidence->words,
			(unsigned long long)(evidence->offset - (is_near ? 0 : guard->near_bytes)),
			is_near ? "near" : "far", evidence->value);
	length = strlen(text);
	snprintf(text + length, size - length, ", seen clean %.1f ms before",
		(double)(clock_now() - owner->stray.clean_at) / (double)CLOCK_MS);
}

void suspect_judge(struct tenant *owner, const struct suspect_evidence *evidence, uint64_t now)
{
	struct executor *executor = owner->executor;
	struct tenant *suspect;
	unsigned count;
	char what[160];

	suspect_sample(executor);
	count = count_suspects(executor, owner->stray.clean, &suspect);
	describe(owner, evidence, what, sizeof(what));
	if (count == 1 && suspect)
		prove(owner, suspect, what, now);
	else
		doubt(owner, count, what, now);
}

void suspect_sentence(struct tenant *tenant)
{
	/* Pairs with convict(). */
	uint32_t code = word_acquire(&tenant->stray.verdict);

	if (code && !tenant->stopped)
		tenant_end(tenant, SHM_SESSION_FAULTED, (CUresult)code, tenant->stray.reason);
}
