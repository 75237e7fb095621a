// Faults as they were on the host backend (traces, made by tests/gpu/matrix_traces.py), played to
// the daemon by executors that are the test: it does what the executors of that run did and finds
// what they had written, and the daemon must take the same steps, find the same evidence and blame
// and tell the same programs. What it logs must be the trace, line by line.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/fault/promote.h"
#include "server/log.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define LINES	     64
#define LINE_BYTES   512
#define TRACES_MAX   128
#define SESSIONS_MAX 8
/* Commands that a session issues from one judgement to the next. */
#define ISSUED 5u

struct trace {
	char name[LINE_BYTES];
	char lines[LINES][LINE_BYTES];
	unsigned count;
};

static struct trace traces[TRACES_MAX];
static unsigned trace_count;

static const struct trace *trace;
static struct fake *fake;
static struct fake_client clients[SESSIONS_MAX];
static unsigned session_count;
static bool has_left[SESSIONS_MAX];
static int log_fd;

/*
 * The log
 */

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* Leaves out what is another one in each run: "(process N, name)", "process N (name)", times at the
 * end. */
static void simplify(char *line)
{
	char *at, *end;

	while ((at = strstr(line, " (process "))) {
		end = strchr(at, ')');
		ck_assert_ptr_nonnull(end);
		memmove(at, end + 1, strlen(end));
	}
	for (at = line; (at = strstr(at, "process ")); at++) {
		end = strchr(at, ')');
		if (at[8] < '0' || at[8] > '9' || !end)
			continue;
		at[8] = 'P';
		memmove(at + 9, end + 1, strlen(end));
	}
	at = strrchr(line, ';');
	if (at && (begins(at, "; took ") || begins(at, "; contained in ") || begins(at, "; ended in ")))
		*at = '\0';
}

/* Return: whether the line of the log is one that a trace has; it is made one. */
static bool take_line(char *line, char *ret_line)
{
	const char *at;

	if ((at = strstr(line, ": domain 1: ")))
		snprintf(ret_line, LINE_BYTES, "%s", at + strlen(": domain 1: "));
	else if ((at = strstr(line, ": verdict: ")))
		snprintf(ret_line, LINE_BYTES, "%s", at + 2);
	else if ((at = strstr(line, "shows a sign of a fault: ")))
		snprintf(ret_line, LINE_BYTES, "says: %s", at + strlen("shows a sign of a fault: "));
	else if (strstr(line, "no standby is ready: "))
		snprintf(ret_line, LINE_BYTES, "alone");
	else
		return false;
	if (begins(ret_line, "verdict: "))
		simplify(ret_line);
	return true;
}

/* Line number `index` of what the daemon has logged that traces have. Return: whether there is
 * one. */
static bool read_log(unsigned index, char *ret_line)
{
	off_t bytes = lseek(log_fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)bytes + 1), *rest = text, *line;
	bool found = false;

	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(pread(log_fd, text, (size_t)bytes, 0), bytes);
	while (!found && (line = strsep(&rest, "\n")))
		if (*line && take_line(line, ret_line))
			found = !index--;
	free(text);
	return found;
}

/* The next line of the trace that begins so; NULL: there is none. */
static const char *find_line(unsigned from, const char *with)
{
	for (unsigned i = from; i < trace->count; i++)
		if (begins(trace->lines[i], with))
			return trace->lines[i];
	return NULL;
}

/*
 * Executors
 */

static struct fake_child *child_of(const struct worker *worker)
{
	for (unsigned i = 0; i < fake->child_count; i++)
		if (worker && fake->children[i].worker == worker)
			return &fake->children[i];
	ck_abort_msg("%s: there is no such executor", trace->name);
}

static struct fake_child *active(void)
{
	return child_of(fake_domain(fake)->active);
}

/* Those that the daemon has done with make room. */
static void reap_replaced(void)
{
	for (unsigned i = 1; i < fake->child_count; i++) {
		struct worker *worker = fake->children[i].worker;

		if (worker && worker->state == WORKER_TERMINATING && worker != fake_domain(fake)->active)
			fake_reap(fake, &fake->children[i], SIGKILL);
	}
}

