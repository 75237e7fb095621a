// See identity.h. Arguments of other programs than interpreters say what a program works on, not
// what it is.

#include "client/link/identity.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_MAX 255u
/* Of the arguments no more is looked at. */
#define ARGUMENTS_MAX 16384u

static const char *const interpreters[] = {
	"java", "julia", "lua", "luajit", "node", "perl", "pypy", "python", "ruby"};

/* Options that what is run follows: a file, a module, or the code itself. */
static const char *const runs_next[] = {"-c", "-e", "-jar", "-m"};

/* Its name is one of the list, with a version behind it or none. */
static bool is_interpreter(const char *executable)
{
	const char *name = strrchr(executable, '/');

	name = name ? name + 1 : executable;
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

static bool has_program_next(const char *option)
{
	for (size_t i = 0; i < sizeof(runs_next) / sizeof(runs_next[0]); i++)
		if (strcmp(option, runs_next[i]) == 0)
			return true;
	return false;
}

/* The first argument that is a file and no option; without one the first that is no option, NULL
 * without that. Options have values behind them that are neither. */
static const char *find_script(const char *arguments, size_t bytes)
{
	const char *first = NULL, *end = arguments + bytes;

	for (const char *at = arguments + strlen(arguments) + 1; at < end; at += strlen(at) + 1) {
		if (has_program_next(at)) {
			at += strlen(at) + 1;
			return at < end ? at : NULL;
		}
		if (*at == '-' || !*at)
			continue;
		if (is_file(at))
			return at;
		first = first ? first : at;
	}
	return first;
}

static const char *last_part(const char *text)
{
	size_t length = strlen(text);

	return length > PART_MAX ? text + length - PART_MAX : text;
}

void identity_of(const char *executable, const char *arguments, size_t bytes, char text[IDENTITY_MAX])
{
	const char *script = bytes && is_interpreter(executable) ? find_script(arguments, bytes) : NULL;
	char *path = script && is_file(script) ? realpath(script, NULL) : NULL;

	snprintf(text, IDENTITY_MAX, "%.255s%s%.255s", last_part(executable), script ? " " : "",
		script ? last_part(path ? path : script) : "");
	free(path);
}

/* Return: bytes read, the last of which is a NUL */
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

void identity_describe(char text[IDENTITY_MAX])
{
	char executable[PATH_MAX], *arguments = malloc(ARGUMENTS_MAX);
	ssize_t length = readlink("/proc/self/exe", executable, sizeof(executable) - 1);

	text[0] = '\0';
	if (length > 0 && arguments) {
		executable[length] = '\0';
		identity_of(executable, arguments, read_arguments(arguments, ARGUMENTS_MAX), text);
	}
	free(arguments);
}
