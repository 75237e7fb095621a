// The judge. Evidence in the order of its weight: the executor's last words name the session; else the only
// session with work on the device; else, if the loss before is unexplained, elimination: one of its suspects
// has the same commands in doubt again, and the commands of every other suspect ran to their end since. A
// suspect that left, or was told an error, was never cleared: then nobody is eliminated but by it. An
// executor that was ended by somebody (SIGKILL without a word, an exit) proves no fault, and nobody is
// blamed. Nor does one that crashed while it dealt with a request: code that it loads, compiles or links runs or
// is read in its own process, and what crashed there was no kernel unless it says so. Whose request that was is
// found by asking again (session/request.c).
//
// Kernels of several sessions can fault before the context is over: all that are named are guilty. If one of these
// kernels is nobody's, as far as is known, that names of others are known acquits nobody.

#include "server/failover/judge.h"

#include <signal.h>
#include <string.h>

const char *judge_ground_text(enum judge_ground ground)
{
	static const char *const texts[] = {"no sign of a fault", "nobody proved guilty",
		"named by the executor", "only client with work on the device", "over the limit of time",
		"its commands were on the device in two faults in a row, those of every other suspect of the "
		"first ran to their end since",
		"only program with kernels since the guard was seen clean",
		"found on probation: its commands, run alone, faulted"};

	return texts[ground];
}

static bool is_known(const struct judge_session *sessions, uint32_t count, uint64_t session)
{
	for (uint32_t i = 0; i < count; i++)
		if (sessions[i].session == session)
			return true;
	return false;
}

/* The one session that had work on the device, 0 if there are none or several. */
static uint64_t only_one(const struct judge_session *sessions, uint32_t count)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!sessions[i].in_doubt && !sessions[i].worked)
			continue;
		if (found)
			return 0;
		found = sessions[i].session;
	}
	return found;
}

/* The suspect of the loss before that no other one can be, 0 if there is none. */
static uint64_t left_over(uint32_t suspects, const struct judge_session *sessions, uint32_t count)
{
	uint32_t went_on = 0;
	uint64_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		went_on += sessions[i].history == JUDGE_WENT_ON;
		if (sessions[i].history != JUDGE_AGAIN)
			continue;
		if (found)
			return 0;
		found = sessions[i].session;
	}
	return went_on && went_on + 1 == suspects ? found : 0;
}

bool judge_is_crash(int signal)
{
	return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
	       signal == SIGABRT || signal == SIGTRAP;
}

static int32_t code_of(const struct judge_evidence *evidence, const struct last_words *words)
{
	if (words && words->code)
		return words->code;
	if (evidence->lost && evidence->lost_code)
		return evidence->lost_code;
	return CUDA_ERROR_LAUNCH_FAILED;
}

static void suspect(const struct judge_evidence *evidence, const struct judge_session *sessions,
	uint32_t count, struct judge_verdict *verdict)
{
	uint64_t only = evidence->gone ? 0 : only_one(sessions, count);
	uint64_t left = evidence->graceful ? 0 : left_over(evidence->suspects, sessions, count);

	/* A thread that waits in the driver may do so for what an earlier fault has left. */
	if (evidence->silent && !evidence->lost)
		return;
	verdict->culprit = only ? only : left;
	if (verdict->culprit)
		verdict->ground = only ? JUDGE_ONLY_ONE : JUDGE_LEFT_OVER;
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

/* The words that say most: those that name a session which is here, else any. NULL: there are none. */
static const struct last_words *find_words(
	const struct judge_evidence *evidence, const struct judge_session *sessions, uint32_t count)
{
	const struct last_words *best = NULL;

	for (uint32_t i = 0; i < JUDGE_WORDS_MAX; i++) {
		const struct last_words *words = &evidence->words[i];

		if (words->magic != LAST_WORDS_MAGIC)
			continue;
		if (words->session && is_known(sessions, count, words->session))
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
	memcpy(verdict->kernel, words->kernel, sizeof(verdict->kernel) - 1);
	verdict->seq = words->seq;
	verdict->stream = words->stream;
	verdict->address = words->address;
	verdict->instruction = words->instruction;
}

static void blame_named(const struct judge_evidence *evidence, const struct judge_session *sessions,
	uint32_t count, uint64_t first, struct judge_verdict *verdict)
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
	       (!evidence->killed && !evidence->asked && judge_is_crash(evidence->exit_signal));
}

/* Whether the words are those of a crash in no kernel, while it dealt with a request. */
static bool is_of_request(const struct judge_evidence *evidence, const struct last_words *words)
{
	return evidence->asked && words->signal && !words->session;
}

/* Whether the words name who alone had work on the device, not whose kernel it was. That says nothing where one that
 * is gone may have been it. */
static bool is_void(const struct judge_evidence *evidence, const struct judge_session *sessions,
	uint32_t count, const struct last_words *words)
{
	return evidence->gone && !words->fault && !words->signal && is_known(sessions, count, words->session);
}

void judge(const struct judge_evidence *evidence, const struct judge_session *sessions, uint32_t count,
	struct judge_verdict *ret_verdict)
{
	const struct last_words *words = find_words(evidence, sessions, count);
	struct judge_verdict verdict;
	struct last_words code;

	if (words && is_of_request(evidence, words))
		words = NULL;
	if (words && is_void(evidence, sessions, count, words)) {
		code = (struct last_words){.code = words->code};
		words = &code;
	}
	verdict = (struct judge_verdict){
		.code = code_of(evidence, words), .others = words && speaks_of_others(evidence)};
	if (words)
		quote(words, &verdict);
	if (!verdict.address)
		verdict.address = evidence->lost_address;
	if (!is_fault(evidence, words) && is_known(sessions, count, evidence->over_limit)) {
		verdict.ground = JUDGE_OVER_LIMIT;
		verdict.culprit = evidence->over_limit;
		verdict.code = CUDA_ERROR_LAUNCH_TIMEOUT;
	} else if (!is_fault(evidence, words)) {
		verdict.ground = JUDGE_NO_FAULT;
	} else if (words && words->session && is_known(sessions, count, words->session)) {
		blame_named(evidence, sessions, count, words->session, &verdict);
	} else {
		verdict.ground = JUDGE_UNKNOWN;
		verdict.gone = words && words->session;
		/* Words that name a session which is gone blame nobody who is still here. */
		if (!verdict.gone)
			suspect(evidence, sessions, count, &verdict);
	}
	*ret_verdict = verdict;
}