static unsigned count_open(void)
{
	const struct session *session;
	unsigned count = 0;

	TAILQ_FOREACH (session, &fake->daemon.sessions, link)
		count += session->state == SESSION_SERVED;
	return count;
}

static void need_standby(void)
{
	reap_replaced();
	for (unsigned i = 1; i < fake->child_count && !promote_find_warm(fake_domain(fake)); i++)
		if (fake->children[i].worker && fake->children[i].worker->state == WORKER_STARTING) {
			fake_warm_with(fake, &fake->children[i], count_open());
			return;
		}
}

static void need_no_standby(void)
{
	struct worker *standby = promote_find_warm(fake_domain(fake));

	if (standby)
		fake_reap(fake, child_of(standby), SIGKILL);
}

/* Reads until a message of that kind comes. Return: its number */
static uint64_t await(struct fake_child *child, enum wire_type type, bool fence)
{
	const struct wire_halt *halt = &fake->message.halt;

	for (;;) {
		int r;

		fake_turn(fake);
		packet_close_fds(&fake->packet);
		r = packet_receive(child->socket, &fake->packet);
		if (r == PACKET_E_AGAIN)
			continue;
		ck_assert_int_eq(r, 0);
		ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
		if (fake->message.type == type && (type != WIRE_HALT || halt->fence == fence))
			return fake->message.id;
	}
}

/* Whether the verdict says that the session was told an error. */
static bool is_told(const char *verdict, uint64_t number)
{
	const char *told = strstr(verdict, "told an error");
	char name[32];
	size_t length = (size_t)snprintf(name, sizeof(name), "session %u", (unsigned)number);

	for (; told && (told = strstr(told, name)); told++)
		if (!strchr("0123456789", told[length]) || !told[length])
			return true;
	return false;
}

/* What an executor makes of its orders. What can be repeated of what is in doubt it knows alone,
 * and the trace. */
static uint64_t take_over(uint64_t number, uint32_t order, uint32_t generation, const char *verdict)
{
	struct session *session = daemon_find_session(&fake->daemon, number);

	fake_take_over(session, generation);
	if (order == SESSION_RECOVER_NOTHING ||
		(order == SESSION_RECOVER_BY_POLICY && !is_told(verdict, number)))
		return order == SESSION_RECOVER_BY_POLICY;
	word_release(&session->view.server->state, SHM_SESSION_FAULTED);
	return 2;
}

static void activate(unsigned at)
{
	const char *verdict = find_line(at, "verdict: ");
	struct fake_child *child = active();
	uint64_t id = await(child, WIRE_ACTIVATE, false), values[SESSIONS_MAX];
	const struct wire_activate *order = &fake->message.activate;
	uint32_t count = order->sessions.count;

	ck_assert_uint_le(count, SESSIONS_MAX);
	ck_assert_ptr_nonnull(verdict);
	for (uint32_t i = 0; i < count; i++)
		values[i] =
			take_over(order->sessions.at[i], order->recover.at[i], order->generation, verdict);
	fake_reply(fake, child->socket, id, 0, values, count);
}

/*
 * Evidence
 */

/* What a session had issued, and what of it was done, at the judgement. */
static void leave_work(const char *line)
{
	unsigned number, served, doubtful, doubt, losses, generation = active()->worker->generation;
	struct session *session;
	uint64_t issued;

	if (sscanf(line, "session %u: served %u, doubtful %u, in doubt %u, losses %u", &number, &served,
		    &doubtful, &doubt, &losses) != 5)
		return;
	session = daemon_find_session(&fake->daemon, number);
	ck_assert_ptr_nonnull(session);
	/* One more loss in a row is one of the same work. */
	issued = word_acquire(&session->view.states[3].issued) + (doubt && losses > 1 ? 0 : ISSUED);
	if (!served)
		word_release(&session->view.server->generation, --generation);
	else
		generation = word_acquire(&session->view.server->generation);
	word_release(&session->view.server->doubtful, doubtful);
	fake_issue(&session->view, issued);
	word_release(&shm_view_timeline(&session->view, generation)->stream[3].done,
		doubt ? issued - ISSUED : issued);
}

