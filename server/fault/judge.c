// The judge. The executor's last words name whose kernel faulted, or nobody is blamed: an executor
// that was ended by somebody (SIGKILL without a word, an exit) proves no fault. Nor does one that
// crashed while it dealt with a request: code that it loads, compiles or links runs or is read in
// its own process, and what crashed there was no kernel. Whose request that was is found by asking
// again (session/request.c).
//
// Kernels of several sessions can fault before the context is over: all that are named are guilty.
// If one of these kernels is nobody's, as far as is known, that names of others are known acquits
// nobody.

#include "server/fault/judge.h"

#include <string.h>

#include "server/worker/words.h"

const char *judge_ground_text(enum judge_ground ground)
{
	static const char *const texts[] = {"no sign of a fault", "nobody proved guilty",
		"named by the executor", "over the limit of time",
		"only program with kernels since the guard was seen clean"};

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

/* The words that say most: those that name a session which is here, else any. NULL: there are
 * none. */
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

/* Words of a fault that was looked into, and could not be found to be of a session's kernel. */
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
		/* Words that name a session which is gone blame nobody who is still here. */
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
