// See criu.h.

#include "server/tools/criu.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/criu/nvidia.h"
#include "server/tools/process.h"
#include "server/tools/shim.h"

/* Words of a command beside those of its sockets, with the NULL. */
#define WORDS 22u

/* Exit status of a child without CRIU, as in a shell. */
#define NOT_FOUND 127

/* A command line. */
struct line {
	char **words;
	size_t count, room;
};

static void add(struct line *line, const char *format, ...)
{
	va_list values;
	char *word;

	va_start(values, format);
	if (line->count + 1 < line->room && vasprintf(&word, format, values) >= 0)
		line->words[line->count++] = word;
	va_end(values);
}

static bool begin(struct line *line, const char *what, const char *folder, size_t sockets)
{
	line->room = WORDS + 2 * sockets;
	line->count = 0;
	line->words = calloc(line->room, sizeof(*line->words));
	if (!line->words)
		return false;
	add(line, "criu");
	add(line, "%s", what);
	add(line, "--images-dir");
	add(line, "%s", folder);
	add(line, "--log-file");
	add(line, "%s.log", what);
	add(line, "--leave-stopped");
	/* A program that was started from a terminal. */
	add(line, "--shell-job");
	add(line, "--file-locks");
	return true;
}

/* CRIU itself takes no process that has a file of the driver open. */
static void add_plugin(struct line *line)
{
	char *folder = shim_find_plugin();

	if (!folder)
		return;
	add(line, "--libdir");
	add(line, "%s", folder);
	free(folder);
}

static void end(struct line *line)
{
	for (size_t i = 0; i < line->count; i++)
		free(line->words[i]);
	free(line->words);
}

/* The child, which only CRIU's log speaks for. */
static void execute(const struct line *line, const struct criu_socket *sockets, size_t count)
{
	int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(nowhere, STDOUT_FILENO);
	dup2(nowhere, STDERR_FILENO);
	/* A restored process would have what CRIU has. */
	close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
	for (size_t i = 0; i < count; i++)
		if (sockets[i].fd >= 0)
			fcntl(sockets[i].fd, F_SETFD, 0);
	execvp(line->words[0], line->words);
	_exit(NOT_FOUND);
}

/* Return: the exit status; negative: a signal has ended the child, or there was none */
static int run(const struct line *line, const struct criu_socket *sockets, size_t count)
{
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	if (child == 0)
		execute(line, sockets, count);
	if (child < 0)
		return -1;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Lines that say only that it is over. */
static bool says_nothing(const char *error)
{
	return strstr(error, " FAILED.") || strstr(error, " failed with -1");
}

/* The latest error in CRIU's log that gives a reason, without the time in front. */
static void quote_log(const char *folder, const char *what, char quote[200])
{
	char path[4200], *text = NULL;
	const char *error;
	size_t room = 0;
	FILE *log;

	*quote = '\0';
	snprintf(path, sizeof(path), "%s/%s.log", folder, what);
	log = fopen(path, "re");
	while (log && getline(&text, &room, log) > 0) {
		error = strstr(text, "Error (");
		error = error ? strchr(error, ' ') : NULL;
		if (error && !says_nothing(error))
			snprintf(quote, 200, ":%.*s", (int)strcspn(error, "\n"), error);
	}
	free(text);
	if (log)
		fclose(log);
}

static int finish(struct line *line, int status, const char *folder, char *ret_text)
{
	const char *what = line->words[1];
	char quote[200];

	if (status == NOT_FOUND) {
		snprintf(ret_text, CRIU_TEXT,
			"there is no criu in PATH, which saves processes (package criu)");
	} else if (status) {
		quote_log(folder, what, quote);
		snprintf(ret_text, CRIU_TEXT, "criu %s fails%s", what, quote);
	}
	end(line);
	return status ? -1 : 0;
}

static int out_of_memory(char *ret_text)
{
	snprintf(ret_text, CRIU_TEXT, "out of memory");
	return -1;
}

int criu_dump(pid_t root, const char *folder, const struct criu_socket *sockets, size_t count, char *ret_text)
{
	struct line line;

	if (!begin(&line, "dump", folder, count))
		return out_of_memory(ret_text);
	add(&line, "--tree");
	add(&line, "%d", (int)root);
	if (process_tree_opens(root, CRIU_NVIDIA_FILES))
		add_plugin(&line);
	for (size_t i = 0; i < count; i++)
		add(&line, "--ext-unix-sk=%" PRIu64, sockets[i].inode);
	return finish(&line, run(&line, NULL, 0), folder, ret_text);
}

static bool has_list(const char *folder)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/" CRIU_NVIDIA_LIST, folder);
	return !access(path, F_OK);
}

int criu_restore(const char *folder, const struct criu_socket *sockets, size_t count, char *ret_text)
{
	struct line line;

	if (!begin(&line, "restore", folder, count))
		return out_of_memory(ret_text);
	add(&line, "--restore-detached");
	if (has_list(folder))
		add_plugin(&line);
	for (size_t i = 0; i < count; i++) {
		add(&line, "--inherit-fd");
		add(&line, "fd[%d]:socket:[%" PRIu64 "]", sockets[i].fd, sockets[i].inode);
	}
	return finish(&line, run(&line, sockets, count), folder, ret_text);
}
