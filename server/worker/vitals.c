// See vitals.h. proc(5), /proc/PID/stat: times there are those of the whole process, of threads that have ended as well.

#include "server/worker/vitals.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Its name, which comes second, may hold anything: fields are counted from the last parenthesis on. */
static bool parse(const char *text, struct vitals *ret_vitals)
{
	const char *behind_name = strrchr(text, ')');
	unsigned long long user, kernel;
	unsigned threads;
	char state;

	if (!behind_name ||
		sscanf(behind_name + 1,
			" %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %u", &state,
			&user, &kernel, &threads) != 4)
		return false;
	/* The first one is counted until the process is reaped. Its state is the one here. */
	ret_vitals->threads = threads - (state == 'Z' && threads);
	ret_vitals->processor_ms = (user + kernel) * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK);
	return true;
}

bool vitals_read(pid_t pid, struct vitals *ret_vitals)
{
	char path[64], text[1024];
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length < 0 ? 0 : length] = '\0';
	return parse(text, ret_vitals);
}