static void leave_words(const char *line, struct last_words *words)
{
	unsigned long long session;

	if (sscanf(line, "words: session %llu, fault %u, code %d, kernel %127s", &session, &words->fault,
		    &words->code, words->kernel) < 3)
		return;
	words->session = session;
	words->magic = LAST_WORDS_MAGIC;
}

/* What executor and device had written at the next judgement behind this line. */
static void leave_evidence(unsigned from)
{
	const char *line = find_line(from, "evidence: ");
	unsigned i = line ? (unsigned)((line - trace->lines[0]) / LINE_BYTES) : trace->count, words = 0;

	for (; i < trace->count && !strstr(trace->lines[i], ": taking over"); i++) {
		if (begins(trace->lines[i], "words: "))
			leave_words(trace->lines[i], &active()->words[words++]);
		leave_work(trace->lines[i]);
	}
}

static int evidence_value(unsigned from, const char *name)
{
	const char *line = find_line(from, "evidence: "), *at = line ? strstr(line, name) : NULL;

	return at ? atoi(at + strlen(name)) : 0;
}

/*
 * What happened
 */

static void say_fault(const char *line)
{
	struct wire_message fault = {.type = WIRE_FAULT};
	char kernel[128];

	ck_assert_int_eq(sscanf(line, "fault: session %lu, fault %u, code %d, kernel %127s", &fault.session,
				 &fault.trouble.number, &fault.trouble.code, kernel),
		4);
	fault.trouble.text = kernel;
	word_release(
		&daemon_find_session(&fake->daemon, fault.session)->view.server->state, SHM_SESSION_FAULTED);
	fake_send(fake, active()->socket, &fault, NULL, 0);
}

/* It says Lost where the judge has heard it. */
static void say_sign(unsigned at)
{
	const char *says = find_line(at, "says: ");
	int code = evidence_value(at, "code ");
	struct wire_message sign = {.type = evidence_value(at, "lost ") ? WIRE_LOST : WIRE_SUSPECT};

	ck_assert_ptr_nonnull(says);
	sign.trouble = (struct wire_trouble){.code = code, .text = says + strlen("says: ")};
	fake_send(fake, active()->socket, &sign, NULL, 0);
}

static void end_process(unsigned at)
{
	active()->worker->asked = evidence_value(at, "asked ");
	fake_reap(fake, active(), evidence_value(at, "signal "));
}

static void answer_halt(bool fence)
{
	struct fake_child *child = active();

	fake_reply(fake, child->socket, await(child, WIRE_HALT, fence), CUDA_SUCCESS, NULL, 0);
}

/* The event of a step "state, event: state". */
static void happen(unsigned at, const char *event)
{
	if (begins(event, "sign:"))
		say_sign(at);
	else if (begins(event, "answered:"))
		answer_halt(false);
	else if (begins(event, "off device:"))
		answer_halt(true);
	else if (begins(event, "terminated:"))
		shutdown(active()->socket, SHUT_RDWR);
	else if (begins(event, "reaped:"))
		end_process(at);
	else if (begins(event, "standby:"))
		need_standby();
	else if (begins(event, "activated:"))
		activate(at);
	else if (begins(event, "resumed"))
		ck_assert_int_eq(fake_come_back(fake), 0);
	/* "stuck" and "drained" come by themselves. */
}

/* Whether the next standby is there before it is needed. */
static bool has_standby(unsigned at)
{
	const char *alone = find_line(at, "alone"), *next = find_line(at, "lost, standby:");

	return !find_line(at, "evidence: ") || !alone || (next && next < alone);
}

static void leave(unsigned number)
{
	if (!has_left[number - 1])
		fake_leave(fake, &clients[number - 1]);
	has_left[number - 1] = true;
}

/* One that is dying has closed it when it is reaped. */
static void close_session(const char *line)
{
	unsigned number;

	ck_assert_int_eq(sscanf(line, "session %u: closed", &number), 1);
	leave(number);
	for (unsigned i = 1; i < fake->child_count; i++) {
		struct fake_child *child = &fake->children[i];

		if (child->worker && child->worker->told && child->worker->state != WORKER_TERMINATING)
			fake_reply(fake, child->socket, await(child, WIRE_CLOSE_SESSION, false), 0, NULL, 0);
	}
}

