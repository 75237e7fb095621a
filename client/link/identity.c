// See identity.h. For programs that are no interpreters the arguments name the data, not the
// program.

#include "client/link/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_MAX 255u
/* Bytes of the arguments that are read at most. */
#define ARGUMENTS_MAX 16384u

static const char *const interpreters[] = {
	"java", "julia", "lua", "luajit", "node", "perl", "pypy", "python", "ruby"};

/* Options that the script follows: a file, a module, or the code itself. */
static const struct runs_next {
	const char *option;
	bool is_code;
} runs_next[] = {{"-c", true}, {"-e", true}, {"-jar", false}, {"-m", false}};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* True if the executable's name is in the list, with or without a version. */
static bool is_interpreter(const char *executable)
{
	const char *name = base_name(executable);

	for (size_t i = 0; i < sizeof(interpreters) / sizeof(interpreters[0]); i++) {
		size_t length = strlen(interpreters[i]);

		if (strncmp(name, interpreters[i], length) == 0 &&
			!name[length + strspn(name + length, "0123456789.")])
			return true;
	}
	return false;
}

static bool is_file(const char *path)
{
	struct statx status;

	return statx(AT_FDCWD, path, 0, STATX_TYPE, &status) == 0 && S_ISREG(status.stx_mode);
}

/* The script of an interpreter. */
struct script {
	const struct runs_next *behind; /* NULL: no option */
	const char *text;		/* path, module or code; NULL: unknown */
};

static const struct runs_next *find_runs_next(const char *option)
{
	for (size_t i = 0; i < sizeof(runs_next) / sizeof(runs_next[0]); i++)
		if (strcmp(option, runs_next[i].option) == 0)
			return &runs_next[i];
	return NULL;
}

/* The first argument that is a file and no option; else the first argument that is no option.
 * Values of options may be neither. */
static struct script find_script(const char *arguments, size_t bytes)
{
	const char *first = NULL, *end = arguments + bytes;

	for (const char *at = arguments + strlen(arguments) + 1; at < end; at += strlen(at) + 1) {
		const struct runs_next *behind = find_runs_next(at);
		const char *next = at + strlen(at) + 1;

		if (behind)
			return (struct script){behind, next < end ? next : NULL};
		if (*at == '-' || !*at)
			continue;
		if (is_file(at))
			return (struct script){NULL, at};
		first = first ? first : at;
	}
	return (struct script){NULL, first};
}

static const char *last_part(const char *text)
{
	size_t length = strlen(text);

	return length > PART_MAX ? text + length - PART_MAX : text;
}

static void describe(const char *executable, const struct script *script, char text[IDENTITY_MAX])
{
	char *path = script->text && is_file(script->text) ? realpath(script->text, NULL) : NULL;

	snprintf(text, IDENTITY_MAX, "%.255s%s%.255s", last_part(executable), script->text ? " " : "",
		script->text ? last_part(path ? path : script->text) : "");
	free(path);
}

/* Code is no name: its option alone stands for it. */
static void name(const char *program, const struct script *script, char text[IDENTITY_NAME_MAX])
{
	const struct runs_next *behind = script->behind;
	const char *shown = script->text && !(behind && behind->is_code) ? base_name(script->text) : "";

	snprintf(text, IDENTITY_NAME_MAX, "%.100s%s%s%s%.140s", program, behind ? " " : "",
		behind ? behind->option : "", *shown ? " " : "", shown);
}

void identity_of(const char *executable, const char *arguments, size_t bytes, struct identity *ret_identity)
{
	struct script script = {0};

	if (bytes && is_interpreter(executable))
		script = find_script(arguments, bytes);
	describe(executable, &script, ret_identity->text);
	name(base_name(bytes ? arguments : executable), &script, ret_identity->name);
}

/* Return: number of bytes read; the last is a NUL */
static size_t read_arguments(char *arguments, size_t size)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t n = 1;

	while (fd >= 0 && n > 0 && length < size - 1) {
		n = read(fd, arguments + length, size - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0)
		close(fd);
	arguments[length] = '\0';
	return length ? length + 1 : 0;
}

void identity_describe(struct identity *ret_identity)
{
	char executable[PATH_MAX], *arguments = malloc(ARGUMENTS_MAX);
	ssize_t length = readlink("/proc/self/exe", executable, sizeof(executable) - 1);

	*ret_identity = (struct identity){.text = ""};
	snprintf(ret_identity->name, sizeof(ret_identity->name), "%s", program_invocation_short_name);
	if (length > 0 && arguments) {
		executable[length] = '\0';
		identity_of(executable, arguments, read_arguments(arguments, ARGUMENTS_MAX), ret_identity);
	}
	free(arguments);
}
