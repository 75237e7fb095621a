// Roles of children and their heritage. See role.h.

#include "server/role.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *role_name(enum role role)
{
	static const char *const names[] = {"keeper", "executor", "compiler"};

	return names[role];
}

/* Moves a descriptor beyond those that a child has. */
static int lift(int fd)
{
	return fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, HERITAGE_DUMP_FD + 1);
}

/* Return: false with errno set */
static bool place(int fd, int number)
{
	return fd < 0 || dup2(fd, number) >= 0;
}

bool heritage_place(const struct heritage_fds *fds)
{
	int null = open("/dev/null", O_RDWR);
	int control = lift(fds->control), words = lift(fds->words), dump = lift(fds->dump),
	    output = lift(fds->output);

	if (null < 0 || dup2(null, 0) < 0 || dup2(control, HERITAGE_CONTROL_FD) < 0 ||
		!place(output, STDOUT_FILENO) || !place(output, STDERR_FILENO))
		return false;
	/* Kernels before 5.11 cannot. */
	close_range(HERITAGE_CONTROL_FD + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC);
	return place(words, HERITAGE_WORDS_FD) && place(dump, HERITAGE_DUMP_FD);
}

void heritage_close(const struct heritage_fds *fds)
{
	const int list[] = {fds->control, fds->words, fds->dump, fds->output};

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
		if (list[i] >= 0)
			close(list[i]);
}

/* Set by us for every child, so the parent's values are dropped. */
#define STRING(x)  STRING_(x)
#define STRING_(x) #x
static const char *const fixed[] = {
	"CUDA_DEVICE_MAX_CONNECTIONS=" STRING(HERITAGE_QUEUES), "CUDA_MODULE_LOADING=LAZY"};
#define FIXED (sizeof(fixed) / sizeof(fixed[0]))

static bool is_variable(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

static bool is_shim_directory(const char *path, const char *shim_directory)
{
	char left[PATH_MAX], right[PATH_MAX];

	return shim_directory && realpath(path, left) && realpath(shim_directory, right) &&
	       strcmp(left, right) == 0;
}

static bool is_shim_library(const char *path, const char *unused)
{
	const char *base = strrchr(path, '/');

	(void)unused;
	return strncmp(base ? base + 1 : path, "libcuda.so", 10) == 0;
}

/* NAME=a:b:c without the members that `drop` names; NULL if nothing is left or out of memory
 * (*ret_failed).
 */
static char *filter_list(const char *entry, const char *separators,
	bool (*drop)(const char *member, const char *shim_directory), const char *shim_directory,
	bool *ret_failed)
{
	size_t head = (size_t)(strchr(entry, '=') - entry) + 1;
	char *copy = strdup(entry + head), *result = calloc(1, strlen(entry) + 2), *rest = copy, *member;
	bool any = false;

	if (!copy || !result) {
		free(copy);
		free(result);
		*ret_failed = true;
		return NULL;
	}
	memcpy(result, entry, head);
	while ((member = strsep(&rest, separators))) {
		if (drop(member, shim_directory))
			continue;
		if (any)
			strcat(result, ":");
		strcat(result, member);
		any = true;
	}
	free(copy);
	if (any)
		return result;
	free(result);
	return NULL;
}

/* Maps a variable of the parent to the child's; NULL: dropped. */
static char *child_variable(
	const char *entry, const char *shim_directory, const char *visible, bool *ret_failed)
{
	char *copy;

	for (size_t i = 0; i < FIXED; i++)
		if (strncmp(entry, fixed[i], (size_t)(strchr(fixed[i], '=') - fixed[i]) + 1) == 0)
			return NULL;
	if (visible && is_variable(entry, "CUDA_VISIBLE_DEVICES"))
		return NULL;
	if (is_variable(entry, "NOTIFY_SOCKET"))
		return NULL;
	if (is_variable(entry, "LD_LIBRARY_PATH"))
		return filter_list(entry, ":;", is_shim_directory, shim_directory, ret_failed);
	if (is_variable(entry, "LD_PRELOAD"))
		return filter_list(entry, ": ", is_shim_library, NULL, ret_failed);
	copy = strdup(entry);
	*ret_failed |= !copy;
	return copy;
}

char **heritage_environment(char *const *parent, const char *shim_directory, const char *visible)
{
	size_t count = 0, used = 0;
	bool failed = false;
	char **list;

	while (parent[count])
		count++;
	list = calloc(count + FIXED + 2, sizeof(*list));
	if (!list)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		list[used] = child_variable(parent[i], shim_directory, visible, &failed);
		used += list[used] != NULL;
	}
	for (size_t i = 0; i < FIXED; i++) {
		list[used] = strdup(fixed[i]);
		failed |= !list[used++];
	}
	if (visible && asprintf(&list[used], "CUDA_VISIBLE_DEVICES=%s", visible) < 0) {
		list[used] = NULL;
		failed = true;
	}
	return failed ? heritage_environment_free(list) : list;
}

/* Variables for the usual environment of programs, and for executors. The driver's own cache of
 * code lies below HOME. */
static const char *const for_users[] = {"FRMPS_", "CUDA_", "NVIDIA_",
	"HOME=", "LD_LIBRARY_PATH=", "PATH=", "LANG=", "LC_", "TZ=", "MALLOC_",
	"ASAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS=", "UBSAN_OPTIONS="};

static bool is_for_users(const char *entry)
{
	for (size_t i = 0; i < sizeof(for_users) / sizeof(for_users[0]); i++)
		if (!strncmp(entry, for_users[i], strlen(for_users[i])))
			return true;
	return false;
}

size_t heritage_leave_for_user(char **environment)
{
	char **kept = environment;

	for (char **at = environment; *at; at++)
		if (is_for_users(*at))
			*kept++ = *at;
	*kept = NULL;
	return (size_t)(kept - environment);
}

char **heritage_environment_free(char **environment)
{
	if (environment)
		for (char **at = environment; *at; at++)
			free(*at);
	free(environment);
	return NULL;
}

char *heritage_visible_device(const char *list, int device)
{
	char *copy, *rest, *entry, *result = NULL;

	if (!list || !*list)
		return asprintf(&result, "%d", device) < 0 ? NULL : result;
	copy = rest = strdup(list);
	if (!copy)
		return NULL;
	while ((entry = strsep(&rest, ",")) && device-- > 0)
		;
	if (entry && *entry)
		result = strdup(entry);
	free(copy);
	return result;
}