/* Does what makes the daemon log this line, if it has not yet. */
static void bring_about(unsigned at)
{
	const char *line = trace->lines[at], *event = strstr(line, ", ");

	if (!has_standby(at))
		need_no_standby();
	else if (fake_domain(fake)->active)
		need_standby();
	if (begins(line, "fault: "))
		say_fault(line);
	else if (!begins(line, "session ") && !begins(line, "says: ") && !begins(line, "verdict: ") && event)
		happen(at, event + 2);
}

/* Whether what happens from here on is not a part of what was judged before. */
static bool is_served(unsigned at)
{
	const char *next = find_line(at + 1, "taking over, ");

	return strstr(trace->lines[at], "activated: serving") ||
	       (strstr(trace->lines[at], ": taking over") && next && !begins(next, "taking over, activated"));
}

static void play(void)
{
	char logged[LINE_BYTES];
	unsigned done = 0;

	leave_evidence(0);
	for (unsigned at = 0; at < trace->count; at++) {
		const char *line = trace->lines[at];

		if (begins(line, "session ") && strstr(line, ": closed")) {
			close_session(line);
			continue;
		}
		if (begins(line, "back")) {
			ck_assert_int_eq(fake_come_back(fake), 0);
			continue;
		}
		if (!read_log(done, logged))
			bring_about(at);
		while (!read_log(done, logged))
			fake_turn(fake);
		ck_assert_msg(
			!strcmp(logged, line), "%s: \"%s\" came, not \"%s\"", trace->name, logged, line);
		done++;
		if (is_served(at))
			leave_evidence(at);
	}
	fake_turn(fake);
	ck_assert_msg(!read_log(done, logged), "%s: \"%s\" came, and nothing was to", trace->name, logged);
}

static void count_sessions(void)
{
	session_count = 1;
	for (unsigned i = 0; i < trace->count; i++)
		for (const char *at = trace->lines[i]; (at = strstr(at, "session ")); at++)
			if ((unsigned)atoi(at + 8) > session_count)
				session_count = (unsigned)atoi(at + 8);
	ck_assert_uint_le(session_count, SESSIONS_MAX);
}

START_TEST(what_happened_happens_again)
{
	trace = &traces[_i];
	count_sessions();
	log_fd = memfd_create("log", MFD_CLOEXEC);
	ck_assert_int_ge(log_fd, 0);
	setenv("FRMPS_TEST_LOG", "1", 1);
	fake_with_records = true;
	fake = fake_new(1);
	fake_boot(fake);
	for (unsigned i = 0; i < session_count; i++)
		fake_join(fake, &clients[i], &fake->children[1], &fake->children[2]);
	log_set_descriptor(log_fd);
	play();
	log_set_descriptor(STDERR_FILENO);
	close(log_fd);
	packet_close_fds(&fake->packet);
	for (unsigned i = 0; i < session_count; i++)
		leave(i + 1);
	fake_free(fake);
}
END_TEST

static void read_traces(void)
{
	FILE *file = fopen(getenv("FRMPS_TEST_TRACES"), "re");
	char line[LINE_BYTES];

	if (!file)
		exit(1);
	while (fgets(line, sizeof(line), file)) {
		struct trace *at = &traces[trace_count];

		line[strcspn(line, "\n")] = '\0';
		if (begins(line, "= "))
			snprintf(traces[trace_count++].name, LINE_BYTES, "%s", line + 2);
		else if (trace_count && at[-1].count < LINES)
			snprintf(at[-1].lines[at[-1].count++], LINE_BYTES, "%s", line);
		if (trace_count == TRACES_MAX)
			exit(1);
	}
	fclose(file);
}

int main(void)
{
	Suite *suite = suite_create("traces");
	TCase *tests = tcase_create("traces");

	fake_prepare();
	read_traces();
	tcase_add_loop_test(tests, what_happened_happens_again, 0, (int)trace_count);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
