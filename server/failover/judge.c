// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The judge. Evidence in the order of its weight: the executor's last words name the session; else the only
// session with work on the device; else, if the loss before is unexplained, elimination: one of its suspects
// has the same commands in doubt again, and the commands of every other suspect ran to their end since. A
// suspect that left, or was told an error, was never cleared: then nobody is eliminated but by it. An
// executor that was ended by somebody (SIGKILL without a word, an exit) proves no fault, and nobody is
// blamed.

#include "server/failover/judge.h"

#include <signal.h>
#include <string.h>

const char *judge_ground_text(enum judge_ground ground)
{
	static const char *const texts[] = {"no sign of a fault", "nobody proved guilty",
		"named by the executor", "only client with work on the device",
		"its commands were on the device in two faults in a row, those of every other suspect of the "
		"first ran to their end since"};

	return texts[ground];
}

static bool is_known(const struct judge_session *sessions, uint32_t count, uint64_t session)
{
	for (uint32_t i = 0; i < count; i++)
		if (sessions[i].session == session)
			return true;
	return false;
}

/* The one session in doubt, 0 if there are none or several. */
static uint64_t only_one(const struct judge_session *sessions, uint32_t count)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!sessions[i].in_doubt)
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

static bool is_crash(int signal)
{
	return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
	       signal == SIGABRT || signal == SIGTRAP;
}

static int32_t code_of(const struct judge_evidence *evidence, bool spoken)
{
	if (spoken && evidence->words.code)
		return evidence->words.code;
	if (evidence->lost && evidence->lost_code)
		return evidence->lost_code;
	return CUDA_ERROR_LAUNCH_FAILED;
}

static void suspect(const struct judge_evidence *evidence, const struct judge_session *sessions,
	uint32_t count, struct judge_verdict *verdict)
{
	uint64_t only = only_one(sessions, count), left = left_over(evidence->suspects, sessions, count);

	verdict->culprit = only ? only : left;
	if (verdict->culprit)
		verdict->ground = only ? JUDGE_ONLY_ONE : JUDGE_LEFT_OVER;
}

void judge(const struct judge_evidence *evidence, const struct judge_session *sessions, uint32_t count,
	struct judge_verdict *ret_verdict)
{
	const struct last_words *words = &evidence->words;
	bool spoken = words->magic == LAST_WORDS_MAGIC;
	bool fault = spoken || evidence->lost || (!evidence->killed && is_crash(evidence->exit_signal));
	struct judge_verdict verdict = {.code = code_of(evidence, spoken)};

	if (spoken) {
		memcpy(verdict.kernel, words->kernel, sizeof(verdict.kernel) - 1);
		verdict.seq = words->seq;
		verdict.stream = words->stream;
		verdict.address = words->address;
	}
	if (!fault) {
		verdict.ground = JUDGE_NO_FAULT;
	} else if (spoken && words->session && is_known(sessions, count, words->session)) {
		verdict.ground = JUDGE_LAST_WORDS;
		verdict.culprit = words->session;
	} else {
		verdict.ground = JUDGE_UNKNOWN;
		/* Words that name a session which is gone blame nobody who is still here. */
		if (!spoken || !words->session)
			suspect(evidence, sessions, count, &verdict);
	}
	*ret_verdict = verdict;
}

bool judge_in_doubt(const struct shm_view *view)
{
	for (uint32_t slot = 0; slot < SHM_STREAMS; slot++)
		if (word_acquire(&view->states[slot].issued) > shm_view_done(view, slot))
			return true;
	return false;
}
