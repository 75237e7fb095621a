// Copies for other users. See reach.h.

#include "tests/lib/reach.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static char folder[] = "/tmp/frmps-reach-XXXXXX";
static bool is_open;

static _Noreturn void fail(const char *path)
{
	perror(path);
	reach_close();
	exit(EXIT_FAILURE);
}

/* Makes the folders that a file lies in. */
static void make_folders(char *path)
{
	for (char *slash = path + sizeof(folder); (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
}

static void copy(const char *from, char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out;
	struct stat status;

	make_folders(to);
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	if (in < 0 || out < 0 || fstat(in, &status) < 0)
		fail(from);
	for (ssize_t rest = status.st_size, some; rest > 0; rest -= some) {
		some = sendfile(out, in, NULL, (size_t)rest);
		if (some <= 0)
			fail(to);
	}
	close(in);
	close(out);
}

/* Copies what a variable names, if that was built, to the same place below the folder. */
static void take(const char *variable, const char *build)
{
	const char *value = strchr(variable, '=') + 1;
	size_t length = strlen(build);
	struct stat status;
	char name[64], path[4096];

	if (strncmp(value, build, length) != 0 || stat(value, &status) < 0 || !S_ISREG(status.st_mode))
		return;
	snprintf(name, sizeof(name), "%.*s", (int)(value - 1 - variable), variable);
	snprintf(path, sizeof(path), "%s%s", folder, value + length);
	copy(value, path);
	setenv(name, path, 1);
}

/* The variables as they are now: setenv() may move the table, and the strings stay. Return: how
 * many */
static size_t list_variables(const char **list, size_t room)
{
	size_t count = 0;

	for (char **one = environ; *one && count < room; one++)
		if (!strncmp(*one, "FRMPS_TEST_", strlen("FRMPS_TEST_")) && strchr(*one, '='))
			list[count++] = *one;
	return count;
}

void reach_open(void)
{
	const char *server = getenv("FRMPS_TEST_SERVER"), *list[64];
	char build[4096], library[4096], path[4096];

	/* BUILD/server/frmps-server; anything else was installed. */
	if (geteuid() != 0 || !server || snprintf(build, sizeof(build), "%s", server) >= (int)sizeof(build))
		return;
	for (int i = 0; i < 2; i++)
		if (strrchr(build, '/'))
			*strrchr(build, '/') = '\0';
	if (snprintf(library, sizeof(library), "%s/client/libcuda.so.1", build) >= (int)sizeof(library) ||
		access(library, R_OK) < 0)
		return;
	if (!mkdtemp(folder))
		fail(folder);
	is_open = true;
	if (chmod(folder, 0755) < 0)
		fail(folder);
	snprintf(path, sizeof(path), "%s/client/libcuda.so.1", folder);
	copy(library, path);
	for (size_t i = 0, count = list_variables(list, sizeof(list) / sizeof(list[0])); i < count; i++)
		take(list[i], build);
}

void reach_close(void)
{
	char command[sizeof(folder) + 16];

	if (!is_open)
		return;
	is_open = false;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (system(command) != 0)
		fprintf(stderr, "%s stays\n", folder);
}
