// The end of a context. Any thread may notice the loss; the first thread reports.
//
// Order matters: first the word that every thread checks before it calls the backend, so that as
// little as possible is issued into a dead context; then the last words, which the daemon reads
// when this process is gone; then Lost, on which the daemon halts the executor. Nothing is cleaned
// up and nothing is answered any more: the process waits for its end.
//
// These words report the code and name no session. A backend that contains faults knows the owner
// of the kernel that faulted, and has reported that (contain.c). Otherwise the owner is unknown,
// and all sessions become doubtful.

#include "server/executor/lost.h"

#include "server/executor/contain.h"
#include "server/log.h"

static void fill_words(CUresult code)
{
	struct last_words *words = backend_last_words;

	if (!words || words->magic == LAST_WORDS_MAGIC)
		return; /* no reader, or the backend knew more */
	*words = (struct last_words){.code = code};
	__atomic_store_n(&words->magic, LAST_WORDS_MAGIC, __ATOMIC_RELEASE);
}

void lost_report(struct executor *executor, CUresult code)
{
	struct wire_message message = {.type = WIRE_LOST};
	uint32_t expected = 0;

	while (!atomic_compare_exchange_strong(&executor->lost, &expected, (uint32_t)code))
		if (expected != EXECUTOR_HALTED)
			return;
	log_error("the context is lost: code %d", code);
	if (!backend_contains)
		contain_doubt_all(executor);
	fill_words(code);
	message.trouble = (struct wire_trouble){.code = code, .text = "the context is lost"};
	executor_send(executor, &message);
	serve_kick_all(executor);
	job_board_kick(&executor->board);
}
