// The view of server/demo.sh: starts programs that share a GPU, shows a line for each, crashes the
// last while all of them run, and finally shows the outcome of every program.
//
//   view TITLE NAME PROGRAM [ARGUMENT…] -- NAME PROGRAM [ARGUMENT…] …
//
// The last program is the culprit.
//
// On a terminal the table is refreshed in place; elsewhere, and where TERM is dumb, there is a line
// for each event and the table at the end. Programs write the lines that board.h describes, and
// take orders (worker.c). Single thread, which owns the programs: they end with the view.
//
// Exit status: 0 if every survivor is exact and the culprit got its error, else 1; 2: usage; 128
// plus the number of the signal that ended the view.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/demo/board.h"

#define PROGRAMS_MAX 8u
#define EVENTS_MAX   32u
#define TICK_MS	     100 /* between two looks */
#define TICKS	     10u /* that a rate is measured over */
#define SECOND_NS    UINT64_C(1000000000)
/* How long everybody runs before the crash, and after the crash. */
#define BEFORE_NS (2 * SECOND_NS)
#define AFTER_NS  (3 * SECOND_NS)
/* PyTorch takes seconds to start, and a first GPU context as well. */
#define PATIENCE_NS (90 * SECOND_NS)

#define RED   "\033[1;31m"
#define GREEN "\033[32m"

struct child {
	struct board_program board;
	int orders, output; /* pipes; -1: closed */
	char line[256];	    /* an incomplete line */
	size_t length;
	struct {
		uint64_t at_ns, kernels;
	} samples[TICKS];
};

static struct {
	const char *title;
	struct child children[PROGRAMS_MAX]; /* the last is the culprit */
	unsigned count;
	enum { STARTING, BEFORE, CRASHING, AFTER, ENDING } phase;
	uint64_t begin_ns, phase_ns; /* of all, and of the phase */
	unsigned tick;
	struct {
		char text[BOARD_COLUMNS];
		bool bad;
	} events[EVENTS_MAX];
	unsigned event_count, drawn; /* drawn: lines of the table on the terminal */
	bool live, coloured;
} view;

static volatile sig_atomic_t signalled;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static struct child *culprit(void)
{
	return &view.children[view.count - 1];
}

/* From the launch that faults until its program gets the error. */
static struct board_gap crash(void)
{
	const struct board_program *board = &culprit()->board;

	return (struct board_gap){board->fault_ns, board->error_ns ? board->error_ns : UINT64_MAX};
}

/*
 * Output
 */

static void put(const char *colour, const char *text)
{
	if (view.coloured && colour)
		printf("%s%s\033[0m", colour, text);
	else
		fputs(text, stdout);
	fputs(view.live ? "\033[K\n" : "\n", stdout);
	view.drawn++;
}

static void put_table(void)
{
	struct board_gap around = crash();

	view.drawn += 2;
	fputs(board_head, stdout);
	for (unsigned i = 0; i < view.count; i++) {
		const struct board_program *board = &view.children[i].board;
		char text[BOARD_COLUMNS];

		board_line(board, &around, text);
		put(board->state == BOARD_EXACT					     ? GREEN
			: board->state == BOARD_RUNS || board->state == BOARD_STARTS ? NULL
										     : RED,
			text);
	}
}

static void draw(void)
{
	if (!view.live)
		return;
	if (view.drawn)
		printf("\033[%uA\r", view.drawn);
	view.drawn = 0;
	put_table();
	put(NULL, "");
	for (unsigned i = 0; i < view.event_count; i++)
		put(view.events[i].bad ? RED : NULL, view.events[i].text);
	fflush(stdout);
}

