// The judge. A session is blamed only if the executor's last words name it as the owner of a kernel
// that faulted: an executor that somebody else ended (SIGKILL without last words, an exit) proves
// no fault. Nor does an executor that crashed at a request: such an executor loads, compiles, links
// or reads code in its own process, and no kernel has crashed. The daemon finds the request by
// repeating it (daemon/requests.c).
//
// Kernels of several sessions can fault before the context is over: all named sessions are guilty.
// If one of these kernels belongs to nobody, as far as is known, the names of the others acquit
// nobody.

#include "server/incident/judge.h"

#include <string.h>

#include "server/worker/words.h"

const char *judge_ground_text(enum judge_ground ground)
{
	static const char *const texts[] = {"no sign of a fault", "nobody proved guilty",
		"named by the executor", "over the limit of time", "its guard was hit"};

	return texts[ground];
}

static bool is_known(const uint64_t *sessions, uint32_t count, uint64_t session)
{
	for (uint32_t i = 0; i < count && session; i++)
		if (sessions[i] == session)
			return true;
	return false;
}

bool judge_blames(const struct judge_verdict *verdict, uint64_t session)
{
	if (!session || session == verdict->culprit)
		return session != 0;
	for (uint32_t i = 0; i < verdict->also_count; i++)
		if (verdict->also[i] == session)
			return true;
	return false;
}

/* The most specific last words: of a session which is here, else any. NULL: none. */
static const struct last_words *find_words(
	const struct judge_evidence *evidence, const uint64_t *sessions, uint32_t count)
{
	const struct last_words *best = NULL;

	for (uint32_t i = 0; i < JUDGE_WORDS_MAX; i++) {
		const struct last_words *words = &evidence->words[i];

		if (words->magic != LAST_WORDS_MAGIC)
			continue;
		if (is_known(sessions, count, words->session))
			return words;
		if (!best || (words->session && !best->session))
			best = words;
	}
	return best;
}

/* Last words about a fault that was examined and could not be attributed to a session's kernel. */
static bool speaks_of_others(const struct judge_evidence *evidence)
{
	for (uint32_t i = 0; i < JUDGE_WORDS_MAX; i++)
		if (evidence->words[i].magic == LAST_WORDS_MAGIC && evidence->words[i].fault &&
			!evidence->words[i].session)
			return true;
	return false;
}

static void quote(const struct last_words *words, struct judge_verdict *verdict)
{
	if (words->code)
		verdict->code = words->code;
	memcpy(verdict->kernel, words->kernel, sizeof(verdict->kernel) - 1);
	verdict->instruction = words->instruction;
}

static void blame_named(const struct judge_evidence *evidence, const uint64_t *sessions, uint32_t count,
	uint64_t first, struct judge_verdict *verdict)
{
	verdict->ground = JUDGE_LAST_WORDS;
	verdict->culprit = first;
	for (uint32_t i = 0; i < JUDGE_WORDS_MAX; i++) {
		const struct last_words *words = &evidence->words[i];

		if (words->magic == LAST_WORDS_MAGIC && is_known(sessions, count, words->session) &&
			!judge_blames(verdict, words->session) && verdict->also_count < JUDGE_WORDS_MAX - 1)
			verdict->also[verdict->also_count++] = words->session;
	}
}

static bool is_fault(const struct judge_evidence *evidence, const struct last_words *words)
{
	return words || evidence->lost || evidence->suspected ||
	       (!evidence->asked && words_is_crash(evidence->exit_signal));
}

void judge(const struct judge_evidence *evidence, const uint64_t *sessions, uint32_t count,
	struct judge_verdict *ret_verdict)
{
	const struct last_words *words = find_words(evidence, sessions, count);
	bool knows_code = evidence->lost && evidence->lost_code;
	struct judge_verdict verdict = {.code = knows_code ? evidence->lost_code : CUDA_ERROR_LAUNCH_FAILED,
		.address = evidence->lost_address,
		.others = speaks_of_others(evidence)};

	if (words)
		quote(words, &verdict);
	if (is_fault(evidence, words)) {
		verdict.ground = JUDGE_UNKNOWN;
		/* Last words that name a session which is gone blame nobody who is still here. */
		if (words && is_known(sessions, count, words->session))
			blame_named(evidence, sessions, count, words->session, &verdict);
		else
			verdict.gone = words && words->session;
	} else if (is_known(sessions, count, evidence->over_limit)) {
		verdict.ground = JUDGE_OVER_LIMIT;
		verdict.culprit = evidence->over_limit;
		verdict.code = CUDA_ERROR_LAUNCH_TIMEOUT;
	}
	*ret_verdict = verdict;
}
