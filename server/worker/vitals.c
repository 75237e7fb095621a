// See vitals.h. proc(5): times in /proc/PID/stat are those of the whole process, of threads that
// have ended as well. Flags in /proc/PID/task/TID/stat are those of the kernel (PF_EXITING in its
// include/linux/sched.h).

#include "server/worker/vitals.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXITING 0x4u

struct stat_line {
	unsigned flags;
	unsigned long long user, kernel, start; /* ticks */
};

/* The name, which comes second, may contain anything: fields are counted from the last parenthesis
 * on. */
static bool parse(const char *text, struct stat_line *ret_line)
{
	const char *behind_name = strrchr(text, ')');

	return behind_name &&
	       sscanf(behind_name + 1,
		       " %*c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu",
		       &ret_line->flags, &ret_line->user, &ret_line->kernel, &ret_line->start) == 4;
}

static bool read_line(const char *path, struct stat_line *ret_line)
{
	char text[1024];
	ssize_t length;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length < 0 ? 0 : length] = '\0';
	return parse(text, ret_line);
}

static bool read_process(pid_t pid, struct stat_line *ret_line)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return read_line(path, ret_line);
}

/* A thread that is gone meanwhile has ended. */
static bool is_ending(pid_t pid, const char *thread)
{
	struct stat_line line;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)pid, thread);
	return !read_line(path, &line) || line.flags & EXITING;
}

static bool are_all_ending(pid_t pid)
{
	struct dirent *entry;
	bool all = true;
	char path[64];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	threads = opendir(path);
	while (threads && all && (entry = readdir(threads)))
		all = !isdigit((unsigned char)entry->d_name[0]) || is_ending(pid, entry->d_name);
	if (threads)
		closedir(threads);
	return threads && all;
}

bool vitals_read(pid_t pid, struct vitals *ret_vitals)
{
	struct stat_line line;

	if (!read_process(pid, &line))
		return false;
	ret_vitals->processor_ms =
		(line.user + line.kernel) * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK);
	ret_vitals->is_ending = are_all_ending(pid);
	return true;
}

uint64_t vitals_start(pid_t pid)
{
	struct stat_line line;

	return read_process(pid, &line) ? line.start : 0;
}
