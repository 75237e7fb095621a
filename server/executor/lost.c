// The end of a context. Any thread may find out; the first one reports.
//
// Order matters: first the word that every thread checks before it calls the backend, so that as little as
// possible is issued into a dead context; then the last words, which the daemon reads when this process is
// gone; then Lost, on which the daemon kills it, or halts it first. Nothing is cleaned up and nothing is
// answered any more: the process waits for its end.
//
// last_words.session is only filled when exactly one session has work that was issued and is not known done, and
// no other had any a moment ago, whose last mark may be that of the kernel that faulted: then it is that one's
// fault, unless it was that of one that is gone, which the daemon knows. Otherwise the words name nobody, and the
// daemon judges by other evidence. So they do where the context goes on after a fault (graceful): there the mark
// behind the kernel that faulted arrives like any other, and what is not done proves nothing.

#include "server/executor/lost.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/clock.h"
#include "server/executor/session.h"
#include "server/log.h"

static const char *kernel_of(const struct session *session, const struct frmps_head *record)
{
	const struct frmps_launch *launch = (const void *)(record + 1);
	const struct frmps_graph_launch *graph = (const void *)(record + 1);
	const struct function *function = NULL;
	uint32_t nodes;

	if (record->op == FRMPS_OP_GRAPH_LAUNCH)
		return graph_kernel(session, graph->graph, &nodes);
	if (record->op == FRMPS_OP_LAUNCH)
		function = module_function(&session->modules, launch->function);
	return function ? function->name : "";
}

/* The kernel that is command `seq` of a stream, if it is one. Read like a stranger's journal: its owner may
 * be at work. */
static void name_kernel(const struct session *session, uint32_t slot, uint64_t done, struct last_words *words)
{
	struct journal *journal = malloc(sizeof(*journal));
	struct journal_place place = {0, 0};
	const struct frmps_head *record;
	struct journal_list list;

	if (!journal)
		return;
	journal_init(journal, session->view.blocks, session->view.shape.journal_blocks);
	journal_list_init(&list, &session->view.states[slot]);
	if (!journal_adopt(journal, &list, done, &place) && list.journaled > done) {
		record = journal_at(journal, place);
		strncpy(words->kernel, kernel_of(session, record), sizeof(words->kernel) - 1);
	}
	free(journal);
}

/* The first stream of a session with unfinished work. */
static bool find_work(const struct session *session, struct last_words *words)
{
	const struct shm_view *view = &session->view;
	const struct shm_timeline *timeline = shm_view_timeline(view, word_relaxed(&session->generation));

	for (uint32_t slot = 0; slot < SHM_STREAMS; slot++) {
		uint64_t done = word_acquire(&timeline->stream[slot].done);
		uint64_t marked = word_acquire(&view->states[slot].marked);

		/* A word beyond what was marked is a stray write of a kernel. */
		if (done > marked)
			done = marked;
		if (word_acquire(&view->states[slot].issued) <= done)
			continue;
		words->session = session->id;
		words->stream = slot;
		words->seq = done + 1;
		name_kernel(session, slot, done, words);
		return true;
	}
	return false;
}

static bool has_just_worked(const struct session *session)
{
	uint64_t active = word_acquire(&session->view.server->active);

	return active && active + SHM_SIGN_NS > clock_now();
}

/* Return: how many there are. */
static unsigned find_suspect(struct executor *executor, struct last_words *words)
{
	unsigned suspects = 0, others = 0;
	struct session *session;

	pthread_mutex_lock(&executor->sessions_lock);
	TAILQ_FOREACH (session, &executor->sessions, link) {
		if (!word_acquire(&session->generation))
			continue;
		if (find_work(session, words))
			suspects++;
		else
			others += has_just_worked(session);
	}
	pthread_mutex_unlock(&executor->sessions_lock);
	if (suspects != 1 || others) {
		words->session = words->stream = words->seq = 0;
		memset(words->kernel, 0, sizeof(words->kernel));
	}
	return suspects + others;
}

bool lost_has_one_suspect(struct executor *executor)
{
	struct last_words words = {0};

	return find_suspect(executor, &words) == 1;
}

static void fill_words(struct executor *executor, CUresult code)
{
	struct last_words found = {.code = code}, *words = backend_last_words;

	if (!words || words->magic == LAST_WORDS_MAGIC)
		return; /* nobody listens, or the backend knew more */
	if (!executor->graceful)
		find_suspect(executor, &found);
	*words = found;
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
	fill_words(executor, code);
	message.trouble = (struct wire_trouble){.code = code, .text = "the context is lost"};
	executor_send(executor, &message, NULL, 0);
	serve_kick_all(executor);
	job_board_kick(&executor->board);
}