static void event(uint64_t at_ns, bool bad, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void event(uint64_t at_ns, bool bad, const char *format, ...)
{
	char *text;
	va_list arguments;
	int length;

	if (view.event_count == EVENTS_MAX)
		return;
	text = view.events[view.event_count].text;
	view.events[view.event_count++].bad = bad;
	length = snprintf(text, BOARD_COLUMNS, "%6.2f s  ", (double)(at_ns - view.begin_ns) / 1e9);
	va_start(arguments, format);
	vsnprintf(text + length, BOARD_COLUMNS - (size_t)length, format, arguments);
	va_end(arguments);
	if (!view.live) {
		puts(text);
		fflush(stdout);
	}
}

static void tell_change(const struct board_program *board)
{
	switch (board->state) {
	case BOARD_STARTS:
		break;
	case BOARD_RUNS:
		event(now_ns(), false, "%s runs", board->name);
		break;
	case BOARD_FAULTS:
		event(board->fault_ns, true, "*** CRASH *** a kernel of %s writes to address 0x10",
			board->name);
		break;
	case BOARD_FAILED:
		event(board->error_ns, true, "%s gets %s, %.1f ms after the crash", board->name, board->error,
			(double)(board->error_ns - crash().from_ns) / 1e6);
		break;
	case BOARD_EXACT:
		event(now_ns(), false, "%s ends, its data is exact", board->name);
		break;
	case BOARD_WRONG:
		event(now_ns(), true, "%s ends, its data is WRONG", board->name);
		break;
	}
}

/*
 * Programs
 */

static void become(char **arguments, int orders, int output)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	dup2(orders, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	execvp(*arguments, arguments);
	fprintf(stderr, "demo: %s does not start: %s\n", *arguments, strerror(errno));
	_exit(127);
}

/* Return: false if there is no process or pipe left. */
static bool start(struct child *child, const char *name, char **arguments)
{
	int orders[2], output[2];
	pid_t pid;

	if (pipe2(orders, O_CLOEXEC))
		return false;
	if (pipe2(output, O_CLOEXEC)) {
		close(orders[0]);
		close(orders[1]);
		return false;
	}
	pid = fork();
	if (pid == 0)
		become(arguments, orders[0], output[1]);
	close(orders[0]);
	close(output[1]);
	*child = (struct child){.board = {.name = name, .pid = (int)pid, .exit_status = -1},
		.orders = orders[1],
		.output = output[0]};
	return pid > 0;
}

static void close_orders(struct child *child)
{
	if (child->orders >= 0)
		close(child->orders);
	child->orders = -1;
}

static void read_line(struct child *child, const char *line)
{
	enum board_state before = child->board.state;

	if (board_read(&child->board, line) && child->board.state != before)
		tell_change(&child->board);
}

static void read_lines(struct child *child)
{
	char *end;

	while ((end = memchr(child->line, '\n', child->length))) {
		*end = '\0';
		read_line(child, child->line);
		child->length -= (size_t)(end + 1 - child->line);
		memmove(child->line, end + 1, child->length);
	}
	if (child->length == sizeof(child->line)) /* no line of ours is that long */
		child->length = 0;
}

static void read_output(struct child *child)
{
	ssize_t got = read(child->output, child->line + child->length, sizeof(child->line) - child->length);

	if (got > 0) {
		child->length += (size_t)got;
		read_lines(child);
	} else if (got == 0 || errno != EINTR) {
		close(child->output);
		child->output = -1;
	}
}

/* A child that has closed its output is about to end. */
static void reap(struct child *child)
{
	int status;

	if (child->output >= 0 || child->board.exit_status >= 0 ||
		waitpid(child->board.pid, &status, WNOHANG) != child->board.pid)
		return;
	child->board.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	close_orders(child);
	if (child->board.state < BOARD_FAILED)
		event(now_ns(), true, "%s ends before its time, with status %d", child->board.name,
			child->board.exit_status);
}

static void measure_rate(struct child *child, uint64_t now)
{
	unsigned at = view.tick % TICKS;
	uint64_t before = child->samples[at].at_ns;

	child->board.rate = before ? (double)(child->board.kernels - child->samples[at].kernels) * 1e9 /
					     (double)(now - before)
				   : 0;
	child->samples[at].at_ns = now;
	child->samples[at].kernels = child->board.kernels;
}

static bool all_are(bool (*holds)(const struct child *))
{
	for (unsigned i = 0; i < view.count; i++)
		if (!holds(&view.children[i]))
			return false;
	return true;
}

static bool has_begun(const struct child *child)
{
	return child->board.state != BOARD_STARTS || child->board.exit_status >= 0;
}

static bool has_ended(const struct child *child)
{
	return child->board.exit_status >= 0;
}

/*
 * The course of things
 */

static void enter(int phase)
{
	view.phase = phase;
	view.phase_ns = now_ns();
	if (phase == CRASHING && dprintf(culprit()->orders, "fault\n") < 0)
		event(view.phase_ns, true, "%s takes no orders", culprit()->board.name);
	for (unsigned i = 0; i < view.count && phase == ENDING; i++)
		close_orders(&view.children[i]);
}

static void step(void)
{
	uint64_t lasted = now_ns() - view.phase_ns;

	if (view.phase == STARTING && all_are(has_begun))
		enter(BEFORE);
	else if (view.phase == BEFORE && lasted >= BEFORE_NS)
		enter(CRASHING);
	else if (view.phase == CRASHING && has_ended(culprit()))
		enter(AFTER);
	else if (view.phase == AFTER && lasted >= AFTER_NS)
		enter(ENDING);
}

static void look(void)
{
	struct pollfd fds[PROGRAMS_MAX];

	for (unsigned i = 0; i < view.count; i++)
		fds[i] = (struct pollfd){.fd = view.children[i].output, .events = POLLIN};
	if (poll(fds, view.count, TICK_MS) <= 0)
		return;
	for (unsigned i = 0; i < view.count; i++)
		if (fds[i].revents)
			read_output(&view.children[i]);
}

/* Until all programs have ended, or a signal came, or the time limit has passed. */
static void run(void)
{
	uint64_t next = 0;

	while (!all_are(has_ended)) {
		uint64_t now;

		look();
		now = now_ns();
		if (signalled)
			return;
		if (now - view.phase_ns > PATIENCE_NS) {
			event(now, true, "nothing happened for %d s: the programs are killed",
				(int)(PATIENCE_NS / SECOND_NS));
			return;
		}
		for (unsigned i = 0; i < view.count; i++)
			reap(&view.children[i]);
		step();
		if (now < next)
			continue;
		next = now + TICK_MS * UINT64_C(1000000);
		view.tick++;
		for (unsigned i = 0; i < view.count; i++)
			if (!has_ended(&view.children[i]))
				measure_rate(&view.children[i], now);
		draw();
	}
}

static void kill_all(void)
{
	for (unsigned i = 0; i < view.count; i++)
		if (!has_ended(&view.children[i])) {
			kill(view.children[i].board.pid, SIGKILL);
			waitpid(view.children[i].board.pid, NULL, 0);
		}
}

/* Return: true if the demo went as expected. */
static bool conclude(void)
{
	const struct board_program *guilty = &culprit()->board;
	unsigned exact = 0, survivors = view.count - 1;
	struct board_gap around = crash();
	uint64_t longest = 0;

	draw();
	if (!view.live) {
		puts("");
		put_table();
	}
	for (unsigned i = 0; i < survivors; i++) {
		const struct board_program *board = &view.children[i].board;
		uint64_t pause = board_pause_of(board, &around);

		exact += board->state == BOARD_EXACT && board->exit_status == 0;
		longest = pause > longest ? pause : longest;
	}
	printf("\n%s: %u of %u survivors went on, with exact data", view.title, exact, survivors);
	if (exact == survivors)
		printf("; longest pause %s%.1f ms", longest ? "" : "below ",
			longest ? (double)longest / 1e6 : 1.0);
	puts(".");
	if (guilty->state != BOARD_FAILED)
		printf("%s got no error.\n", guilty->name);
	return exact == survivors && guilty->state == BOARD_FAILED;
}

static void note_signal(int number)
{
	signalled = number;
}

static void prepare(void)
{
	const char *term = getenv("TERM"), *colourless = getenv("NO_COLOR");
	struct sigaction action = {.sa_handler = note_signal};
	struct winsize size;

	view.live = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0 &&
		    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= BOARD_COLUMNS &&
		    size.ws_row >= 2 * PROGRAMS_MAX;
	view.coloured = view.live && !(colourless && *colourless);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	view.begin_ns = view.phase_ns = now_ns();
}

/* Starts the programs of a command line. Return: false on failure. */
static bool start_all(char **argv)
{
	while (*argv) {
		char **name = argv;

		while (*argv && strcmp(*argv, "--") != 0)
			argv++;
		if (argv - name < 2 || view.count == PROGRAMS_MAX)
			return false;
		if (*argv)
			*argv++ = NULL;
		if (!start(&view.children[view.count++], *name, name + 1))
			return false;
	}
	return view.count >= 2;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fputs("usage: demo_view TITLE NAME PROGRAM [ARGUMENT]... -- NAME PROGRAM [ARGUMENT]...\n",
			stderr);
		return 2;
	}
	view.title = argv[1];
	prepare();
	if (!start_all(argv + 2)) {
		kill_all();
		fputs("demo_view: the programs cannot be started\n", stderr);
		return 2;
	}
	run();
	kill_all();
	if (signalled)
		return 128 + signalled;
	return conclude() ? 0 : 1;
}
